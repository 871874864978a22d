"""Rules of the log, each shown on the smallest log that can show it (checklist LOG)."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog import hooks
from kafkalog.errors import KafkalogError, LogClosed, OffsetOutOfRange, RecordBatchTooLarge, StorageError
from kafkalog.records.control import ControlType
from kafkalog.records.control_batch import marker_batch
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.names import snapshot_file_name
from kafkalog.types import LogOffsetMetadata, OffsetAndTimestamp
from tests.faults import FaultFS
from tests.mock_time import MockClock, MockScheduler
from tests.storage.logs import NOW, append_batches, bases, config, files, log, sized_batch
from tests.storage.test_log_transactions import build_batch

WRITES: dict[str, Callable[[UnifiedLog], object]] = {
    "append": lambda a_log: append_batches(a_log),
    "roll": lambda a_log: a_log.roll(),
    "truncate": lambda a_log: a_log.truncate_to(0),
    "start anew": lambda a_log: a_log.truncate_fully_and_start_at(9),
    "delete records": lambda a_log: a_log.delete_before(1),
    "retention": lambda a_log: a_log.delete_old_segments(),
    "flush": lambda a_log: a_log.flush(),
}


@pytest.mark.parametrize("write", WRITES)
def test_after_a_failed_sync_nothing_is_written(tmp_path: Path, write: str) -> None:
    """LOG-35: and what is there is read on; with a store around it the directory goes offline (MGR-23)."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    append_batches(a_log, times=3)
    fs.fail("fsync", "fdatasync", path=".log", code=errno.EIO, times=1)
    with pytest.raises(StorageError):
        a_log.flush()
    before = files(tmp_path / "topic-0")
    with pytest.raises(StorageError, match="rejects writes after an earlier failure") as caught:
        WRITES[write](a_log)
    assert (caught.value.code, caught.value.errno) == (56, errno.EIO)
    assert files(tmp_path / "topic-0") == before
    assert a_log.failed and a_log.read(0, 1000).records.size == 300
    a_log.close_handlers()


def test_a_write_that_fails_is_undone_and_may_be_tried_again(tmp_path: Path) -> None:
    """LOG-35: not even a part of it stays; a store gives up the directory all the same (MGR-23)."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    append_batches(a_log, times=3)
    fs.fail("pwrite", "ftruncate", path=".log", code=errno.EIO, partial=10)
    for _ in range(3):
        with pytest.raises(StorageError) as caught:
            append_batches(a_log)
        assert (caught.value.code, caught.value.errno) == (56, errno.EIO)
    fs.heal()
    append_batches(a_log)
    assert (a_log.log_end_offset, a_log.size) == (4, 400)
    a_log.close()
    assert files(tmp_path / "topic-0")["00000000000000000000.log"] == 400


def test_retention_goes_by_log_start_then_size_then_time(tmp_path: Path) -> None:
    """LOG-42: each rule takes what the one before it left."""
    clock = MockClock(NOW + 1000)
    a_log = log(tmp_path, clock=clock, internal_segment_bytes=500, retention_bytes=1100, retention_ms=50)
    append_batches(a_log, times=20)
    append_batches(a_log, times=10, timestamp=NOW + 999)
    a_log.maybe_increment_log_start_offset(7)
    events = []
    with hooks.on("delete", lambda event: events.append((event.values["reason"], event.values["base_offsets"]))):
        assert a_log.delete_old_segments() == 4
    assert events == [("log_start", (0,)), ("size", (5, 10)), ("time", (15,))]
    assert bases(a_log) == [20, 25]
    a_log.close()


def test_a_crash_before_the_delete_leaves_files_that_the_next_opening_removes(tmp_path: Path) -> None:
    """LOG-46: out of the log and renamed at once, removed after file.delete.delay.ms."""
    clock = MockClock(NOW)
    scheduler = MockScheduler(clock)
    a_log = log(tmp_path, clock=clock, scheduler=scheduler, internal_segment_bytes=300, file_delete_delay_ms=1000)
    append_batches(a_log, times=7)
    a_log.delete_before(6)
    waiting = [name for name in files(tmp_path / "topic-0") if name.endswith(".deleted")]
    assert bases(a_log) == [6] and "00000000000000000003.log.deleted" in waiting
    scheduler.advance(999)
    assert [name for name in files(tmp_path / "topic-0") if name.endswith(".deleted")] == waiting
    a_log.close_handlers()
    again = log(tmp_path, had_clean_shutdown=False, log_start_offset=6)
    assert not any(name.endswith(".deleted") for name in files(tmp_path / "topic-0"))
    assert (again.log_start_offset, again.log_end_offset) == (6, 7)
    again.close()


def test_deleting_without_delay_ends(tmp_path: Path) -> None:
    """LOG-75: the files go at once, and nothing is scheduled again."""
    clock = MockClock(NOW)
    scheduler = MockScheduler(clock)
    a_log = log(tmp_path, clock=clock, scheduler=scheduler, internal_segment_bytes=300, file_delete_delay_ms=0)
    append_batches(a_log, times=10)
    a_log.delete_before(9)
    assert bases(a_log) == [9]
    assert not any(name.startswith("00000000000000000000.") for name in files(tmp_path / "topic-0"))
    assert scheduler.pending == [] and scheduler.advance(100_000) == 0
    a_log.close()


def test_a_close_flushes_and_keeps_the_producers(tmp_path: Path) -> None:
    """LOG-70: then every use is an error of the log, also by its code on the wire; a second close does nothing."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    append_batches(a_log, times=2)
    fs.calls.clear()
    a_log.close()
    assert any(call.path.endswith(".log") for call in fs.named("fsync", "fdatasync"))
    assert "00000000000000000002.snapshot" in files(tmp_path / "topic-0") and a_log.recovery_point == 2
    reads: dict[str, Callable[[UnifiedLog], object]] = {
        "read": lambda one: one.read(0, 100), "look up": lambda one: one.offset_for_time(NOW),
    }  # fmt: skip
    for use in (*WRITES.values(), *reads.values()):
        with pytest.raises(LogClosed) as caught:
            use(a_log)
        assert caught.value.code == 56
    fs.calls.clear()
    a_log.close()
    assert fs.calls == []


def test_giving_files_back_writes_nothing(tmp_path: Path) -> None:
    """LOG-70: no flush and no snapshot; then no roll and no append."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    append_batches(a_log, times=2)
    fs.calls.clear()
    a_log.close_handlers()
    assert fs.named("fsync", "fdatasync", "pwrite", "rename") == []
    assert "00000000000000000002.snapshot" not in files(tmp_path / "topic-0")
    for write in ("roll", "append"):
        with pytest.raises(KafkalogError) as caught:
            WRITES[write](a_log)
        assert caught.value.code == 56


def test_control_batches_count(tmp_path: Path) -> None:
    """LOG-74: for offsets and for the largest time; a control batch between data may be the answer."""
    a_log = log(tmp_path)
    append_batches(a_log, timestamp=NOW)
    a_log.append_as_leader(marker_batch(ControlType.COMMIT, 5, 0, 0, timestamp=NOW + 90), origin="coordinator")
    append_batches(a_log, timestamp=NOW + 10)
    assert a_log.log_end_offset == 3
    assert a_log.active_segment.tail.max_timestamp == NOW + 90
    assert a_log.offset_for_time(-3) == OffsetAndTimestamp(1, NOW + 90, 0)
    assert a_log.offset_for_time(NOW + 50) == OffsetAndTimestamp(1, NOW + 90, 0)
    a_log.close()


def test_a_roll_of_an_empty_log_may_leave_a_gap(tmp_path: Path) -> None:
    """LOG-80: the end jumps to the offset that a follower expects next; a lower one is no error."""
    a_log = log(tmp_path)
    a_log.roll(100)
    assert (a_log.log_end_offset, a_log.active_segment.base_offset) == (100, 100)
    a_log.roll(5)
    assert a_log.log_end_offset == 100
    a_log.append_as_follower(sized_batch(100, base=100, epoch=0), 0)
    assert a_log.log_end_offset == 101
    a_log.close()


def test_the_high_watermark_is_told_only_where_it_changed(tmp_path: Path) -> None:
    """LOG-83: it stays within start and end, and may go down."""
    a_log = log(tmp_path, high_watermark_follows_end=False)
    append_batches(a_log, times=3)
    assert [a_log.maybe_update_high_watermark(mark) for mark in (3, 3, 99, -5, -1)] == [3, None, None, 0, None]
    assert a_log.maybe_update_high_watermark(LogOffsetMetadata(2)) == 2
    a_log.close()


def test_a_place_names_its_batch(tmp_path: Path) -> None:
    """LOG-85: batches 0-4 and 5-9; the end is a place, what lies behind it is an offset only."""
    a_log = log(tmp_path)
    append_batches(a_log, 200, 5, times=2)
    places = {8: (5, 0, 200), 5: (5, 0, 200), 4: (0, 0, 0), 10: (10, 0, 400), 11: (11, -1, -1)}
    for offset, place in places.items():
        found = a_log.convert_to_offset_metadata(offset)
        assert (found.message_offset, found.segment_base_offset, found.relative_position_in_segment) == place
    assert a_log.read(8, 1000).fetch_offset_metadata.message_offset == 5
    a_log.update_high_watermark(8)
    assert a_log.fetch_high_watermark().message_offset == 5 == a_log.high_watermark
    a_log.close()


@pytest.mark.parametrize("preallocate", [False, True])
def test_internal_segment_bytes_is_the_size_everywhere(tmp_path: Path, preallocate: bool) -> None:
    """LOG-86: for rolls, for what one append may hold, for the space a new file gets; without a lower bound."""
    a_log = log(tmp_path, internal_segment_bytes=250, segment_bytes=1 << 30, preallocate=preallocate)
    assert files(tmp_path / "topic-0")["00000000000000000000.log"] == (250 if preallocate else 0)
    append_batches(a_log, times=5)
    assert bases(a_log) == [0, 2, 4]
    with pytest.raises(RecordBatchTooLarge, match="a segment holds at most 250"):
        append_batches(a_log, 251)
    append_batches(a_log, 250)
    assert bases(a_log) == [0, 2, 4, 5]
    a_log.close()
    assert config(internal_segment_bytes=14).segment_size == 14


def test_several_producers_in_one_append_of_a_follower(tmp_path: Path) -> None:
    """LOG-62: batches of one producer in order, others between them; each has its own state."""
    a_log = log(tmp_path)
    parts = [(7, 0, 2), (8, 0, 1), (7, 2, 3), (8, 1, 1)]
    data, end = b"", 0
    for producer, sequence, count in parts:
        data += bytes(build_batch(producer, sequence, count, base=end))
        end += count
    a_log.append_as_follower(data, 0)
    assert a_log.log_end_offset == 7
    assert [(one.producer_id, one.last_sequence, one.last_offset) for one in a_log.producers] == [(7, 4, 5), (8, 1, 6)]
    a_log.close()


def test_below_the_log_start_nothing_is_read_though_it_is_there(tmp_path: Path) -> None:
    """LOG-36: the log start alone deletes nothing."""
    a_log = log(tmp_path)
    append_batches(a_log, times=6)
    assert a_log.maybe_increment_log_start_offset(4) and not a_log.maybe_increment_log_start_offset(3)
    assert (a_log.log_start_offset, a_log.size) == (4, 600)
    with pytest.raises(OffsetOutOfRange):
        a_log.read(3, 100)
    with pytest.raises(OffsetOutOfRange):
        a_log.maybe_increment_log_start_offset(7)
    assert a_log.read(4, 1000).records.size == 200
    a_log.close()


def test_an_empty_active_segment_alone_stays(tmp_path: Path) -> None:
    """LOG-44, LOG-47: however short the retention; and a second run finds nothing to do."""
    clock = MockClock(NOW)
    a_log = log(tmp_path, clock=clock, retention_ms=0, retention_bytes=0)
    clock.advance(1_000_000)
    assert a_log.delete_old_segments() == 0 and bases(a_log) == [0]
    append_batches(a_log, times=3)
    assert (a_log.delete_old_segments(), a_log.delete_old_segments()) == (1, 0)
    assert (bases(a_log), a_log.log_start_offset) == ([3], 3)
    a_log.close()


def test_the_snapshot_and_the_epochs_of_deleted_segments_go_with_them(tmp_path: Path) -> None:
    """LOG-45, LOG-69: the log begins at the first segment that is left."""
    clock = MockClock(NOW + 1000)
    a_log = log(tmp_path, clock=clock, retention_ms=50)
    for epoch in range(3):
        a_log.append_as_leader(build_batch(7, epoch), leader_epoch=epoch)
        a_log.roll()
    a_log.append_as_leader(bytearray(sized_batch(100, timestamp=NOW + 999)), leader_epoch=3)
    assert a_log.delete_old_segments() == 3
    assert (a_log.log_start_offset, a_log.leader_epochs) == (3, ((3, 3),))
    assert [name for name in files(tmp_path / "topic-0") if name.endswith(".snapshot")] == [snapshot_file_name(3)]
    assert [one.last_sequence for one in a_log.producers] == [2]  # memory keeps who wrote
    a_log.close()
