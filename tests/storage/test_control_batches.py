"""Control batches in a log: its coordinator appends them, clients may not, consumers get none of them."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog import control
from kafkalog.control import ControlType
from kafkalog.errors import InvalidRecord
from kafkalog.records.builder import RecordsBuilder
from tests.raw_batches import batch
from tests.storage.logs import NOW, log

MARKER = (ControlType.COMMIT, 9, 1, 7)
UNKNOWN = b"\0\x03\0\x63tail"


def unknown_batch() -> bytearray:
    builder = RecordsBuilder(is_control=True)
    builder.append_control(NOW, UNKNOWN, b"of a later version")
    return builder.build()


def test_a_coordinator_appends_a_marker(tmp_path: Path) -> None:
    """REC-31: it gets offset and leader epoch from the log and stays 78 bytes; readers pass over it."""
    a_log = log(tmp_path, leader_epoch=4)
    a_log.append_as_leader(bytearray(batch(0, [b"a", b"b"], epoch=-1, timestamp=NOW)))
    info = a_log.append_as_leader(control.marker_batch(*MARKER, timestamp=NOW), origin="coordinator")
    assert (info.first_offset, info.last_offset, info.valid_bytes) == (2, 2, 78)
    a_log.append_as_leader(bytearray(batch(0, [b"c"], epoch=-1, timestamp=NOW)))
    a_log.close()
    with kafkalog.open(tmp_path / "topic-0") as reading:
        assert [(r.offset, r.value) for r in reading] == [(0, b"a"), (1, b"b"), (3, b"c")]
        _, marker, _ = reading.batches()
        wanted = control.marker_batch(*MARKER, timestamp=NOW, base_offset=2, leader_epoch=4)
        assert marker.decode().key(0) == b"\0\0\0\1"
        assert (marker.size, marker.header.leader_epoch, marker.base_offset) == (78, 4, 2)
        assert marker.control == control.ControlRecord(ControlType.COMMIT, 1, coordinator_epoch=7)
    assert bytes(wanted) in (tmp_path / "topic-0" / f"{0:020d}.log").read_bytes()


def test_a_raft_leader_appends_what_kraft_says(tmp_path: Path) -> None:
    """REC-33: its batches carry the epoch they are appended with."""
    a_log = log(tmp_path, leader_epoch=4)
    data = {"leaderId": 1, "voters": [{"voterId": 1}], "grantingVoters": []}
    change = control.kraft_batch(ControlType.LEADER_CHANGE, data, timestamp=NOW, leader_epoch=4)
    assert a_log.append_as_leader(change, origin="raft_leader", leader_epoch=4).last_offset == 0
    with pytest.raises(InvalidRecord, match="epoch"):
        wrong = control.kraft_batch(ControlType.LEADER_CHANGE, data, timestamp=NOW, leader_epoch=3)
        a_log.append_as_leader(wrong, origin="raft_leader", leader_epoch=4)
    a_log.close()


@pytest.mark.parametrize("made", [control.marker_batch(*MARKER, timestamp=NOW), unknown_batch()], ids=["marker", "99"])
def test_a_client_may_not(tmp_path: Path, made: bytearray) -> None:
    """REC-30: nothing is written."""
    with kafkalog.open(tmp_path / "t-0", "a") as a_log:
        for data in (made, made + made):
            with pytest.raises(InvalidRecord, match="coordinators"):
                a_log.append_bytes(bytes(data))
        assert (a_log.end_offset, a_log.size) == (0, 0)


def test_unknown_types_are_copied_and_passed_over(tmp_path: Path) -> None:
    """As a follower takes them: the same bytes, no record for a consumer, named when asked."""
    copied = bytes(unknown_batch()[:12] + b"\0\0\0\0" + unknown_batch()[16:])
    with kafkalog.open(tmp_path / "t-0", "a") as a_log:
        a_log.replicate(copied)
        a_log.append(b"v")
    assert (tmp_path / "t-0" / f"{0:020d}.log").read_bytes().startswith(copied)
    with kafkalog.open(tmp_path / "t-0") as reading:
        assert [r.offset for r in reading] == [1]
        said = [b.control for b in reading.batches()]
        assert said == [control.ControlRecord(ControlType.UNKNOWN, 99), None]
        assert [[r.is_control for r in b] for b in reading.batches()] == [[True], [False]]
