"""A single look-up reads little: the index says which batch it needs, and what it says is checked."""

from pathlib import Path

import pytest

from kafkalog.storage.fast_lookup import OFFSET_BYTES, WINDOW_BYTES, record_at_offset, record_at_time
from kafkalog.storage.readonly.view import LogView
from tests.counting import Counting
from tests.raw_batches import batches, write_segment

RECORDS = 10


def open_view(directory: Path, parts: list[bytes]) -> tuple[LogView, Counting]:
    """A view of a partition with these batches and the indexes that appending them would make."""
    path = directory / "t-0"
    write_segment(path, 0, parts)
    fs = Counting()
    return LogView(path, fs=fs), fs


def read_bytes(view: LogView, fs: Counting, offset: int) -> list[int]:
    """The sizes of the reads that a record costs; it has to be found."""
    fs.reads.clear()
    record = record_at_offset(view.segments[0], offset, view)
    assert record is not None and record.offset == offset
    return list(fs.reads)


@pytest.mark.parametrize("size", [20, 400, 1500])
def test_a_record_costs_one_read_of_little_more_than_its_batch(tmp_path: Path, size: int) -> None:
    parts = batches(0, 60, RECORDS, size=size)
    whole = len(parts[-1]) + OFFSET_BYTES  # of the next batch, which bears this one out
    view, fs = open_view(tmp_path, parts)
    with view:
        read_bytes(view, fs, 0)  # opens the index
        for offset in range(2 * RECORDS, 50 * RECORDS, 7):
            (read,) = read_bytes(view, fs, offset)
            assert read <= (whole if whole > 8192 else 4 * 4096)


@pytest.mark.parametrize("size", [20, 400, 1500])
def test_the_last_record_costs_one_read(tmp_path: Path, size: int) -> None:
    """Nothing lies behind its batch that could bear it out: the log ends there."""
    view, fs = open_view(tmp_path, batches(0, 60, RECORDS, size=size))
    with view:
        last = 60 * RECORDS - 1
        read_bytes(view, fs, last)  # opens the index
        assert len(read_bytes(view, fs, last)) == 1
        found = record_at_offset(view.segments[0], last, view)
        assert found is not None and view.segments[0].time_index.entries
        fs.reads.clear()
        assert record_at_time(view.segments[0], found.timestamp, 0, view.segments) == (last, found.timestamp, 0)
        assert len(fs.reads) == 1


@pytest.mark.parametrize("size", [9000, 200_000])
def test_a_batch_larger_than_a_window_is_read_whole(tmp_path: Path, size: int) -> None:
    parts = batches(0, 20, RECORDS, size=size // RECORDS * 4)
    view, fs = open_view(tmp_path, parts)
    with view:
        for offset in range(2 * RECORDS, 20 * RECORDS, 3):
            assert max(read_bytes(view, fs, offset)) <= max(len(parts[-1]) + OFFSET_BYTES, WINDOW_BYTES)


def test_small_batches_between_large_ones_take_a_second_read(tmp_path: Path) -> None:
    """Two entries far apart: the batch looked for may lie before that of the second one."""
    parts = [batches(n, 1, 1, size=9000 if n % 2 else 10)[0] for n in range(80)]
    view, fs = open_view(tmp_path, parts)
    with view:
        read_bytes(view, fs, 0)
        for offset in range(80):
            assert len(read_bytes(view, fs, offset)) <= 2


@pytest.mark.parametrize("size", [20, 1500])
@pytest.mark.parametrize("by", [0, 1, -3])
def test_a_time_costs_one_read(tmp_path: Path, size: int, by: int) -> None:
    """SEG-18: at the time of an entry, and between two of them."""
    parts = batches(0, 60, RECORDS, size=size)
    view, fs = open_view(tmp_path, parts)
    with view:
        segment = view.segments[0]
        entries = [segment.time_index.entry(n) for n in range(segment.time_index.entries - 2)]
        assert entries and segment.offset_index.entries
        for timestamp, offset in entries[1:]:
            fs.reads.clear()
            assert record_at_time(segment, timestamp + by, 0, view.segments) == (offset + by, timestamp + by, 0)
            assert len(fs.reads) == 1
            assert fs.reads[0] <= max(2 * len(parts[-1]) + OFFSET_BYTES, 4 * 4096)


def test_a_file_that_was_renamed_since_the_listing_is_looked_for_in_another_way(tmp_path: Path) -> None:
    """A broker that swaps a cleaned segment in does that: the fast look-up cannot decide then, and reports it."""
    write_segment(tmp_path / "t-0", 3 * RECORDS, batches(3 * RECORDS, 3, RECORDS))
    view, _ = open_view(tmp_path, batches(0, 3, RECORDS))
    with view:
        segment = view.segments[0]
        log = min((tmp_path / "t-0").glob("*.log"))
        log.rename(log.with_suffix(".log.moved"))
        assert record_at_offset(segment, 0, view) is None
        assert record_at_time(segment, 0, 0, view.segments) is None
