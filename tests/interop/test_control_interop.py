"""Control batches equal those of the reference byte for byte, and each side reads the other's (REC-31, REC-33)."""

import base64
from random import Random
from typing import Any

import pytest

from kafkalog import control
from kafkalog._core.batch.scan import scan
from kafkalog.control import ControlRecord, ControlType
from kafkalog.errors import IllegalArgument
from kafkalog.records.batch import RecordBatch
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.message import Source
from kafkalog.records.schemas.control import VALUES
from tests.interop.reference import Reference
from tests.messages import message

T = 1_700_000_000_000
KRAFT = [kind for kind in ControlType if kind in VALUES]
EXTREMES = [(0, 0, 0, 0, -1), (2**63 - 1, 2**15 - 1, 2**31 - 1, 2**62, 2**31 - 1), (9, 1, -1, 40, 7)]


def theirs(reference: Reference, kind: ControlType, **fields: Any) -> bytes:
    """A batch that the reference built."""
    return base64.b64decode(reference.ask("control_batch", kind=kind.name, **fields))


def control_of(data: bytes) -> ControlRecord | None:
    return RecordBatch(data, scan(data), 0).control


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
@pytest.mark.parametrize("numbers", EXTREMES)
def test_markers(reference: Reference, kind: ControlType, numbers: tuple[int, int, int, int, int]) -> None:
    producer_id, producer_epoch, coordinator_epoch, base_offset, leader_epoch = numbers
    place = {"timestamp": T, "base_offset": base_offset, "leader_epoch": leader_epoch}
    producer = {"producer_id": producer_id, "producer_epoch": producer_epoch, "coordinator_epoch": coordinator_epoch}
    expected = theirs(reference, kind, **place, **producer)
    assert bytes(control.marker_batch(kind, **producer, **place)) == expected
    assert control_of(expected) == ControlRecord(kind, int(kind), coordinator_epoch=coordinator_epoch)


@pytest.mark.parametrize("kind", KRAFT)
def test_kraft(reference: Reference, kind: ControlType) -> None:
    """Of random content, the empty one among them."""
    random = Random(kind.name)
    place = {"timestamp": T, "base_offset": 3, "leader_epoch": 5}
    for _ in range(12):
        data = VALUES[kind].read(Source(message(VALUES[kind], 0, random)), 0)
        expected = theirs(reference, kind, data=data, **place)
        assert bytes(control.kraft_batch(kind, data, **place)) == expected
        assert control_of(expected) == ControlRecord(kind, int(kind), data=data)


def test_a_raw_marker(reference: Reference) -> None:
    """REC-30: what the reference's builder refuses, ours refuses."""
    parts = control.marker_parts(ControlType.COMMIT, 0)
    for given in (
        {},
        {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0},
        {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0, "transactional": True},
    ):
        outcomes = reference.ask("raw_marker", magic=2, codec="none", base_offset=0, **given)
        flags: dict[str, Any] = dict(given)
        flags["is_transactional"] = flags.pop("transactional", False)
        ours = []
        for is_control in (False, True):
            ours.append(refused(RecordsBuilder(**flags, is_control=is_control).append, parts))
            ours.append(refused(RecordsBuilder(**flags, is_control=is_control).append_control, parts))
        # a key and a value in a batch of data are a record of data, whatever they look like
        assert [outcome is not None for outcome in outcomes] == ours
        assert set(outcomes) <= {None, "IllegalArgumentException"}


def refused(append: Any, parts: tuple[bytes, bytes]) -> bool:
    try:
        append(0, *parts)
    except IllegalArgument:
        return True
    return False
