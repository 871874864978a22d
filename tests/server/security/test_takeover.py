"""What a broker's metadata says of ACLs, users and quotas, as a server takes it."""

import logging
from typing import Any

import pytest

from kafkalog.errors import InvalidRecord
from kafkalog.manager.cluster_image import ClusterImage
from kafkalog.server.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from kafkalog.server.security.file import SecurityFile
from kafkalog.server.security.state import ScramKeys, SecurityState, format_state, parse_state
from kafkalog.server.security.takeover import security_of

ENTRY = {
    "resourceType": 3, "resourceName": "g", "patternType": 4, "principal": "User:a", "host": "*", "operation": 3,
    "permissionType": 3,
}  # fmt: skip
KEYS = {"salt": b"salt", "storedKey": b"stored", "serverKey": b"server", "iterations": 4096}


def image(*entries: dict[str, Any], scram: Any = ()) -> ClusterImage:
    made = ClusterImage()
    made.acls = {str(number): entry for number, entry in enumerate(entries)}
    made.scram = dict(scram)
    made.quotas = {(("user", None),): {"request_percentage": 50.0}}
    return made


def test_all_of_it_is_what_the_file_would_hold() -> None:
    state = security_of(image(ENTRY, scram={("a", 2): KEYS}))
    acl = Acl(ResourceType.GROUP, "g", PatternType.PREFIXED, "User:a", "*", Operation.READ, Permission.ALLOW)
    assert state == SecurityState(
        (acl,), {(("user", None),): {"request_percentage": 50.0}},
        {"a": {"SCRAM-SHA-512": ScramKeys(b"salt", b"stored", b"server", 4096)}},
    )  # fmt: skip
    assert parse_state(format_state(state)) == state


def test_what_cannot_be_used_is_told(caplog: pytest.LogCaptureFixture) -> None:
    few = {("few", 1): {**KEYS, "iterations": 10}, ("new", 9): KEYS, ("a", 1): KEYS}
    with caplog.at_level(logging.WARNING):
        state = security_of(image({**ENTRY, "operation": 99}, ENTRY, scram=few))
    assert len(state.acls) == 1 and list(state.users) == ["a"]
    assert all(words in caplog.text for words in ("'few'", "'new'", "allows something is not understood"))


@pytest.mark.parametrize("field", ["resourceType", "patternType", "operation"])
def test_nobody_is_let_in_because_a_denial_was_not_understood(field: str) -> None:
    with pytest.raises(InvalidRecord, match="denies something is not understood"):
        security_of(image({**ENTRY, "permissionType": 2, field: 77}))


def test_it_counts_until_there_is_a_file(tmp_path: Any) -> None:
    taken = security_of(image(ENTRY))
    file = SecurityFile(tmp_path, before=lambda: taken)
    assert file.read() == taken and not list(tmp_path.iterdir())
    file.write(SecurityState())
    assert SecurityFile(tmp_path, before=lambda: taken).read() == SecurityState()
