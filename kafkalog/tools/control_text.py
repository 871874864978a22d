"""Control records in words: transaction markers, and what KRaft tells its voters (format.md sections 3 and 13, A3)."""

from __future__ import annotations

from typing import Any, Final

from kafkalog.errors import InvalidRecord
from kafkalog.records.internal import control_message
from kafkalog.records.json_text import json_text
from kafkalog.records.message import UNDERFLOW, MessageError
from kafkalog.records.schema import Message

Bytes = bytes | None

MALFORMED: Final = "a control record's key or value is too short"
_KRAFT: Final = {
    2: ("LeaderChange: ", "LEADER_CHANGE"),
    3: ("SnapshotHeader ", "SNAPSHOT_HEADER"),
    4: ("SnapshotFooter ", "SNAPSHOT_FOOTER"),
    5: ("KRaftVersion ", "KRAFT_VERSION"),
    6: ("KRaftVoters ", "KRAFT_VOTERS"),
}
_MARKERS: Final = {0: "ABORT", 1: "COMMIT"}


def control_text(key: Bytes, value: Bytes) -> str:
    """The words of a KRaft control record (A3): `LeaderChange: {...}`; InvalidRecord for a malformed value."""
    kind = _control_kind(key)
    return _KRAFT[kind][0] + json_text(_control_message(kind, value))


def control_value(key: Bytes, value: Bytes) -> dict[str, Any]:
    """What any control record says, as a dict with its `type`; InvalidRecord for a malformed one."""
    kind = _control_kind(key)
    if kind in _KRAFT:
        return {"type": _KRAFT[kind][1], "data": _control_message(kind, value)}
    if kind not in _MARKERS:
        return {"type": "UNKNOWN", "number": kind}
    if value is None or len(value) < 6 or value[0] & 0x80:
        raise InvalidRecord(MALFORMED)
    return {"type": _MARKERS[kind], "coordinatorEpoch": int.from_bytes(value[2:6], "big", signed=True)}


def _control_kind(key: Bytes) -> int:
    if key is None or len(key) < 4 or key[0] & 0x80:
        raise InvalidRecord(MALFORMED)
    return int.from_bytes(key[2:4], "big", signed=True)


def _control_message(kind: int, value: Bytes) -> Message:
    try:
        return control_message(kind, value)
    except MessageError as error:
        what = "it ends inside a field" if error.message == UNDERFLOW else error.message
        raise InvalidRecord(f"the control record cannot be read: {what}") from None
