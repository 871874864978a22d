"""Control records as values and as words."""

import struct
from typing import Any

import pytest

from kafkalog.errors import InvalidRecord
from kafkalog.tools.dump.control_text import control_text, control_value


def key(kind: int, version: int = 0, tail: bytes = b"") -> bytes:
    return struct.pack(">hh", version, kind) + tail


def marker(epoch: int, version: int = 0, tail: bytes = b"") -> bytes:
    return struct.pack(">hi", version, epoch) + tail


@pytest.mark.parametrize(
    ("given", "value", "expected"),
    [
        (key(0), marker(7), {"type": "ABORT", "coordinatorEpoch": 7}),
        (key(1), marker(-1), {"type": "COMMIT", "coordinatorEpoch": -1}),
        (key(1, version=1), marker(7), {"type": "COMMIT", "coordinatorEpoch": 7}),
        (key(1, tail=b"more"), marker(7, version=5, tail=b"more"), {"type": "COMMIT", "coordinatorEpoch": 7}),
        (key(7), None, {"type": "UNKNOWN", "number": 7}),
        (key(-1), b"", {"type": "UNKNOWN", "number": -1}),
        (key(5), b"\0\0\0\1\0", {"type": "KRAFT_VERSION", "data": {"version": 0, "kRaftVersion": 1}}),
    ],
)
def test_kinds(given: bytes, value: bytes | None, expected: dict[str, Any]) -> None:
    """REC-32: types 0 to 6 are known, later versions of key and value are read as version 0 (REC-48)."""
    assert control_value(given, value) == expected


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (None, marker(7)),
        (key(0)[:3], marker(7)),
        (key(0, version=-1), marker(7)),
        (key(0), marker(7, version=-1)),
        (key(0), marker(7)[:2]),
        (key(0), marker(7)[:4]),
        (key(0), None),
        (key(2), None),
        (key(2), b"\0\0\0"),
        (key(6), b"\0\0\0\0"),
    ],
)
def test_malformed_ones(given: bytes | None, value: bytes | None) -> None:
    """REC-32, REC-48."""
    with pytest.raises(InvalidRecord):
        control_value(given, value)


def test_words() -> None:
    """A3."""
    voters = b"\0\0\x02" + struct.pack(">i", 1) + bytes(range(16)) + b"\x02" + b"\x02P\x02h" + struct.pack(">H", 65535)
    voters += b"\0" + struct.pack(">hh", 0, 1) + b"\0\0\0"
    assert control_text(key(6), voters) == (
        'KRaftVoters {"version":0,"voters":[{"voterId":1,"voterDirectoryId":"AAECAwQFBgcICQoLDA0ODw","endpoints":'
        '[{"name":"P","host":"h","port":65535}],"kRaftVersionFeature":{"minSupportedVersion":0,"maxSupportedVersion":1}}]}'
    )
    header = b"\0\0" + struct.pack(">q", 123) + b"\0"
    assert control_text(key(3), header) == 'SnapshotHeader {"version":0,"lastContainedLogTimestamp":123}'
    assert control_text(key(4), b"\0\0\0") == 'SnapshotFooter {"version":0}'
    leader = b"\0\0" + struct.pack(">i", 1) + b"\x02" + struct.pack(">i", 1) + b"\0\x01\0"
    expected = 'LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[]}'
    assert control_text(key(2), leader) == expected
