"""Control records as text: transaction markers and KRaft records (format.md sections 3 and 13, A3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.records.control import ControlType, control_record
from kafkalog.records.json_text import json_text

if TYPE_CHECKING:
    from kafkalog.records.schema import Message

Bytes = bytes | None

_WORDS: Final = {
    ControlType.LEADER_CHANGE: "LeaderChange: ",
    ControlType.SNAPSHOT_HEADER: "SnapshotHeader ",
    ControlType.SNAPSHOT_FOOTER: "SnapshotFooter ",
    ControlType.KRAFT_VERSION: "KRaftVersion ",
    ControlType.KRAFT_VOTERS: "KRaftVoters ",
}
_NO_UUID: Final = "A" * 22


def control_text(key: Bytes, value: Bytes) -> str:
    """Return the text of a KRaft control record (A3): `LeaderChange: {...}`; InvalidRecord for a malformed value."""
    found = control_record(key, value)
    return _WORDS[found.type] + json_text(_printed(found.type, found.data or {}))


def control_value(key: Bytes, value: Bytes) -> dict[str, object]:
    """Return the fields of any control record, with its `type`; InvalidRecord for a malformed one."""
    found = control_record(key, value)
    if found.coordinator_epoch is not None:
        return {"type": found.type.name, "coordinatorEpoch": found.coordinator_epoch}
    if found.data is None:
        return {"type": found.type.name, "number": found.number}
    return {"type": found.type.name, "data": _printed(found.type, found.data)}


def _printed(kind: ControlType, data: Message) -> Message:
    """Return the fields as the reference prints them.

    In a leader change of a later version it prints a directory id for each voter, which is not in the bytes.
    """
    if kind == ControlType.LEADER_CHANGE and data["version"] > 0:
        for voter in (*data["voters"], *data["grantingVoters"]):
            voter["voterDirectoryId"] = _NO_UUID
    return data
