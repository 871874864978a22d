"""ACLs, users and quotas from a broker's metadata, as a server loads them."""

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import IllegalArgument, IllegalState, InvalidRecord
from kafkalog.manager.cluster_image import ClusterImage
from kafkalog.manager.known_topics import read_known_topics, topics_in
from kafkalog.server.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from kafkalog.server.security.file import SECURITY_FILE, SecurityFile, kept_by_broker, security_directory
from kafkalog.server.security.state import ScramKeys, SecurityState, format_state, parse_state
from kafkalog.server.security.takeover import security_of
from kafkalog.server.security.users import add_user
from tests.broker_directory import format_directory, write_metadata_log

ENTRY = {
    "resourceType": 3, "resourceName": "g", "patternType": 4, "principal": "User:a", "host": "*", "operation": 3,
    "permissionType": 3,
}  # fmt: skip
KEYS = {"salt": b"salt", "storedKey": b"stored", "serverKey": b"server", "iterations": 4096}


def make_image(*entries: dict[str, Any], scram: Any = ()) -> ClusterImage:
    made = ClusterImage()
    made.acls = {str(number): entry for number, entry in enumerate(entries)}
    made.scram = dict(scram)
    made.quotas = {(("user", None),): {"request_percentage": 50.0}}
    return made


def test_all_of_it_is_what_the_file_would_hold() -> None:
    state = security_of(make_image(ENTRY, scram={("a", 2): KEYS}))
    acl = Acl(ResourceType.GROUP, "g", PatternType.PREFIXED, "User:a", "*", Operation.READ, Permission.ALLOW)
    assert state == SecurityState(
        (acl,), {(("user", None),): {"request_percentage": 50.0}},
        {"a": {"SCRAM-SHA-512": ScramKeys(b"salt", b"stored", b"server", 4096)}},
    )  # fmt: skip
    assert parse_state(format_state(state)) == state


def test_what_cannot_be_used_is_told(caplog: pytest.LogCaptureFixture) -> None:
    few = {("few", 1): {**KEYS, "iterations": 10}, ("new", 9): KEYS, ("a", 1): KEYS}
    with caplog.at_level(logging.WARNING):
        state = security_of(make_image({**ENTRY, "operation": 99}, ENTRY, scram=few))
    assert len(state.acls) == 1 and list(state.users) == ["a"]
    assert all(words in caplog.text for words in ("'few'", "'new'", "skipped an unsupported allow ACL"))


@pytest.mark.parametrize("field", ["resourceType", "patternType", "operation"])
def test_nobody_is_let_in_because_a_denial_was_not_understood(field: str) -> None:
    with pytest.raises(InvalidRecord, match="a deny ACL of .* is not supported"):
        security_of(make_image({**ENTRY, "permissionType": 2, field: 77}))


def test_it_counts_until_there_is_a_file(tmp_path: Any) -> None:
    taken = security_of(make_image(ENTRY))
    file = SecurityFile(tmp_path, before=lambda: taken)
    assert file.read() == taken and not list(tmp_path.iterdir())
    file.write(SecurityState())
    assert SecurityFile(tmp_path, before=lambda: taken).read() == SecurityState()


# Several data directories, and a broker that ran in between

ANN = ("UserScramCredentialRecord", 0, {"name": "ann", "mechanism": 1, **KEYS})


def broker_directories(root: Path) -> tuple[Path, Path]:
    """Formatted by 4.3 with a user; the broker has deleted the user since, and its log is in the first."""
    used, other = root / "used", root / "other"
    for path in (used, other):
        format_directory(path, records=[ANN])
    write_metadata_log(used, [ANN, ("RemoveUserScramCredentialRecord", 0, {"name": "ann", "mechanism": 1})])
    return used, other


def users_of(*directories: Path) -> set[str]:
    known = read_known_topics(map(str, directories))
    file = SecurityFile(
        security_directory(directories), before=lambda: kept_by_broker(known, topics_in(map(str, directories)))
    )
    return set(file.read().users)


def test_a_user_whom_the_broker_has_deleted_is_none_in_any_order(tmp_path: Path) -> None:
    used, other = broker_directories(tmp_path)
    assert users_of(used, other) == users_of(other, used) == users_of(used) == set()


def test_users_of_a_stale_directory_alone_are_refused(tmp_path: Path) -> None:
    """A topic that neither a topics file nor the metadata knows says that a broker has run elsewhere."""
    _, other = broker_directories(tmp_path)
    assert users_of(other) == {"ann"}, "nothing here says that a broker has run"
    (other / "theirs-0").mkdir()
    with pytest.raises(IllegalArgument, match="has created topic theirs since") as caught:
        users_of(other)
    assert "__cluster_metadata-0" in (caught.value.hint or "")


def test_users_that_the_broker_changed_since_are_refused(tmp_path: Path) -> None:
    """Each way out that the error names leads on."""
    format_directory(tmp_path)
    log = write_metadata_log(tmp_path, [ANN])
    add_user(tmp_path, "root", "secret")
    assert users_of(tmp_path) == {"ann", "root"}
    shutil.rmtree(log)
    write_metadata_log(tmp_path)
    with pytest.raises(IllegalState, match="the broker has changed users") as caught:
        users_of(tmp_path)
    file = tmp_path / SECURITY_FILE
    assert caught.value.path == str(file) and "taken_from" in (caught.value.hint or "")
    with pytest.raises(IllegalState):
        add_user(tmp_path, "more", "secret")
    kept = file.read_text()
    file.write_text("\n".join(line for line in kept.splitlines() if "taken_from" not in line))
    file.chmod(0o600)
    assert users_of(tmp_path) == {"ann", "root"}
    file.unlink()
    assert users_of(tmp_path) == set()


def test_the_file_counts_in_whichever_directory_it_lies(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    add_user(second, "ann", "secret")
    assert users_of(first, second) == users_of(second, first) == {"ann"}
    add_user(first, "bob", "secret", others=[second])
    assert users_of(first, second) == {"ann", "bob"} and not (first / SECURITY_FILE).exists()
    first.mkdir(exist_ok=True)
    shutil.copy(second / SECURITY_FILE, first)
    with pytest.raises(IllegalArgument, match=f"has a {SECURITY_FILE} too") as caught:
        users_of(first, second)
    assert str(first) in str(caught.value) and str(second) in str(caught.value)
