"""LogSegment: appending with its index entries, reading by offset, whether to roll, times."""

import os
from pathlib import Path

import pytest

from kafkalog._core.batch.scan import scan
from kafkalog._core.log.plan import plan_append
from kafkalog._core.log.roll import ROLL_FOR_INDEX, ROLL_FOR_OFFSET, ROLL_FOR_SIZE, ROLL_FOR_TIME
from kafkalog.config.topic import LogConfig
from kafkalog.errors import IllegalArgument, SegmentOffsetOverflow
from kafkalog.records.memory import MemoryRecords
from kafkalog.storage.segment import NO_TIMESTAMP_YET, NOT_READ, LogSegment
from kafkalog.types import LogOffsetMetadata, OffsetAndTimestamp
from tests.builder import message_v1
from tests.storage.logs import NOW, config, files, offset_entries, run, segment, sized_batch, time_entries


def roll_reason_for(seg: LogSegment, settings: LogConfig, data: bytes, now: int = NOW) -> int:
    """Why `data` would make the segment roll under the settings, 0 for not at all."""
    if seg.tail is NOT_READ:
        seg.become_active()
    return plan_append(scan(data), 0, seg.tail, seg.roll_rules(settings), now, True, False).roll_reason


# Appending and its index entries


def test_rolling_timestamp_is_that_of_the_first_batch_of_several(tmp_path: Path) -> None:
    """SEG-1: also when one append call brings several batches, and again after a reload."""
    seg = segment(tmp_path)
    seg.append(sized_batch(100, timestamp=1010) + sized_batch(100, base=1, timestamp=5010))
    assert seg.first_batch_timestamp == 1010
    seg.append(sized_batch(100, base=2, timestamp=9000))
    assert seg.first_batch_timestamp == 1010
    seg.close()
    assert segment(tmp_path, exists=True).first_batch_timestamp == 1010


def test_time_waited_counts_from_the_first_batch(tmp_path: Path) -> None:
    """SEG-34: the age counts from the first batch at 1010, though the second one is at 5010."""
    seg = segment(tmp_path)
    seg.append(sized_batch(100, timestamp=1010) + sized_batch(100, base=1, timestamp=5010))
    assert seg.tail.rolling_timestamp == 1010


@pytest.mark.parametrize(
    ("base", "largest"),
    [(0, -(2**31)), (0, 2**31), (1, 0), (100, 10), (2**31, 0), (2**31, 2**32)],
)
def test_an_offset_outside_the_segment_is_refused(tmp_path: Path, base: int, largest: int) -> None:
    """SEG-2: and nothing is written; a base is never negative here, so the pair with one cannot occur."""
    seg = segment(tmp_path, base)
    with pytest.raises(SegmentOffsetOverflow) as caught:
        seg.append(sized_batch(100, base=largest))
    assert caught.value.offset == largest and caught.value.path == seg.path
    assert seg.size == os.path.getsize(seg.path) == 0


def test_the_largest_offset_that_fits_is_taken(tmp_path: Path) -> None:
    """SEG-2: the range is closed at 2^31-1."""
    seg = segment(tmp_path, 7)
    seg.append(sized_batch(100, base=7 + 2**31 - 1))
    assert seg.read_next_offset() == 7 + 2**31


def test_index_entry_needs_more_bytes_than_the_interval_before_it(tmp_path: Path) -> None:
    """SEG-3: interval 1, batches of 87, 89 and 78 bytes with last offsets 1, 2, 3: (2, 87), (3, 176)."""
    seg = segment(tmp_path, index_interval_bytes=1)
    for data in (sized_batch(87, 2), sized_batch(89, base=2), sized_batch(78, base=3)):
        seg.append(data)
    assert offset_entries(seg) == [(2, 87), (3, 176)]


def test_index_entries_are_decided_per_batch_within_one_append(tmp_path: Path) -> None:
    """SEG-3: three 77-byte batches in one call, last offsets 1, 3, 5: (3, 77), (5, 154)."""
    seg = segment(tmp_path, index_interval_bytes=1)
    seg.append(b"".join(sized_batch(77, 2, base=base) for base in (0, 2, 4)))
    assert offset_entries(seg) == [(3, 77), (5, 154)]


def test_an_interval_as_long_as_the_batch_indexes_every_second_one(tmp_path: Path) -> None:
    """SEG-3: strictly more bytes are needed, so the first entry is at the third batch."""
    seg = segment(tmp_path, index_interval_bytes=100)
    seg.append(run(0, 7))
    assert offset_entries(seg) == [(2, 200), (4, 400), (6, 600)]


def test_time_entries_come_with_offset_entries_and_hold_the_largest_time(tmp_path: Path) -> None:
    """SEG-4, SEG-5: the largest time so far, with the offset that had it first; a tie changes nothing."""
    seg = segment(tmp_path, index_interval_bytes=1)
    for base, time in enumerate((50, 90, 70, 90, 95)):
        seg.append(sized_batch(100, base=base, timestamp=time))
    assert offset_entries(seg) == [(1, 100), (2, 200), (3, 300), (4, 400)]
    assert time_entries(seg) == [(90, 1), (95, 4)]
    assert (seg.tail.max_timestamp, seg.tail.offset_of_max_timestamp) == (95, 4)


# Reading


def test_read_of_an_empty_segment_finds_nothing(tmp_path: Path) -> None:
    """SEG-6."""
    assert segment(tmp_path, 40).read(40, 300) is None


def test_read_past_the_last_batch_finds_nothing(tmp_path: Path) -> None:
    """SEG-6."""
    seg = segment(tmp_path, 40)
    seg.append(sized_batch(100, 2, base=50))
    assert seg.read(52, 300) is None


@pytest.mark.parametrize(
    ("start", "found", "position"), [(41, 50, 0), (50, 50, 0), (51, 50, 0), (52, 60, 100), (61, 60, 100)]
)
def test_read_begins_at_the_batch_that_holds_the_offset_or_the_next(
    tmp_path: Path, start: int, found: int, position: int
) -> None:
    """SEG-6, SEG-10: inside a gap the next batch, inside a batch the whole of it; the metadata names the batch."""
    seg = segment(tmp_path, 40)
    seg.append(sized_batch(100, 2, base=50))
    seg.append(sized_batch(100, 2, base=60))
    got = seg.read(start, 100)
    assert got is not None
    assert got.fetch_offset_metadata == LogOffsetMetadata(found, 40, position)
    assert scan(got.records.read())[0].base_offset == found


def test_a_read_between_messages_of_v1(tmp_path: Path) -> None:
    """SEG-7: each is a batch of its own, at its own position; a read goes on to what comes after it."""
    seg = segment(tmp_path, 40)
    seg.append(message_v1(50, b"hello") + message_v1(51, b"there"))
    for start, offsets, position in ((41, [50, 51], 0), (50, [50, 51], 0), (51, [51], 39)):
        got = seg.read(start, 300)
        assert got is not None
        assert got.fetch_offset_metadata == LogOffsetMetadata(offsets[0], 40, position)
        found = [record for batch in MemoryRecords(got.records.read()).batches() for record in batch]
        assert [(r.offset, r.value) for r in found] == [(n, {50: b"hello", 51: b"there"}[n]) for n in offsets]


def test_read_size_and_min_one_message(tmp_path: Path) -> None:
    """SEG-8: a whole first batch on demand, else a part that says so; nothing asked for is no incomplete entry."""
    seg = segment(tmp_path)
    seg.append(run(0, 3))
    whole = seg.read(0, 10, -1, True)
    assert whole is not None and whole.records.size == 100 and not whole.first_entry_incomplete
    part = seg.read(0, 10)
    assert part is not None and part.records.size == 10 and part.first_entry_incomplete
    nothing = seg.read(0, 0)
    assert nothing is not None and nothing.records.size == 0 and not nothing.first_entry_incomplete
    with pytest.raises(IllegalArgument):
        seg.read(0, -1)


@pytest.mark.parametrize("bound", [50, 100, None])
def test_read_bounded_at_or_before_its_start_is_empty_with_metadata(tmp_path: Path, bound: int | None) -> None:
    """SEG-9, SEG-10: not None, and the batch is named; the same where the bound's position is not known."""
    seg = segment(tmp_path)
    seg.append(run(0, 3))
    got = seg.read(1, 300, bound)
    assert got is not None and got.records.size == 0
    assert got.fetch_offset_metadata == LogOffsetMetadata(1, 0, 100)


def test_read_ends_at_its_bound(tmp_path: Path) -> None:
    """SEG-9: bytes at or above the bound are not handed out."""
    seg = segment(tmp_path)
    seg.append(run(0, 3))
    got = seg.read(0, 300, 200)
    assert got is not None and got.records.size == 200


# Next offset, times


def test_next_offset_of_empty_filled_and_gapped_segments(tmp_path: Path) -> None:
    """SEG-19: the base, then the last offset plus one, whatever gaps there are and without index entries."""
    seg = segment(tmp_path, 40)
    assert seg.read_next_offset() == 40
    seg.append(sized_batch(100, 3, base=50))
    assert seg.read_next_offset() == 53
    seg.append(sized_batch(100, base=90))
    seg.offset_index.truncate()
    assert seg.read_next_offset() == 91


def test_largest_timestamp_after_a_reload_looks_past_the_last_entry(tmp_path: Path) -> None:
    """SEG-14: max(last time entry, the batches after it)."""
    seg = segment(tmp_path, index_interval_bytes=250)
    for base, time in enumerate((10, 20, 30, 40, 99, 60)):
        seg.append(sized_batch(100, base=base, timestamp=time))
    assert time_entries(seg) == [(40, 3)]
    seg.offset_index.trim_to_valid_size()
    seg.time_index.trim_to_valid_size()
    seg.close_handlers()
    again = segment(tmp_path, exists=True, index_interval_bytes=250)
    assert again.become_active() == 6
    assert (again.largest_timestamp, again.tail.offset_of_max_timestamp) == (99, 4)


def test_largest_timestamp_without_times_is_the_files(tmp_path: Path) -> None:
    """SEG-15: in ms."""
    seg = segment(tmp_path)
    seg.append(sized_batch(100, timestamp=-1))
    os.utime(seg.path, ns=(0, 1_234_567_890_000_000))
    assert seg.largest_timestamp == 1_234_567_890


def test_first_batch_timestamp_of_nothing_is_the_largest_number(tmp_path: Path) -> None:
    """SEG-33: for an empty segment and for a first batch without time."""
    seg = segment(tmp_path)
    assert seg.first_batch_timestamp == NO_TIMESTAMP_YET == 2**63 - 1
    seg.append(sized_batch(100, timestamp=-1))
    assert seg.first_batch_timestamp == 2**63 - 1


@pytest.mark.parametrize(
    ("time", "offset"), [(420, 42), (421, 43), (430, 43), (399, 40), (401, 41), (491, None)]
)
@pytest.mark.parametrize("interval", [1, 4096])
def test_find_offset_by_timestamp(tmp_path: Path, time: int, offset: int | None, interval: int) -> None:
    """SEG-18: times offset * 10 from base 40 on; the first record at or after the time."""
    seg = segment(tmp_path, 40, index_interval_bytes=interval)
    for base in range(40, 50):
        seg.append(sized_batch(100, base=base, timestamp=base * 10, epoch=3))
    found = seg.find_offset_by_timestamp(time, 40)
    assert found == (None if offset is None else OffsetAndTimestamp(offset, offset * 10, 3))


def test_find_offset_by_timestamp_from_a_start_offset_on(tmp_path: Path) -> None:
    """SEG-18: records below the start offset do not count, though their time would do."""
    seg = segment(tmp_path, index_interval_bytes=1)
    for base, time in enumerate((10, 90, 20, 95)):
        seg.append(sized_batch(100, base=base, timestamp=time))
    assert seg.find_offset_by_timestamp(15, 0) == OffsetAndTimestamp(1, 90, -1)
    assert seg.find_offset_by_timestamp(15, 2) == OffsetAndTimestamp(2, 20, -1)
    assert seg.find_offset_by_timestamp(90, 2) == OffsetAndTimestamp(3, 95, -1)


# Whether to roll


def test_rolls_when_the_append_would_pass_the_size(tmp_path: Path) -> None:
    """SEG-17: exactly full is not past it."""
    seg = segment(tmp_path)
    seg.append(run(0, 3))
    assert roll_reason_for(seg, config(internal_segment_bytes=400), sized_batch(100, base=3)) == 0
    assert roll_reason_for(seg, config(internal_segment_bytes=399), sized_batch(100, base=3)) == ROLL_FOR_SIZE


def test_rolls_by_time_only_when_there_is_data(tmp_path: Path) -> None:
    """SEG-16, SEG-17: waited longer than segment.ms; an empty segment never rolls by time."""
    seg = segment(tmp_path)
    settings = config(segment_ms=1000)
    assert roll_reason_for(seg, settings, sized_batch(100, timestamp=NOW), NOW + 10**9) == 0
    seg.append(sized_batch(100, timestamp=NOW))
    assert roll_reason_for(seg, settings, sized_batch(100, base=1, timestamp=NOW + 1000)) == 0
    assert roll_reason_for(seg, settings, sized_batch(100, base=1, timestamp=NOW + 1001)) == ROLL_FOR_TIME


def test_jitter_shortens_the_wait(tmp_path: Path) -> None:
    """SEG-17: waited > segment.ms - jitter."""
    seg = segment(tmp_path)
    seg.append(sized_batch(100, timestamp=NOW))
    seg.roll_jitter_ms = 300
    assert roll_reason_for(seg, config(segment_ms=1000), sized_batch(100, base=1, timestamp=NOW + 700)) == 0
    assert roll_reason_for(seg, config(segment_ms=1000), sized_batch(100, base=1, timestamp=NOW + 701)) == ROLL_FOR_TIME


@pytest.mark.parametrize(("index_bytes", "room"), [(16, 0), (36, 2), (40, 2), (48, 3)])
def test_rolls_when_an_index_is_full(tmp_path: Path, index_bytes: int, room: int) -> None:
    """SEG-17: the time index is full one entry before its end, the offset index at it; whichever comes first."""
    settings = config(segment_index_bytes=index_bytes, index_interval_bytes=1)
    seg = segment(tmp_path, segment_index_bytes=index_bytes, index_interval_bytes=1)
    for base in range(room + 1):
        found = roll_reason_for(seg, settings, sized_batch(100, base=base, timestamp=base + 1))
        assert found == (0 if room else ROLL_FOR_INDEX)
        seg.append(sized_batch(100, base=base, timestamp=base + 1))
    assert len(offset_entries(seg)) == room
    assert roll_reason_for(seg, settings, sized_batch(100, base=9, timestamp=99)) == ROLL_FOR_INDEX


def test_rolls_when_the_offset_does_not_fit(tmp_path: Path) -> None:
    """SEG-17: offsets relative to the base are 0 to 2^31-1, for an empty segment too."""
    seg = segment(tmp_path, 5)
    assert roll_reason_for(seg, config(), sized_batch(100, base=5 + 2**31 - 1)) == 0
    assert roll_reason_for(seg, config(), sized_batch(100, base=5 + 2**31)) == ROLL_FOR_OFFSET


def test_entries_that_one_append_cannot_place_are_left_out(tmp_path: Path) -> None:
    """SEG-17: an append of many batches may need more entries than there are slots; look-ups still find all."""
    seg = segment(tmp_path, segment_index_bytes=36, index_interval_bytes=1)
    seg.append(run(0, 9))
    assert offset_entries(seg) == [(1, 100), (2, 200), (3, 300), (4, 400)]
    assert len(time_entries(seg)) == 2
    assert [seg.translate_offset(n) for n in range(9)] == [(n, n * 100, 100) for n in range(9)]


def test_files_of_a_new_segment(tmp_path: Path) -> None:
    """LOG-1: indexes have their full length, rounded down to whole entries, once they are used."""
    seg = segment(tmp_path, segment_index_bytes=67)
    seg.become_active()
    name = f"{0:020d}"
    assert files(tmp_path) == {f"{name}.index": 64, f"{name}.log": 0, f"{name}.timeindex": 60}
