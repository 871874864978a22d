"""TLS listeners: PEM settings, principals of certificates, ranges of files by plain copy, strangers."""

import asyncio
import os
import re
import shutil
import socket
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import ConfigError, StorageError
from kafkalog.server.net.outgoing import Outgoing, Progress
from kafkalog.server.net.tls import PrincipalRules, distinguished_name, tls_context
from kafkalog.server.settings.config import ServerConfig
from kafkalog.storage.file_slice import FileSlice
from kafkalog.storage.lazy_file import LazyFile
from kafkalog.util.fileio import OS
from tests.server.net.certificates import authority, certificate
from tests.server.net.networks import (
    add_length,
    answer_of,
    both_loops,
    connect,
    echo_frame,
    is_closed,
    network_for,
    run_in,
)

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
ASKED = add_length(b"12345678")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    authority(made)
    certificate(made, "server", "/CN=localhost")
    certificate(made, "client", "/C=DE/O=An Org, Inc./CN=alice")
    certificate(made, "locked", "/CN=localhost", password="open-sesame")
    return made


def tls_settings(folder: Path, **more: Any) -> dict[str, Any]:
    return {"listeners": "SSL://127.0.0.1:0", "ssl_keystore_location": str(folder / "server.pem"), **more}


def client_context(folder: Path, name: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if name is not None:
        context.load_cert_chain(folder / f"{name}.pem")
    return context


@pytest.mark.parametrize("pieces", [[bytes(1 << 16)], [b"head", b"tail"]])
def test_a_response_that_is_blocked_at_its_first_byte_is_sent_again_as_it_was(
    folder: Path, pieces: list[Any]
) -> None:
    """OpenSSL refuses less than it was given before: the connection was closed."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.pem")
    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor(1) as other:
        joins = other.submit(client_context(folder).wrap_socket, theirs, server_hostname="localhost")
        with server.wrap_socket(ours, server_side=True) as sock, joins.result():
            sock.setblocking(False)
            for size in (4096, 1):  # below TLS, so that nothing of it is pending
                with suppress(BlockingIOError):
                    while True:
                        os.write(sock.fileno(), bytes(size))
            out = Outgoing(sock)
            assert not out.send(pieces)
            assert out.write() is Progress.BLOCKED
            assert out.held_bytes == sum(map(len, pieces)) + 4
            out.clear()


@pytest.mark.parametrize("loop", both_loops())
def test_requests_and_ranges_of_files_over_tls(folder: Path, tmp_path: Path, loop: Any) -> None:
    content = os.urandom(1 << 20) * 3
    (tmp_path / "file").write_bytes(content)

    async def dispatch(connection: Any, frame: bytearray) -> Any:
        if frame == b"the file":
            return [b"head", FileSlice(LazyFile(str(tmp_path / "file"), OS, "r"), 0, len(content)), b"tail"]
        return [bytes(frame)]

    async def run() -> None:
        async with network_for(dispatch, **tls_settings(folder)) as network:
            reader, writer = await connect(network, "SSL", ssl=client_context(folder))
            large = os.urandom(1 << 20)
            writer.write(ASKED * 100 + add_length(b"the file") + add_length(large) + ASKED)
            for _ in range(100):
                assert await answer_of(reader) == b"12345678"
            assert await answer_of(reader) == b"head" + content + b"tail"
            assert await answer_of(reader) == large
            assert await answer_of(reader) == b"12345678"
            writer.close()

    run_in(loop, run())


@pytest.mark.parametrize("loop", both_loops())
def test_large_requests_wait_for_room_over_tls(folder: Path, loop: Any) -> None:
    async def run() -> None:
        large = add_length(os.urandom(600_000))
        async with network_for(echo_frame, queued_max_request_bytes=1 << 20, **tls_settings(folder)) as network:
            opened = [await connect(network, "SSL", ssl=client_context(folder)) for _ in range(6)]
            for number, (_, writer) in enumerate(opened):
                writer.write(large if number % 2 else large[:300_000])
            for reader, _ in opened[1::2]:
                assert await answer_of(reader) == large[4:]
            assert network.counts.request_bytes <= 1 << 20
            for _, writer in opened[::2]:
                writer.transport.abort()
            for _, writer in opened[1::2]:
                writer.close()

    run_in(loop, run())


@pytest.mark.parametrize("loop", both_loops())
def test_a_handshake_with_more_certificates_than_a_socket_takes_at_once(
    folder: Path, tmp_path: Path, loop: Any
) -> None:
    """Its end waits for the client, and for nothing else."""
    chain = tmp_path / "chain.pem"
    chain.write_text((folder / "server.pem").read_text() + (folder / "ca.pem").read_text() * 60)
    given = {"ssl_keystore_location": str(chain), "socket_send_buffer_bytes": 4096}
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context(folder).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")

    async def run() -> None:
        running = asyncio.get_running_loop()
        async with network_for(echo_frame, **tls_settings(folder, **given)) as network:
            with socket.socket() as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                sock.setblocking(False)
                await running.sock_connect(sock, ("127.0.0.1", network.listeners["SSL"].port))
                await step(sock)
                (channel,) = network.channels.values()
                assert not running.remove_writer(channel.fileno())
                await running.sock_sendall(sock, outgoing.read())
                tls.write(ASKED)
                await running.sock_sendall(sock, outgoing.read())
                while (answer := tls_read()) is None:
                    incoming.write(await asyncio.wait_for(running.sock_recv(sock, 1000), 60))
                assert answer == ASKED

    async def step(sock: socket.socket) -> None:
        running = asyncio.get_running_loop()
        while True:
            try:
                tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                await running.sock_sendall(sock, outgoing.read())
                incoming.write(await asyncio.wait_for(running.sock_recv(sock, 1000), 60))

    def tls_read() -> bytes | None:
        try:
            return tls.read(1000)
        except ssl.SSLWantReadError:
            return None

    run_in(loop, run())


@pytest.mark.parametrize(
    ("rules", "name"),
    [("DEFAULT", r"CN=alice,O=An Org\, Inc.,C=DE"), ("RULE:^CN=(.*?),.*$/$1/U,DEFAULT", "ALICE")],
)
def test_a_certificate_names_the_client(folder: Path, rules: str, name: str) -> None:
    async def dispatch(connection: Any, frame: bytearray) -> Any:
        return [connection.principal.encode()]

    async def run() -> None:
        more = {"ssl_client_auth": "required", "ssl_truststore_location": str(folder / "ca.pem")}
        more["ssl_principal_mapping_rules"] = rules
        async with network_for(dispatch, **tls_settings(folder, **more)) as network:
            reader, writer = await connect(network, "SSL", ssl=client_context(folder, "client"))
            writer.write(ASKED)
            assert await answer_of(reader) == b"User:" + name.encode()
            writer.close()
            reader, writer = await connect(network, "SSL", ssl=client_context(folder))
            with pytest.raises((ssl.SSLError, ConnectionResetError, asyncio.IncompleteReadError)):
                writer.write(ASKED)
                await answer_of(reader)
            writer.close()

    asyncio.run(run())


def test_strangers_at_a_tls_listener_are_closed_and_others_are_served(folder: Path) -> None:
    async def run() -> None:
        async with network_for(echo_frame, **tls_settings(folder)) as network:
            for stranger in (ASKED, b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(600)):
                reader, writer = await connect(network, "SSL")
                writer.write(stranger)
                try:
                    await asyncio.wait_for(reader.read(), 60)
                except ConnectionResetError:
                    pass
                writer.close()
            slow = await connect(network, "SSL")
            slow[1].write(b"\x16")
            reader, writer = await connect(network, "SSL", ssl=client_context(folder))
            writer.write(ASKED)
            assert await answer_of(reader) == b"12345678"
            assert network.counts.refused == {"bad_handshake": 3}
            for one in (writer, slow[1]):
                one.close()

    asyncio.run(run())


def test_an_old_version_of_tls_is_refused(folder: Path) -> None:
    async def run() -> None:
        async with network_for(echo_frame, **tls_settings(folder, ssl_enabled_protocols="TLSv1.3")) as network:
            context = client_context(folder)
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises((ssl.SSLError, ConnectionResetError)):
                await connect(network, "SSL", ssl=context)

    asyncio.run(run())


def test_two_listeners_with_settings_of_their_own(folder: Path) -> None:
    async def run() -> None:
        given = {
            "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SSL",
            "listener.name.outside.ssl.keystore.location": str(folder / "server.pem"),
        }
        async with network_for(echo_frame, **given) as network:
            inside = await connect(network, "INSIDE")
            outside = await connect(network, "OUTSIDE", ssl=client_context(folder))
            for reader, writer in (inside, outside):
                writer.write(ASKED)
                assert await answer_of(reader) == b"12345678"
            assert not await is_closed_soon(inside[0])
            for _, writer in (inside, outside):
                writer.close()

    asyncio.run(run())


async def is_closed_soon(reader: Any) -> bool:
    try:
        return bool(await asyncio.wait_for(is_closed(reader), 0.1))
    except TimeoutError:
        return False


def test_keys_as_text_and_with_a_password(folder: Path) -> None:
    text = (folder / "server.pem").read_text()
    cut = text.index("-----BEGIN CERTIFICATE")
    given = {"ssl.keystore.key": text[:cut], "ssl.keystore.certificate.chain": text[cut:]}
    tls_context(ServerConfig(given), "SSL")
    locked = {"ssl.keystore.location": str(folder / "locked.pem")}
    tls_context(ServerConfig({**locked, "ssl.key.password": "open-sesame"}), "SSL")
    for wrong in ({}, {"ssl.key.password": "sesame"}):
        with pytest.raises(ConfigError):
            tls_context(ServerConfig({**locked, **wrong}), "SSL")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, ConfigError),
        ({"ssl.keystore.location": "/nowhere/key.pem"}, StorageError),
        ({"ssl.keystore.location": __file__}, ConfigError),
        ({"ssl.cipher.suites": "NONE-SUCH"}, ConfigError),
        ({"ssl.enabled.protocols": "SSLv3"}, ConfigError),
    ],
)
def test_settings_that_openssl_does_not_take(folder: Path, given: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        tls_context(ServerConfig(given), "SSL")


def test_java_store_becomes_pem_by_the_command_of_the_hint(folder: Path, tmp_path: Path) -> None:
    store, file = tmp_path / "store.p12", tmp_path / "store.pem"
    made = ["openssl", "pkcs12", "-export", "-in", str(folder / "server.pem"), "-out", str(store), "-passout", "pass:p"]
    subprocess.run(made, check=True, capture_output=True)
    with pytest.raises(ConfigError) as caught:
        tls_context(ServerConfig({"ssl.keystore.location": str(store)}), "SSL")
    (command,) = re.findall(r"`(openssl [^`]+)`", str(caught.value))
    line = [{"STORE": str(store), "FILE": str(file)}.get(word, word) for word in command.split()]
    subprocess.run([*line, "-passin", "pass:p"], check=True, capture_output=True)
    tls_context(ServerConfig({"ssl.keystore.location": str(file)}), "SSL")


def test_client_certificates_without_anybody_who_signs_them(folder: Path) -> None:
    given = {"ssl.keystore.location": str(folder / "server.pem"), "ssl.client.auth": "required"}
    with pytest.raises(ConfigError, match="trusts none"):
        tls_context(ServerConfig(given), "SSL")


def test_names_and_rules_as_a_broker_has_them() -> None:
    subject = ((("countryName", "DE"),), (("organizationName", 'a+"b'),), (("commonName", "#x "),))
    assert distinguished_name(subject) == r"CN=\#x\ ,O=a\+\"b,C=DE"
    rules = PrincipalRules(r"RULE:^CN=(\w+),OU=ServiceUsers.*$/$1/, RULE:^CN=(.*),OU=(Admin).*$/$1@$2/L , DEFAULT")
    assert rules.name_of("CN=kafka,OU=ServiceUsers,O=x") == "kafka"
    assert rules.name_of("CN=Root,OU=Admin,O=x") == "root@admin"
    assert rules.name_of("CN=kafka,O=x") == "CN=kafka,O=x"
    with pytest.raises(ConfigError):
        PrincipalRules("RULE:no end")
    with pytest.raises(ValueError, match="no rule of ssl.principal.mapping.rules matches 'CN=kafka,O=x'"):
        PrincipalRules("RULE:CN=([a-z]+)/$1/").name_of("CN=kafka,O=x")


@pytest.mark.parametrize(
    ("replacement", "name"),
    [("$1@$4", "a@$4"), (r"a\/$1", "a/a"), (r"a\\$1", r"a\a"), (r"x\q$1", "xqa"), ("$0", "CN=a,O=b"), ("$11", "a1")],
)
def test_replacements_of_rules_are_those_of_a_broker(replacement: str, name: str) -> None:
    """The names are those that a broker's `SslPrincipalMapper` of 4.3.1 gives."""
    assert PrincipalRules(f"RULE:^CN=(.*?),.*$/{replacement}/").name_of("CN=a,O=b") == name


def test_a_client_for_whose_certificate_no_rule_is_made_is_refused(folder: Path) -> None:
    async def run() -> None:
        more = {"ssl_client_auth": "required", "ssl_truststore_location": str(folder / "ca.pem")}
        more["ssl_principal_mapping_rules"] = "RULE:^CN=bob,.*$/bob/"
        async with network_for(echo_frame, **tls_settings(folder, **more)) as network:
            reader, writer = await connect(network, "SSL", ssl=client_context(folder, "client"))
            with pytest.raises((ssl.SSLError, ConnectionResetError, asyncio.IncompleteReadError)):
                writer.write(ASKED)
                await answer_of(reader)
            writer.close()
            assert network.counts.refused["bad_handshake"] == 1

    asyncio.run(run())
