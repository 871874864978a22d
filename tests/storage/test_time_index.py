"""TimeIndex: the behaviours TIDX-1 to TIDX-7, and what it shares with the offset index."""

import errno
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalog._core.log.values import TimestampOffset
from kafkalog.errors import (
    CorruptIndex,
    IllegalArgument,
    IllegalState,
    IndexOffsetOverflow,
    InvalidOffset,
    LogClosed,
    StorageError,
)
from kafkalog.storage.index.time_index import TimeIndex
from tests.faults import FaultFS
from tests.tiny_disk import run_on_tiny_disk

BASE, ENTRIES = 45, 30
SIZE = 12 * ENTRIES


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000045.timeindex"


@pytest.fixture
def index(path: Path) -> Iterator[TimeIndex]:
    made = TimeIndex(path, BASE, SIZE)
    yield made
    made.close_handler()


def fill(index: TimeIndex, count: int) -> None:
    """Entries (10, 55), (20, 65) and so on."""
    for i in range(1, count + 1):
        index.maybe_append(i * 10, BASE + i * 10)


def pairs(index: TimeIndex) -> list[tuple[int, int]]:
    return [tuple(index.entry(n)) for n in range(index.entries)]  # type: ignore[misc]


def entry_bytes(*rows: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *row) for row in rows)


def test_lookup(index: TimeIndex) -> None:
    """TIDX-1"""
    assert index.lookup(100) == TimestampOffset(-1, 45)
    fill(index, ENTRIES - 1)
    wanted = {9: (-1, 45), 10: (10, 55), 25: (20, 65), 30: (30, 75), 10**15: (290, 335), -1: (-1, 45)}
    for target, expected in wanted.items():
        assert tuple(index.lookup(target)) == expected
    timestamps, offsets = index.lookup_many(list(wanted))
    assert list(zip(timestamps, offsets, strict=True)) == list(wanted.values())


def test_full_one_entry_early(index: TimeIndex) -> None:
    """TIDX-2"""
    fill(index, ENTRIES - 2)
    assert not index.is_full
    index.maybe_append(1000, 1000)
    assert index.is_full
    assert (index.entries, index.max_entries) == (29, 30)


def test_the_slot_of_the_final_entry(index: TimeIndex) -> None:
    """TIDX-3"""
    fill(index, ENTRIES - 1)
    with pytest.raises(IllegalArgument, match=r"full time index \(size = 29\)"):
        index.maybe_append(1000, 1000)
    index.maybe_append(1000, 1000, skip_full_check=True)
    assert index.last_entry == TimestampOffset(1000, 1000)
    with pytest.raises(IllegalState, match="no free slot"):
        index.maybe_append(1001, 1001, skip_full_check=True)
    assert index.entries == ENTRIES


def test_what_may_follow_what(index: TimeIndex) -> None:
    """TIDX-4"""
    index.maybe_append(100, 60)
    with pytest.raises(InvalidOffset, match=r"offset \(59\) to slot 1 .*\(60\)") as caught:
        index.maybe_append(101, 59)
    assert (caught.value.path, caught.value.offset) == (index.path, 59)
    with pytest.raises(IllegalState, match=r"timestamp \(99\) to slot 1 .*\(100\)"):
        index.maybe_append(99, 61)
    for offset in (60, 61, 10**6):
        index.maybe_append(100, offset)
    assert pairs(index) == [(100, 60)]
    index.maybe_append(101, 60)
    assert pairs(index) == [(100, 60), (101, 60)]


def test_what_a_write_brings_is_added_at_once(index: TimeIndex) -> None:
    """As one by one: none for a batch without a time, or with that of the last entry."""
    index.extend([(59, 0, -1, -1), (60, 10, 100, 60), (61, 20, -1, 60), (62, 30, 101, 62)])
    assert pairs(index) == [(100, 60), (101, 62)]
    index.extend([(63, 40, 101, 63), (64, 50, 102, 64)])
    index.extend([(65, 60, -1, 64)])
    assert pairs(index) == [(100, 60), (101, 62), (102, 64)] and index.last_entry == TimestampOffset(102, 64)
    with pytest.raises(IllegalState, match="no larger than the last timestamp"):
        index.extend([(66, 70, 103, 66), (67, 80, 99, 67)])
    assert index.last_entry == TimestampOffset(103, 66)
    with pytest.raises(IllegalArgument, match=r"full time index \(size = 29\)"):
        index.extend([(70 + n, 90, 200 + n, 70 + n) for n in range(26)])
    assert index.entries == ENTRIES - 1


def test_a_write_that_may_not_fit_adds_only_the_batches_with_a_time(index: TimeIndex) -> None:
    index.extend([(50 + n, 90, {0: 0, 39: 7}.get(n, -1), 50 + n) for n in range(40)])
    assert pairs(index) == [(0, 50), (7, 89)]


def test_no_timestamp_is_no_entry(index: TimeIndex) -> None:
    """TIDX-4: -1 is what an empty index has as its last timestamp."""
    index.maybe_append(-1, 50)
    assert index.entries == 0


def test_relative_offset_overflow(index: TimeIndex) -> None:
    with pytest.raises(IndexOffsetOverflow):
        index.maybe_append(5, BASE + 2**31)
    with pytest.raises(IndexOffsetOverflow):
        index.maybe_append(5, BASE - 1)
    assert index.entries == 0
    index.maybe_append(5, BASE + 2**31 - 1)
    assert index.last_entry == TimestampOffset(5, BASE + 2**31 - 1)


def test_truncate_to(index: TimeIndex) -> None:
    """TIDX-5, TIDX-7: what is kept of the last entry follows."""
    fill(index, 10)
    index.truncate_to(10**6)
    assert index.entries == 10
    index.truncate_to(75)
    assert (index.entries, index.last_entry) == (2, TimestampOffset(20, 65))
    index.truncate_to(66)
    assert index.entries == 2
    index.truncate_to(55)
    assert (index.entries, index.last_entry) == (0, TimestampOffset(-1, BASE))
    assert index.length == SIZE
    index.maybe_append(3, 46)
    assert pairs(index) == [(3, 46)]


def test_truncate_to_entries_that_share_an_offset(index: TimeIndex) -> None:
    """TIDX-5"""
    for timestamp in (10, 20, 30):
        index.maybe_append(timestamp, 55)
    index.maybe_append(40, 56)
    index.truncate_to(56)
    assert index.entries == 3
    index.truncate_to(55)
    assert index.entries == 0


def test_sanity_check(path: Path) -> None:
    """TIDX-6"""
    bad = {
        entry_bytes((100, 5), (50, 6)): "last timestamp is 50 which is less than the first timestamp 100",
        entry_bytes((100, -1)): "last offset is 44 which is less than the base offset 45",
        entry_bytes((100, 1)) + b"12": "found 14 bytes",
    }
    for content, message in bad.items():
        path.write_bytes(content)
        with pytest.raises(CorruptIndex, match=message) as caught:
            TimeIndex(path, BASE, SIZE).sanity_check()
        assert caught.value.path == str(path)
    for good in (b"", entry_bytes((100, 0)), entry_bytes((1, 5), (1, 3)), bytes(36)):
        path.write_bytes(good)
        TimeIndex(path, BASE, SIZE).sanity_check()


@pytest.mark.parametrize("clear", [TimeIndex.truncate, TimeIndex.reset, lambda index: index.resize(0)])
def test_the_last_entry_after_clearing(index: TimeIndex, clear: Callable[[TimeIndex], object]) -> None:
    """TIDX-7"""
    fill(index, 5)
    assert index.last_entry == TimestampOffset(50, 95)
    clear(index)
    assert index.last_entry == TimestampOffset(-1, BASE)
    assert index.lookup(10**9) == TimestampOffset(-1, BASE)


def test_the_last_entry_after_opening_and_resizing(index: TimeIndex, path: Path) -> None:
    """TIDX-7"""
    fill(index, 5)
    index.close()
    assert os.path.getsize(path) == 60
    again = TimeIndex(path, BASE, SIZE)
    assert again.last_entry == TimestampOffset(50, 95)
    again.resize(30)
    assert again.last_entry == TimestampOffset(20, 65)
    again.resize(SIZE)
    again.maybe_append(21, 65)
    assert pairs(again) == [(10, 55), (20, 65), (21, 65)]
    again.close()


def test_sixty_seven_bytes_are_sixty(path: Path) -> None:
    index = TimeIndex(path, BASE, 67)
    assert (index.length, index.max_entries, os.path.getsize(path)) == (60, 5, 60)
    index.close()
    assert os.path.getsize(path) == 0


def test_entry(index: TimeIndex) -> None:
    fill(index, 2)
    assert index.entry(1) == TimestampOffset(20, 65)
    with pytest.raises(IllegalArgument, match="the 2th entry"):
        index.entry(2)
    with pytest.raises(IndexError):
        index.entry(-1)


def test_read_only_after_a_roll(index: TimeIndex) -> None:
    """TIDX-3: a repeat of the final entry is accepted; another one is an error."""
    fill(index, 3)
    index.trim_to_valid_size()
    index.make_read_only()
    index.maybe_append(30, 75, skip_full_check=True)
    for timestamp, offset in ((31, 76), (30, 74), (29, 76)):
        with pytest.raises(IllegalState, match="read-only"):
            index.maybe_append(timestamp, offset, skip_full_check=True)
    index.resize(SIZE)
    index.maybe_append(31, 76)
    assert index.last_entry == TimestampOffset(31, 76)


def test_closed(index: TimeIndex) -> None:
    index.close()
    uses: list[Callable[[], object]] = [
        lambda: index.lookup(5), lambda: index.last_entry, lambda: index.maybe_append(1, 50),
        lambda: index.entry(0), lambda: index.is_full, lambda: index.truncate_to(5), index.sanity_check,
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(LogClosed, match="time index is closed"):
            use()
    index.close()


def test_no_space(path: Path) -> None:
    fs = FaultFS()
    index = TimeIndex(path, BASE, SIZE, fs=fs)
    fs.fail("posix_fallocate")
    with pytest.raises(StorageError) as caught:
        index.maybe_append(10, 55)
    assert (caught.value.errno, caught.value.path) == (errno.ENOSPC, str(path))
    assert (index.entries, index.last_entry) == (0, TimestampOffset(-1, BASE))
    fs.heal()
    index.maybe_append(10, 55)
    assert pairs(index) == [(10, 55)]
    index.close()


FILL_THE_DISK = """
import errno
from kafkalog.errors import StorageError
from kafkalog.storage.index.time_index import TimeIndex

index = TimeIndex("00000000000000000000.timeindex", 0, 10 << 20)
n = 0
try:
    while True:
        index.maybe_append(n, n)
        n += 1
except StorageError as error:
    assert error.errno == errno.ENOSPC, error
assert n == index.entries and n >= (1 << 20) // 12 - 2 * 65536 // 12, n
assert index.lookup(10**15).timestamp == n - 1
assert list(index.lookup_many(range(n))[1]) == list(range(n))
index.close()
print("alive")
"""


def test_a_really_full_disk_does_not_kill_the_interpreter() -> None:
    run = run_on_tiny_disk(FILL_THE_DISK)
    assert (run.returncode, run.stdout, run.stderr) == (0, "alive\n", "")
