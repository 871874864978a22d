"""UnifiedLog: truncation, a full restart, deletion of the front (LOG-52 to LOG-56)."""

from pathlib import Path

import pytest

from kafkalog.errors import IllegalArgument, OffsetOutOfRange
from tests.mock_time import MockClock, MockScheduler
from tests.storage.logs import NOW, append_batches, bases, files, log, offset_entries, run, time_entries


def test_at_or_above_the_end_nothing_happens(tmp_path: Path) -> None:
    """LOG-52: False; epochs from there on are forgotten."""
    a_log = log(tmp_path)
    a_log.append_as_follower(run(0, 2, epoch=1) + run(2, 1, epoch=2), 9)
    assert a_log.truncate_to(3) is False and a_log.truncate_to(99) is False
    assert (a_log.log_end_offset, a_log.leader_epochs) == (3, ((1, 0), (2, 2)))


def test_below_the_end_segments_go_and_one_is_cut(tmp_path: Path) -> None:
    """LOG-53: end, recovery point and high watermark go down, epochs are cut; reading and appending go on."""
    a_log = log(tmp_path, internal_segment_bytes=400)
    for n in range(4):
        a_log.append_as_follower(run(n * 4, 4, epoch=n), 9)
    a_log.flush()
    assert (bases(a_log), a_log.recovery_point) == ([0, 4, 8, 12], 16)
    assert a_log.truncate_to(6) is True
    assert (bases(a_log), a_log.log_end_offset) == ([0, 4], 6)
    assert (a_log.recovery_point, a_log.high_watermark) == (6, 6)
    assert a_log.leader_epochs == ((0, 0), (1, 4)) and a_log.state.leader_epoch == 1
    assert sorted(name for name in files(tmp_path / "topic-0") if name.endswith(".log")) == [
        f"{0:020d}.log",
        f"{4:020d}.log",
    ]
    with pytest.raises(OffsetOutOfRange):
        a_log.read(7, 100)
    append_batches(a_log)
    assert a_log.read(6, 100).records.size == 100 and a_log.log_end_offset == 7


def test_inside_a_batch_the_whole_batch_goes(tmp_path: Path) -> None:
    """LOG-53: while the end is the offset asked for."""
    a_log = log(tmp_path)
    append_batches(a_log, 120, 5, times=2)
    a_log.truncate_to(7)
    assert (a_log.log_end_offset, a_log.size) == (7, 120)
    append_batches(a_log)
    assert a_log.read(6, 1).fetch_offset_metadata.message_offset == 7


def test_a_cut_below_the_log_start_takes_it_along(tmp_path: Path) -> None:
    """LOG-53."""
    a_log = log(tmp_path)
    append_batches(a_log, times=6)
    a_log.maybe_increment_log_start_offset(4)
    a_log.truncate_to(2)
    assert (a_log.log_start_offset, a_log.log_end_offset, a_log.high_watermark) == (2, 2, 2)


def test_below_the_first_base_the_log_starts_anew(tmp_path: Path) -> None:
    """LOG-54: as truncate_fully_and_start_at; a negative offset is illegal."""
    a_log = log(tmp_path, log_start_offset=100)
    append_batches(a_log, times=3)
    assert a_log.truncate_to(40) is True
    assert (bases(a_log), a_log.log_start_offset, a_log.log_end_offset, a_log.high_watermark) == ([40], 40, 40, 40)
    with pytest.raises(IllegalArgument):
        a_log.truncate_to(-1)


@pytest.mark.parametrize("offset", [0, 3, 7, 10, 500])
def test_start_anew(tmp_path: Path, offset: int) -> None:
    """LOG-55: one empty segment; start, end and high watermark there, no epochs; the log works, indexes too."""
    a_log = log(tmp_path, internal_segment_bytes=300, index_interval_bytes=1)
    append_batches(a_log, times=10)
    a_log.flush()
    a_log.truncate_fully_and_start_at(offset)
    assert bases(a_log) == [offset]
    assert (a_log.log_start_offset, a_log.log_end_offset, a_log.high_watermark) == (offset, offset, offset)
    assert (a_log.recovery_point, a_log.leader_epochs, a_log.size) == (min(10, offset), (), 0)
    assert sorted(files(tmp_path / "topic-0")) == [f"{offset:020d}.log", "leader-epoch-checkpoint"]
    append_batches(a_log, times=3)
    assert {f"{offset:020d}.index", f"{offset:020d}.timeindex"} < set(files(tmp_path / "topic-0"))
    assert offset_entries(a_log.active_segment) == [(offset + 1, 100), (offset + 2, 200)]
    assert a_log.read(offset, 1000).records.size == 300


def test_an_emptied_log_closes_without_a_snapshot(tmp_path: Path) -> None:
    """LOG-55, LOG-84: as in the reference, which writes one at the next opening; a roll moves the recovery point."""
    clock = MockClock(NOW)
    scheduler = MockScheduler(clock)
    a_log = log(tmp_path, clock=clock, scheduler=scheduler)
    append_batches(a_log, times=10)
    a_log.truncate_fully_and_start_at(59)
    assert a_log.recovery_point == 0
    a_log.close()
    assert not [name for name in files(tmp_path / "topic-0") if name.endswith(".snapshot")]
    a_log = log(tmp_path, clock=clock, scheduler=scheduler, recovery_point=0)
    assert "00000000000000000059.snapshot" in files(tmp_path / "topic-0")
    a_log.truncate_fully_and_start_at(70)
    a_log.roll()
    scheduler.tick()
    assert (bases(a_log), a_log.recovery_point) == ([70], 70)


def test_start_anew_with_a_log_start_of_its_own(tmp_path: Path) -> None:
    """LOG-55: never above the end."""
    a_log = log(tmp_path)
    append_batches(a_log, times=10)
    a_log.truncate_fully_and_start_at(7, 4)
    assert (a_log.log_start_offset, a_log.log_end_offset) == (4, 7)


def test_start_anew_keeps_the_old_files_until_their_time(tmp_path: Path) -> None:
    """LOG-55: and a new segment of the same base is not hurt by the delete."""
    clock = MockClock(NOW)
    scheduler = MockScheduler(clock)
    a_log = log(tmp_path, clock=clock, scheduler=scheduler)
    append_batches(a_log, times=3)
    a_log.truncate_fully_and_start_at(0)
    append_batches(a_log)
    assert len([name for name in files(tmp_path / "topic-0") if name.endswith(".deleted")]) == 3
    scheduler.advance(60_000)
    assert not [name for name in files(tmp_path / "topic-0") if name.endswith(".deleted")]
    assert a_log.read(0, 100).records.size == 100


def test_index_lengths_after_cut_and_roll(tmp_path: Path) -> None:
    """LOG-56: active at full length, old ones trimmed; a segment cut to nothing takes appends without rolling."""
    a_log = log(tmp_path, index_interval_bytes=1)
    append_batches(a_log, times=4)
    a_log.roll()
    append_batches(a_log, times=2)
    a_log.truncate_to(0)
    sizes = files(tmp_path / "topic-0")
    assert (sizes[f"{0:020d}.index"], sizes[f"{0:020d}.timeindex"]) == (1000, 996)
    append_batches(a_log, times=3)
    assert bases(a_log) == [0]
    assert offset_entries(a_log.active_segment) == [(1, 100), (2, 200)]


def test_the_times_of_the_cut_records_are_forgotten(tmp_path: Path) -> None:
    """LOG-53, SEG-12: a look-up by time sees what is left."""
    a_log = log(tmp_path, index_interval_bytes=1)
    a_log.append_as_follower(run(0, 6, timestamp=NOW, step=10), 0)
    a_log.truncate_to(3)
    assert a_log.offset_for_time(NOW + 30) is None
    assert a_log.active_segment.largest_timestamp == NOW + 20
    assert time_entries(a_log.active_segment) == [(NOW + 10, 1), (NOW + 20, 2)]


def test_delete_before_gives_up_whole_segments(tmp_path: Path) -> None:
    """LOG-55: LOG-37's cases: 15 records, 5 per segment: start 1 keeps 3 segments, 6 keeps 2, 15 one."""
    a_log = log(tmp_path, internal_segment_bytes=500)
    append_batches(a_log, times=15)
    for start, left in ((1, [0, 5, 10]), (6, [5, 10]), (-1, [10])):
        assert a_log.delete_before(start) == (15 if start < 0 else start)
        assert bases(a_log) == left
    with pytest.raises(OffsetOutOfRange):
        a_log.delete_before(16)
    assert a_log.log_start_offset == 15 and a_log.read(15, 10).records.size == 0


def test_an_epoch_that_a_cut_to_the_end_forgets_begins_again(tmp_path: Path) -> None:
    """LOG-52, EPOCH-5: an epoch that begins at the log end has no record; the next append is its first."""
    a_log = log(tmp_path)
    append_batches(a_log, times=3)
    a_log.delete_before(3)
    assert not a_log.truncate_to(3) and a_log.leader_epochs == ()
    append_batches(a_log)
    assert a_log.leader_epochs == ((0, 3),)
