"""Users and what they prove their passwords by (RFC 4013, RFC 5802, RFC 7677), and the file that keeps them."""

import asyncio
import hashlib
import hmac
import json
import os
import stat
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog.cli.main import run
from kafkalog.errors import CorruptCheckpoint, CorruptRecord, IllegalArgument
from kafkalog.manager.cluster_metadata import METADATA_DIRECTORY
from kafkalog.manager.log_dir import LogDir
from kafkalog.server.security import scram
from kafkalog.server.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from kafkalog.server.security.credentials import Credentials
from kafkalog.server.security.file import SECURITY_FILE, SecurityFile
from kafkalog.server.security.scram import (
    LoginFailed,
    ScramServer,
    keys_of_password,
    keys_of_salted,
    password_matches,
    salted_password,
)
from kafkalog.server.security.state import ScramKeys, SecurityState
from kafkalog.server.security.users import add_user, prepared, read_password
from tests.manager.metadata_files import metadata_value, write_metadata

MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


async def _at_once(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


class Client:
    """A client of SCRAM, after RFC 5802."""

    def __init__(self, mechanism: str, user: str, password: str) -> None:
        self.digest = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
        self.password = password
        self.bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r=abc"

    def first(self) -> bytes:
        return f"n,,{self.bare}".encode()

    def last(self, said: bytes, **changes: str) -> bytes:
        fields = {"c": "biws", **dict(part.split("=", 1) for part in said.decode().split(",")), **changes}
        salted = hashlib.pbkdf2_hmac(self.digest, self.password.encode(), b64decode(fields["s"]), int(fields["i"]))
        client_key = hmac.digest(salted, b"Client Key", self.digest)
        bare = f"c={fields['c']},r={fields['r']}"
        self.message = f"{self.bare},{said.decode()},{bare}".encode()
        signature = hmac.digest(hashlib.new(self.digest, client_key).digest(), self.message, self.digest)
        proof = b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
        server_key = hmac.digest(salted, b"Server Key", self.digest)
        self.expected = b"v=" + b64encode(hmac.digest(server_key, self.message, self.digest))
        return f"{bare},p={fields.get('p', proof)}".encode()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["u", "a,b=c", "ünï"])
def test_a_client_with_the_password_is_who_it_says(mechanism: str, user: str) -> None:
    keys = keys_of_password(mechanism, "secret")
    server = ScramServer(mechanism, {user: keys}.get)
    client = Client(mechanism, user, "secret")
    assert server.answer(client.last(server.answer(client.first()))) == client.expected
    assert server.user == user


def test_the_example_of_the_standard(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 7677, section 3."""
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    keys = keys_of_salted("SCRAM-SHA-256", salted_password("SCRAM-SHA-256", "pencil", salt, 4096), salt, 4096)
    monkeypatch.setattr(scram.secrets, "token_urlsafe", lambda _: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    server = ScramServer("SCRAM-SHA-256", {"user": keys}.get)
    first = server.answer(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    last = server.answer(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize("changes", [{"r": "abc"}, {"c": "eSws"}, {"p": "AAAA"}, {"p": "////"}])
def test_a_last_message_that_does_not_fit_the_first_is_refused(changes: dict[str, str]) -> None:
    server = ScramServer("SCRAM-SHA-256", {"u": keys_of_password("SCRAM-SHA-256", "secret")}.get)
    client = Client("SCRAM-SHA-256", "u", "secret")
    with pytest.raises(LoginFailed):
        server.answer(client.last(server.answer(client.first()), **changes))
    assert server.user is None


@pytest.mark.parametrize(
    "message",
    [b"", b"n,,n=u", b"p=tls-unique,,n=u,r=a", b"n,a=other,n=u,r=a", b"n,,n=u=,r=a", b"n,,n=u,r=\x7f", b"\xff",
     b"n,,m=x,n=u,r=a", b"n,,n=u,r=" + b"a" * 20_000],
)  # fmt: skip
def test_a_first_message_that_is_none_is_refused(message: bytes) -> None:
    server = ScramServer("SCRAM-SHA-256", {"u": keys_of_password("SCRAM-SHA-256", "secret")}.get)
    with pytest.raises(LoginFailed):
        server.answer(message)


@pytest.mark.parametrize("iterations", [4096, 8192])
@pytest.mark.parametrize("salt_bytes", [16, 24, 70])
def test_nobody_learns_who_is_known(tmp_path: Path, salt_bytes: int, iterations: int) -> None:
    """All that is said to an unknown user is of the form of what is said to one with a wrong password."""
    mechanism = "SCRAM-SHA-512"

    async def run() -> None:
        made = Credentials(SecurityFile(tmp_path), _at_once)
        await made.start()
        salt = bytes(range(salt_bytes))
        kept = keys_of_salted(mechanism, salted_password(mechanism, "right", salt, iterations), salt, iterations)
        users = {f"u{number}": {mechanism: kept} for number in range(3)}
        users["other"] = {mechanism: keys_of_password(mechanism, "right", 5000)}
        made.file.state = made.file.state._replace(users=users)
        forms, salts, errors = set(), {}, set()
        for user in ("u1", "nobody", "another", "u1", "nobody", "another"):
            server, client = made.scram(mechanism), Client(mechanism, user, "wrong")
            said = server.answer(client.first())
            nonce, sent, rounds = [part.partition("=")[2] for part in said.decode().split(",")]
            forms.add((len(nonce), len(b64decode(sent)), int(rounds)))
            assert salts.setdefault(user, sent) == sent
            with pytest.raises(LoginFailed) as raised:
                server.answer(client.last(said))
            errors.add(str(raised.value))
        assert forms == {(3 + 32, salt_bytes, iterations)}
        assert len(set(salts.values())) == 3 and len(errors) == 1

    asyncio.run(run())


def test_without_users_there_is_still_a_form(tmp_path: Path) -> None:
    async def run() -> None:
        made = Credentials(SecurityFile(tmp_path), _at_once)
        await made.start()
        said = made.scram("SCRAM-SHA-256").answer(b"n,,n=nobody,r=abc").decode().split(",")
        assert (len(b64decode(said[1][2:])), said[2]) == (24, "i=4096")

    asyncio.run(run())


def test_an_exchange_keeps_no_more_than_a_little_of_a_stranger() -> None:
    keys = {"u": keys_of_password("SCRAM-SHA-256", "p")}
    for size in (2048, 2049):
        message = b"n,,n=u,r=" + b"a" * (size - 9)
        server = ScramServer("SCRAM-SHA-256", keys.get)
        if size <= scram.MAX_MESSAGE_BYTES:
            server.answer(message)
        else:
            with pytest.raises(LoginFailed):
                server.answer(message)


def test_passwords_of_plain_are_checked_by_the_same_keys(tmp_path: Path) -> None:
    add_user(tmp_path, "u", "secret")
    assert "secret" not in (tmp_path / SECURITY_FILE).read_text()

    async def run() -> None:
        made = Credentials(SecurityFile(tmp_path), _at_once)
        await made.start()
        assert await made.is_password("u", "secret")
        assert not await made.is_password("u", "Secret") and not await made.is_password("v", "secret")
        assert made.keys_of("u", "SCRAM-SHA-512") is not None and made.keys_of("v", "SCRAM-SHA-256") is None

    asyncio.run(run())


def test_passwords_are_checked_by_a_few_threads_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        running, most = 0, 0

        async def slowly(function: Callable[..., Any], *args: Any) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return False

        made = Credentials(SecurityFile(tmp_path), slowly)
        await asyncio.gather(*(made.is_password(f"u{number}", "p") for number in range(20)))
        assert most == 2

    asyncio.run(run())


def test_a_user_gets_another_password_and_others_stay(tmp_path: Path) -> None:
    add_user(tmp_path, "u", "one", mechanisms=["SCRAM-SHA-256"])
    add_user(tmp_path, "v", "two")
    before = SecurityFile(tmp_path).read()
    add_user(tmp_path, "u", "three", mechanisms=["SCRAM-SHA-256"])
    after = SecurityFile(tmp_path).read()
    assert after.users["v"] == before.users["v"] and after.users["u"] != before.users["u"]


def test_a_user_is_added_beside_those_of_a_broker(tmp_path: Path) -> None:
    """Its metadata may lie in another directory than the server's file, and damage in it is not passed over."""
    first, second = tmp_path / "first", tmp_path / "second"
    kept = {"salt": b"salt", "storedKey": b"stored", "serverKey": b"server", "iterations": 4096}
    write_metadata(second, [metadata_value("UserScramCredentialRecord", name="ann", mechanism=1, **kept)])
    add_user(first, "root", "secret", others=[second])
    state = SecurityFile(first).read()
    assert set(state.users) == {"ann", "root"} and state.users["ann"]["SCRAM-SHA-256"].salt == b"salt"
    os.remove(first / SECURITY_FILE)
    with (second / METADATA_DIRECTORY / f"{0:020d}.log").open("ab") as log:
        log.write(b"torn")
    with pytest.raises(CorruptRecord, match="metadata is damaged"):
        add_user(first, "root", "secret", others=[second])
    assert not (first / SECURITY_FILE).exists()


def test_no_user_is_added_behind_the_back_of_a_server(tmp_path: Path) -> None:
    script = "import sys; from kafkalog.server.security.users import add_user; add_user(sys.argv[1], 'u', 'p')"
    with LogDir.acquire(tmp_path):
        ended = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
    assert "DirectoryLocked" in ended.stderr and not (tmp_path / SECURITY_FILE).exists()


def test_a_user_is_added_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p").write_text("secret\n")
    directory = tmp_path / "data"
    asked = ["serve", "-d", str(directory), "--add-user", "u", "--password-file", str(tmp_path / "p")]
    assert run(asked) == 0 and "secret" not in "".join(capsys.readouterr())
    keys = SecurityFile(directory).read().users["u"]
    assert sorted(keys) == MECHANISMS and password_matches("SCRAM-SHA-256", "secret", keys["SCRAM-SHA-256"])
    assert run(asked[:3] + asked[5:]) == 2


def test_the_file_comes_back_as_it_was_and_is_its_owners_alone(tmp_path: Path) -> None:
    state = SecurityState(
        (Acl(ResourceType.TOPIC, "t", PatternType.PREFIXED, "User:u", "*", Operation.READ, Permission.DENY),),
        {
            (("client-id", None), ("user", "u")): {"producer_byte_rate": 1.5},
            (("client-id", "c"),): {"request_percentage": 2.0},
        },
        {"u": {"SCRAM-SHA-256": ScramKeys(b"salt", b"stored", b"server", 4096)}},
    )
    SecurityFile(tmp_path).write(state)
    assert SecurityFile(tmp_path).read() == state
    assert stat.S_IMODE(os.stat(tmp_path / SECURITY_FILE).st_mode) == 0o600
    assert SecurityFile(tmp_path / "none").read() == SecurityState()


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", '{"version": 2, "acls": [], "quotas": [], "users": {}}', '{"version": 1, "acls": []}',
     '{"version": 1, "acls": [{"resource_type": "X"}], "quotas": [], "users": {}}',
     '{"version": 1, "acls": [], "quotas": [{"entity": {}, "limits": {}}], "users": {}}',
     '{"version": 1, "acls": [], "quotas": [{"entity": {"user": null}, "limits": {"a": -1}}], "users": {}}',
     '{"version": 1, "acls": [], "quotas": [{"entity": {"user": "u"}, "limits": {"a": null}}], "users": {}}',
     '{"version": 1, "acls": [], "quotas": [{"entity": {"u": "u"}, "limits": {"a": 1e400}}], "users": {}}',
     '{"version": 1, "acls": [], "quotas": [{"entity": {"u": "u"}, "limits": {"a": 1X}}], "users": {}}'.replace(
         "X", "0" * 400),
     '{"version": 1, "acls": [{"resource_type": []}], "quotas": [], "users": {}}',
     '{"version": 1, "acls": [], "quotas": [], "users": {"u": {"MD5": {}}}}',
     '{"version": 1, "acls": [], "quotas": [], "users": {"u": {"SCRAM-SHA-256": {"iterations": 1}}}}'],
)  # fmt: skip
def test_a_damaged_file_is_an_error_and_never_an_open_server(tmp_path: Path, content: str) -> None:
    (tmp_path / SECURITY_FILE).write_text(content)
    with pytest.raises(CorruptCheckpoint, match="move it away"):
        SecurityFile(tmp_path).read()


def test_changes_go_one_after_the_other(tmp_path: Path) -> None:
    async def run() -> None:
        file = SecurityFile(tmp_path)

        async def slowly(function: Callable[..., Any], *args: Any) -> Any:
            await asyncio.sleep(0)
            return function(*args)

        def with_user(name: str) -> Callable[[SecurityState], SecurityState]:
            keys = {"SCRAM-SHA-256": ScramKeys(b"", b"", b"", 4096)}
            return lambda state: state._replace(users={**state.users, name: keys})

        await asyncio.gather(*(file.change(slowly, with_user(name)) for name in "abc"))
        assert sorted(json.loads((tmp_path / SECURITY_FILE).read_text())["users"]) == ["a", "b", "c"]

    asyncio.run(run())


@pytest.mark.parametrize("text", ["", "a\x00b", "a\u00adb", "ａ", "x\u202ey", "\u0627a", "a\u2028"])
def test_what_not_every_client_sends_alike_is_no_password(text: str) -> None:
    """RFC 4013."""
    with pytest.raises(IllegalArgument):
        prepared(text, "password")


@pytest.mark.parametrize("text", ["a b", "pässwörd", "\u0627\u0628", "€=,;'\"\\"])
def test_what_is_its_own_normal_form_is_taken(text: str) -> None:
    assert prepared(text, "password") == text


def test_where_a_password_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p").write_text("from file\nmore\n")
    assert read_password(str(tmp_path / "p")) == "from file"
    monkeypatch.setenv("KAFKALOG_PASSWORD", "from there")
    assert read_password() == "from there"
    monkeypatch.delenv("KAFKALOG_PASSWORD")
    with pytest.raises(IllegalArgument, match="no password is given"):
        read_password(is_asked_for=False)
    answers = iter(["one", "two"])
    monkeypatch.setattr("getpass.getpass", lambda _: next(answers))
    with pytest.raises(IllegalArgument, match="differ"):
        read_password()
