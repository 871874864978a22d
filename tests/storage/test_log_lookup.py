"""UnifiedLog: finding an offset by time (LOG-57), also with producers whose clocks differ."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.errors import InvalidRecord
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.format import CompressionType
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import OffsetAndTimestamp
from tests.raw_batches import batch
from tests.storage.logs import NOW, append_batches, log, run, sized_batch


@pytest.fixture
def three_segments(tmp_path: Path) -> UnifiedLog:
    """Three segments of three records, times 10 ms apart, epochs 0, 1, 2."""
    a_log = log(tmp_path, internal_segment_bytes=300, index_interval_bytes=1)
    for n in range(3):
        a_log.append_as_follower(run(n * 3, 3, timestamp=NOW + n * 30, step=10, epoch=n), 9)
    return a_log


def test_special_times(three_segments: UnifiedLog) -> None:
    """LOG-57: -1 the end, -2 and -4 the start, with time -1 and the epoch there; -3 the first with the largest time."""
    assert three_segments.offset_for_time(-1) == OffsetAndTimestamp(9, -1, 2)
    assert three_segments.offset_for_time(-2) == OffsetAndTimestamp(0, -1, 0)
    three_segments.maybe_increment_log_start_offset(4)
    assert three_segments.offset_for_time(-2) == three_segments.offset_for_time(-4) == OffsetAndTimestamp(4, -1, 1)
    assert three_segments.offset_for_time(-3) == OffsetAndTimestamp(8, NOW + 80, 2)
    assert three_segments.offset_for_time(-5) == three_segments.offset_for_time(-6) == OffsetAndTimestamp(-1, -1, -1)
    assert three_segments.offset_for_time(-7) == OffsetAndTimestamp(4, NOW + 40, 1)


@pytest.mark.parametrize(
    ("time", "offset"), [(0, 0), (-1, 0), (1, 1), (20, 2), (21, 3), (59, 6), (60, 6), (80, 8), (81, None)]
)
def test_first_record_at_or_after_a_time(three_segments: UnifiedLog, time: int, offset: int | None) -> None:
    """LOG-57: with its time and the epoch of its batch; None where nothing is that late."""
    found = three_segments.offset_for_time(NOW + time)
    assert found == (None if offset is None else OffsetAndTimestamp(offset, NOW + offset * 10, offset // 3))


def test_records_below_the_log_start_do_not_count(three_segments: UnifiedLog) -> None:
    """LOG-57."""
    three_segments.maybe_increment_log_start_offset(4)
    assert three_segments.offset_for_time(NOW) == OffsetAndTimestamp(4, NOW + 40, 1)


def test_a_segment_whose_late_record_lies_below_the_start_is_passed_over(tmp_path: Path) -> None:
    """LOG-57: its largest time promises a record that is no longer readable; a later segment has one."""
    a_log = log(tmp_path)
    late, early = sized_batch(100, timestamp=NOW + 99, epoch=0), sized_batch(100, base=1, timestamp=NOW, epoch=0)
    a_log.append_as_follower(late + early, 0)
    a_log.roll()
    append_batches(a_log, timestamp=NOW + 50)
    a_log.maybe_increment_log_start_offset(1)
    assert a_log.offset_for_time(NOW + 20) == OffsetAndTimestamp(2, NOW + 50, 0)


def test_an_empty_log_and_one_without_times(tmp_path: Path) -> None:
    """LOG-57: -1 and -2 always have an answer, -3 and a time do not."""
    a_log = log(tmp_path)
    for _ in range(2):
        assert a_log.offset_for_time(-3) is None and a_log.offset_for_time(5) is None
        assert a_log.offset_for_time(-2) is not None
        append_batches(a_log, timestamp=-1)


def test_largest_time_is_that_of_its_first_record(tmp_path: Path) -> None:
    """LOG-57: the earliest segment and record on a tie, inside its batch too."""
    a_log = log(tmp_path)
    rows = [(NOW, b"k", b""), (NOW + 9, b"k", b""), (NOW + 9, b"k", b""), (NOW + 1, b"k", b"")]
    a_log.append_as_leader(bytearray(batch(0, rows, epoch=-1)))
    append_batches(a_log, timestamp=NOW + 9)
    a_log.roll()
    append_batches(a_log, timestamp=NOW + 9)
    assert a_log.offset_for_time(-3) == OffsetAndTimestamp(1, NOW + 9, 0)


def test_answers_are_the_same_after_closing_and_opening(three_segments: UnifiedLog, tmp_path: Path) -> None:
    """LOG-57, SEG-14."""
    times = [-1, -2, -3, NOW, NOW + 33, NOW + 80, NOW + 81]
    before = [three_segments.offset_for_time(time) for time in times]
    three_segments.close()
    again = log(tmp_path, internal_segment_bytes=300, index_interval_bytes=1)
    assert [again.offset_for_time(time) for time in times] == before


@pytest.mark.parametrize(
    ("magic", "codec"),
    [(m, c) for m in (0, 1, 2) for c in CompressionType if m == 2 or c != CompressionType.ZSTD],
)
def test_records_of_every_kind_are_found_by_their_time(tmp_path: Path, magic: int, codec: CompressionType) -> None:
    """LOG-57: a v0 message has no time."""
    builder: RecordsBuilder | LegacyBuilder
    if magic == 2:
        builder = RecordsBuilder(0, compression=codec, leader_epoch=0)
    else:
        builder = LegacyBuilder(0, magic=magic, compression=codec)
    for n in range(10):
        builder.append(NOW + 10 * n, None, b"v")
    a_log = log(tmp_path)
    a_log.append_as_follower(bytes(builder.build()), 0)
    epoch = 0 if magic == 2 else -1
    for time, offset in [(0, 0), (NOW + 30, 3), (NOW + 31, 4), (NOW + 90, 9)]:
        found = None if magic == 0 else OffsetAndTimestamp(offset, NOW + 10 * offset, epoch)
        assert a_log.offset_for_time(time) == found
    assert a_log.offset_for_time(NOW + 91) is None


def test_a_compressed_batch_that_cannot_be_looked_into_is_damage(tmp_path: Path) -> None:
    a_log = log(tmp_path)
    a_log.append_as_follower(sized_batch(100, attributes=1, timestamp=NOW, epoch=0), 0)
    with pytest.raises(InvalidRecord, match="gzip") as error:
        a_log.offset_for_time(NOW)
    assert (error.value.path, error.value.offset) == (a_log.active_segment.records.path, 0)
    assert a_log.offset_for_time(NOW + 1) is None


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(1, 4)), min_size=1, max_size=40),
    st.integers(200, 900),
    st.integers(0, 300),
    st.lists(st.integers(-5, 12_000), min_size=5, max_size=10),
    st.integers(0, 20),
)
@settings(max_examples=60)
def test_two_producers_whose_clocks_differ(
    new_path: Callable[[str], Path],
    turns: list[tuple[bool, int, int]],
    segment_bytes: int,
    interval: int,
    asked: list[int],
    start: int,
) -> None:
    """LOG-57: one is 10 s ahead; the first record in the log at or after the time, as a plain search finds it."""
    a_log = log(new_path("clocks"), internal_segment_bytes=segment_bytes, index_interval_bytes=interval)
    times: list[int] = []
    now = NOW
    for ahead, step, count in turns:
        now += step
        rows = [(now + i + 10_000 * ahead, b"k", b"v") for i in range(count)]
        times += [row[0] for row in rows]
        a_log.append_as_leader(bytearray(batch(0, rows, epoch=-1)))
    first = min(start, len(times))
    a_log.maybe_increment_log_start_offset(first)
    for time in asked:
        expected = next((n for n in range(first, len(times)) if times[n] >= NOW + time), None)
        found = a_log.offset_for_time(NOW + time)
        assert (None if found is None else (found.offset, found.timestamp)) == (
            None if expected is None else (expected, times[expected])
        )
    a_log.close_handlers()
