"""UnifiedLog: when a new segment begins, and what happens to the old one (LOG-13 to LOG-19, LOG-56, LOG-76)."""

import os
from pathlib import Path

import pytest

from kafkalog.errors import IllegalState
from kafkalog.storage.new_segment import plan_roll
from kafkalog.types import LogOffsetMetadata
from tests.mock_time import MockClock, MockScheduler
from tests.storage.logs import NOW, append_batches, bases, files, log, offset_entries, run, sized_batch, time_entries


@pytest.mark.parametrize("fit", [2, 3, 7])
def test_rolls_by_size_when_the_next_append_would_pass_it(tmp_path: Path, fit: int) -> None:
    """LOG-13: exactly `fit` appends go into each segment."""
    a_log = log(tmp_path, internal_segment_bytes=fit * 100 + 50)
    append_batches(a_log, times=fit * 3)
    assert bases(a_log) == [0, fit, 2 * fit]
    assert [segment.size for segment in a_log.segments] == [fit * 100] * 3


def test_rolls_by_the_times_of_the_batches(tmp_path: Path) -> None:
    """LOG-14: first batch's time against the largest of the append; the clock does not matter then."""
    clock = MockClock(NOW)
    a_log = log(tmp_path, clock=clock, segment_ms=1000)
    append_batches(a_log, timestamp=NOW)
    clock.advance(10**6)
    append_batches(a_log, timestamp=NOW + 1000)
    assert bases(a_log) == [0]
    append_batches(a_log, timestamp=NOW + 1001)
    assert bases(a_log) == [0, 2]
    a_log.append_as_follower(run(3, 1, timestamp=5000) + run(4, 1, timestamp=NOW + 99_999), 0)
    assert bases(a_log) == [0, 2, 3]


def test_rolls_by_the_clock_where_batches_have_no_time(tmp_path: Path) -> None:
    """LOG-14: an empty log does not roll, an append of nothing does not roll one."""
    clock = MockClock(NOW)
    a_log = log(tmp_path, clock=clock, segment_ms=1000)
    clock.advance(5000)
    append_batches(a_log, timestamp=-1)
    assert bases(a_log) == [0]
    a_log.append_as_leader(bytearray())
    assert bases(a_log) == [0]
    append_batches(a_log, timestamp=-1)
    assert bases(a_log) == [0, 1]
    clock.advance(1000)
    append_batches(a_log, timestamp=-1)
    assert bases(a_log) == [0, 1]
    clock.advance(1)
    append_batches(a_log, timestamp=-1)
    assert bases(a_log) == [0, 1, 3]


def test_a_follower_rolls_by_the_clock_where_batches_have_no_time(tmp_path: Path) -> None:
    """LOG-14: by its own clock, once for all batches of an append."""
    clock = MockClock(NOW)
    a_log = log(tmp_path, clock=clock, segment_ms=1000)
    a_log.append_as_follower(run(0, 1, timestamp=-1, step=0), 0)
    clock.advance(1000)
    a_log.append_as_follower(run(1, 2, timestamp=-1, step=0), 0)
    assert bases(a_log) == [0]
    clock.advance(1)
    a_log.append_as_follower(run(3, 2, timestamp=-1, step=0), 0)
    assert bases(a_log) == [0, 3]


def test_a_first_time_followed_by_none_never_rolls(tmp_path: Path) -> None:
    """LOG-14: however long it takes."""
    clock = MockClock(NOW)
    a_log = log(tmp_path, clock=clock, segment_ms=1000)
    append_batches(a_log, timestamp=NOW)
    clock.advance(10**9)
    append_batches(a_log, timestamp=-1, times=3)
    assert bases(a_log) == [0]


@pytest.mark.parametrize("offset", [3, 4])
def test_a_segment_that_a_cut_empties_restarts_its_age(tmp_path: Path, offset: int) -> None:
    """LOG-14, SEG-13: as in the reference, also where the cut falls into its first batch."""
    clock = MockClock(NOW)
    a_log = log(tmp_path, clock=clock, segment_ms=1000)
    append_batches(a_log, times=3)
    a_log.roll()
    append_batches(a_log, count=2, timestamp=NOW)
    clock.advance(5000)
    assert a_log.truncate_to(offset) and a_log.active_segment.size == 0
    append_batches(a_log, timestamp=-1)
    clock.advance(1000)
    append_batches(a_log, timestamp=-1)
    assert bases(a_log) == [0, 3]
    clock.advance(1)
    append_batches(a_log, timestamp=-1)
    assert bases(a_log) == [0, 3, a_log.log_end_offset - 1]


def test_jitter_is_chosen_per_segment_and_capped(tmp_path: Path) -> None:
    """LOG-15: 0 up to min(jitter, segment.ms), a new choice for each segment; it is taken off segment.ms."""
    a_log = log(tmp_path, internal_segment_bytes=100, segment_ms=10, segment_jitter_ms=1000)
    append_batches(a_log, times=40)
    jitters = [segment.roll_jitter_ms for segment in a_log.segments]
    assert all(0 <= jitter < 10 for jitter in jitters) and len(set(jitters)) > 1
    assert a_log.active_segment.roll_rules(a_log.config).max_wait_ms == 10 - jitters[-1]


def test_new_base_is_the_first_offset_of_the_append(tmp_path: Path) -> None:
    """LOG-16: not the log end, where a follower's append leaves a gap."""
    a_log = log(tmp_path, internal_segment_bytes=200)
    a_log.append_as_follower(run(0, 2), 0)
    a_log.append_as_follower(run(10, 1), 0)
    assert bases(a_log) == [0, 10] and a_log.log_end_offset == 11


def test_new_base_where_the_first_offset_is_not_known(tmp_path: Path) -> None:
    """LOG-16: a compressed v1 message shows only its last offset: last - 2^31 + 1, but not below the log end."""
    import struct
    import zlib

    def wrapper(offset: int) -> bytes:
        body = struct.pack(">bbq", 1, 1, NOW) + struct.pack(">i", -1) + struct.pack(">i", 4) + b"gzip"
        return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body

    a_log = log(tmp_path)
    a_log.append_as_follower(run(0, 1), 0)
    assert a_log.append_as_follower(wrapper(2**31 + 500), 0).first_offset == -1
    assert bases(a_log) == [0, 501]
    (tmp_path / "small").mkdir()
    small = log(tmp_path / "small", internal_segment_bytes=50)
    for offset in (5, 9):
        small.append_as_follower(wrapper(offset), 0)
    assert bases(small) == [0, 6]


def test_rolling_an_empty_segment_replaces_it(tmp_path: Path) -> None:
    """LOG-17: no duplicate; the old files go, the new ones work."""
    a_log = log(tmp_path)
    old = a_log.active_segment
    assert a_log.roll() is a_log.active_segment is not old
    assert bases(a_log) == [0]
    assert not [name for name in files(tmp_path / "topic-0") if "deleted" in name]
    append_batches(a_log, times=2)
    assert a_log.read(1, 100).records.size == 100


def test_rolling_an_empty_segment_keeps_the_old_files_until_their_time(tmp_path: Path) -> None:
    """LOG-17: renamed to .deleted at once, removed after file.delete.delay.ms."""
    clock = MockClock(NOW)
    scheduler = MockScheduler(clock)
    a_log = log(tmp_path, clock=clock, scheduler=scheduler, file_delete_delay_ms=500)
    a_log.roll()
    gone = [name for name in files(tmp_path / "topic-0") if name.endswith(".deleted")]
    assert len(gone) == 3
    scheduler.advance(499)
    assert [name for name in files(tmp_path / "topic-0") if name.endswith(".deleted")] == gone
    scheduler.advance(1)
    assert not [name for name in files(tmp_path / "topic-0") if name.endswith(".deleted")]


def test_a_segment_is_named_after_its_base_offset(tmp_path: Path) -> None:
    """LOG-17: a roll at 121 makes 00000000000000000121.log, and an opening knows the base by that name."""
    a_log = log(tmp_path)
    append_batches(a_log, times=121)
    a_log.roll()
    append_batches(a_log, timestamp=NOW + 7)
    assert [name for name in files(tmp_path / "topic-0") if name.endswith(".log")] == [
        "00000000000000000000.log",
        "00000000000000000121.log",
    ]
    a_log.close()
    again = log(tmp_path)
    assert bases(again) == [0, 121]
    found = again.read(121, 100).fetch_offset_metadata
    assert (found.message_offset, found.segment_base_offset, found.relative_position_in_segment) == (121, 121, 0)


def test_roll_goes_to_the_log_end_or_higher(tmp_path: Path) -> None:
    """LOG-17: a lower expected offset is no error; a higher one moves the log end (a follower's gap)."""
    a_log = log(tmp_path)
    append_batches(a_log, times=3)
    assert a_log.roll(0).base_offset == 3
    assert a_log.roll(9).base_offset == 9
    assert a_log.log_end_offset == 9
    append_batches(a_log)
    assert a_log.log_end_offset == 10 and bases(a_log) == [0, 3, 9]


def test_a_taken_or_lower_base_is_guarded_against(tmp_path: Path) -> None:
    """LOG-17: cannot happen through `roll`; the plan refuses all the same."""
    a_log = log(tmp_path)
    append_batches(a_log, times=3)
    a_log.roll()
    append_batches(a_log)
    state = a_log.state
    with pytest.raises(IllegalState):
        plan_roll(state.replace(log_end_offset=3, high_watermark=0, recovery_point=0))
    with pytest.raises(IllegalState):
        plan_roll(state.replace(log_end_offset=2, high_watermark=0, recovery_point=0))


def test_a_roll_closes_the_book_on_the_old_segment(tmp_path: Path) -> None:
    """LOG-18, LOG-56: final time entry, indexes trimmed, high watermark moved; new ones with the first append."""
    a_log = log(tmp_path, index_interval_bytes=150)
    a_log.append_as_follower(run(0, 4, timestamp=NOW, step=10), 0)
    old = a_log.active_segment
    assert time_entries(old) == [(NOW + 20, 2)]
    a_log.roll()
    assert time_entries(old) == [(NOW + 20, 2), (NOW + 30, 3)]
    assert offset_entries(old) == [(2, 200)]
    sizes = files(tmp_path / "topic-0")
    assert (sizes[f"{0:020d}.index"], sizes[f"{0:020d}.timeindex"]) == (8, 24)
    assert f"{4:020d}.index" not in sizes
    assert a_log.state.high_watermark_metadata == LogOffsetMetadata(4, 4, 0)
    with pytest.raises(IllegalState):
        old.offset_index.append(9, 900)
    append_batches(a_log)
    sizes = files(tmp_path / "topic-0")
    assert (sizes[f"{4:020d}.index"], sizes[f"{4:020d}.timeindex"]) == (1000, 996)


def test_a_roll_has_the_old_segments_flushed(tmp_path: Path) -> None:
    """LOG-18: by the scheduler, outside the lock; the recovery point follows."""
    clock = MockClock(NOW)
    a_log = log(tmp_path, clock=clock, scheduler=MockScheduler(clock), internal_segment_bytes=200, recovery_point=0)
    append_batches(a_log, times=2)
    assert a_log.recovery_point == 0
    append_batches(a_log)
    assert a_log.recovery_point == 2


def test_stale_files_of_the_new_name_give_way(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """LOG-19: and a warning names each of them."""
    a_log = log(tmp_path)
    append_batches(a_log, times=3)
    directory = tmp_path / "topic-0"
    stale = [directory / f"{3:020d}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex")]
    for path in stale:
        path.write_bytes(b"stale" * 100)
    a_log.roll()
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said == [f"removed stale {path}: a new segment takes its name" for path in stale]
    assert a_log.active_segment.size == 0 and a_log.active_segment.offset_index.entries == 0
    assert not (directory / f"{3:020d}.txnindex").exists()
    append_batches(a_log)
    assert a_log.read(3, 100).records.read()[:8] == (3).to_bytes(8, "big")


def test_a_roll_over_nothing_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """LOG-19."""
    a_log = log(tmp_path)
    append_batches(a_log)
    a_log.roll()
    a_log.roll()
    assert bases(a_log) == [0, 1] and caplog.records == []


def test_a_preallocated_segment_is_trimmed_by_the_roll(tmp_path: Path) -> None:
    """LOG-18, LOG-56: and the next one is preallocated."""
    a_log = log(tmp_path, internal_segment_bytes=1000, preallocate=True)
    append_batches(a_log, times=3)
    assert os.path.getsize(a_log.active_segment.path) == 1000
    a_log.roll()
    sizes = files(tmp_path / "topic-0")
    assert (sizes[f"{0:020d}.log"], sizes[f"{3:020d}.log"]) == (300, 1000)


def test_a_full_index_rolls(tmp_path: Path) -> None:
    """LOG-56: two entries fit the time index of 36 bytes, the third stays free for the final one."""
    a_log = log(tmp_path, segment_index_bytes=36, index_interval_bytes=1)
    for n in range(7):
        append_batches(a_log, timestamp=NOW + n)
    assert bases(a_log) == [0, 3, 6]
    assert [len(time_entries(segment)) for segment in a_log.segments] == [2, 2, 0]


def test_an_index_without_room_rolls_each_time_and_still_appends(tmp_path: Path) -> None:
    """LOG-17: the index is always full, also of the fresh segment (KAFKA-6388)."""
    a_log = log(tmp_path, segment_index_bytes=12)
    append_batches(a_log, times=3)
    assert bases(a_log) == [0, 1, 2] and a_log.log_end_offset == 3


def test_a_change_of_settings_counts_from_the_next_decision(tmp_path: Path) -> None:
    """LOG-76: segment.bytes and segment.ms, for the segment that is active now."""
    a_log = log(tmp_path)
    append_batches(a_log, times=5)
    a_log.config = a_log.config.replace(internal_segment_bytes=300)
    append_batches(a_log)
    assert bases(a_log) == [0, 5]
    a_log.config = a_log.config.replace(internal_segment_bytes=None, segment_ms=10)
    a_log.append_as_leader(bytearray(sized_batch(100, timestamp=NOW + 11)))
    assert bases(a_log) == [0, 5, 6]
