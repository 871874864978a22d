"""OffsetIndex: the behaviours IDX-1 to IDX-17; what a full disk does to it is in test_index_trouble."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from kafkalog._core.log.values import OffsetPosition
from kafkalog.errors import (
    CorruptIndex,
    IllegalArgument,
    IllegalState,
    IndexOffsetOverflow,
    InvalidOffset,
    LogClosed,
    StorageError,
)
from kafkalog.storage.index.offset_index import OffsetIndex
from kafkalog.storage.readonly.index import OffsetIndexView
from tests.descriptors import open_descriptors
from tests.storage.index_entries import entry_bytes, fill, pairs
from tests.unprivileged import plain_directory, unprivileged

BASE, SIZE = 45, 240


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000045.index"


@pytest.fixture
def index(path: Path) -> Iterator[OffsetIndex]:
    made = OffsetIndex(path, BASE, SIZE)
    yield made
    made.close_handler()


def test_empty(index: OffsetIndex) -> None:
    """IDX-1"""
    for target in (0, 45, 46, 2**40):
        assert index.lookup(target) == OffsetPosition(45, 0)
    assert index.last_offset == BASE
    assert (index.entries, index.size_in_bytes, index.max_entries, index.length) == (0, 0, 30, 240)
    index.sanity_check()


def test_lookup(index: OffsetIndex) -> None:
    """IDX-2: the greatest entry at or below the target."""
    for offset, position in ((50, 100), (60, 200), (61, 300)):
        index.append(offset, position)
    wanted = {49: (45, 0), 50: (50, 100), 59: (50, 100), 60: (60, 200), 61: (61, 300), 10**9: (61, 300), -1: (45, 0)}
    for target, expected in wanted.items():
        assert tuple(index.lookup(target)) == expected
    offsets, positions = index.lookup_many(np.array(list(wanted)))
    assert list(zip(offsets, positions, strict=True)) == list(wanted.values())


@pytest.mark.parametrize("offset", [50, 51])
def test_an_offset_must_be_greater_than_the_last(index: OffsetIndex, offset: int) -> None:
    """IDX-3"""
    index.append(51, 0)
    with pytest.raises(InvalidOffset, match=rf"append an offset {offset} to position 1 .*\(51\)") as caught:
        index.append(offset, 1)
    assert (caught.value.path, caught.value.offset) == (index.path, offset)
    assert pairs(index) == [(51, 0)]
    index.append(52, 9)
    assert index.last_offset == 52


def test_what_a_write_brings_is_added_at_once(index: OffsetIndex) -> None:
    """As one by one; where one of them is refused, those before it are there."""
    index.extend([(46, 10, -1, -1), (48, 20, -1, -1)])
    assert (pairs(index), index.last_offset) == ([(46, 10), (48, 20)], 48)
    for refused, error in (((48, 40), InvalidOffset), ((49, -1), IllegalArgument), ((44, 40), InvalidOffset)):
        with pytest.raises(error):
            index.extend([(*refused, -1, -1)])
    with pytest.raises(IndexOffsetOverflow):
        index.extend([(49, 30, -1, -1), (BASE + 2**31, 40, -1, -1)])
    assert (pairs(index), index.last_offset) == ([(46, 10), (48, 20), (49, 30)], 49)
    with pytest.raises(IllegalArgument, match=r"full index \(size = 30\)"):
        index.extend([(50 + n, 40 + n, -1, -1) for n in range(28)])
    assert (index.entries, index.last_offset) == (30, 76)


def test_full(index: OffsetIndex) -> None:
    """IDX-4"""
    fill(index, range(46, 75))
    assert not index.is_full
    index.append(75, 1000)
    assert index.is_full
    with pytest.raises(IllegalArgument, match=r"full index \(size = 30\)"):
        index.append(76, 1001)
    assert (index.entries, index.last_offset) == (30, 75)


def test_entry(index: OffsetIndex) -> None:
    """IDX-5"""
    fill(index, range(50, 53))
    assert index.entry(2) == OffsetPosition(52, 20)
    for n in (3, 30, 2**31):
        with pytest.raises(IllegalArgument, match=f"the {n}th entry .* 3"):
            index.entry(n)
    with pytest.raises(IndexError):
        index.entry(-1)


@pytest.mark.parametrize("base", [0, 45, 2**40])
def test_relative_offset_overflow(tmp_path: Path, base: int) -> None:
    """IDX-6: base 0 takes 2147483647, not 2147483648."""
    index = OffsetIndex(tmp_path / "x", base, SIZE)
    for offset in (base - 1, base + 2**31, base + 2**40):
        assert not index.can_append_offset(offset)
        with pytest.raises(IndexOffsetOverflow, match=str(offset)) as caught:
            index.append(offset, 5)
        assert caught.value.path == index.path
        assert index.entries == 0
    assert index.can_append_offset(base)
    assert index.can_append_offset(base + 2**31 - 1)
    index.append(base + 2**31 - 1, 2**31 - 1)
    assert index.lookup(2**62) == OffsetPosition(base + 2**31 - 1, 2**31 - 1)
    index.close()
    assert (tmp_path / "x").read_bytes() == b"\x7f\xff\xff\xff" * 2


@pytest.mark.parametrize("position", [-1, 2**31])
def test_a_position_outside_a_segment_file(index: OffsetIndex, position: int) -> None:
    with pytest.raises(IllegalArgument, match=str(position)):
        index.append(46, position)
    assert index.entries == 0


def test_fetch_upper_bound_offset(index: OffsetIndex) -> None:
    """IDX-7"""
    first = OffsetPosition(45, 0)
    assert index.fetch_upper_bound_offset(first, 5) is None
    rows = [OffsetPosition(o, p) for o, p in ((45, 0), (46, 10), (47, 23), (48, 37))]
    for row in rows:
        index.append(row.offset, row.position)
    cases = [(0, 5, 46), (0, 10, 46), (0, 22, 47), (0, 23, 47), (1, 24, 48), (3, 1, None), (0, 200, None)]
    for n, size, expected in cases:
        found = index.fetch_upper_bound_offset(rows[n], size)
        assert (found and found.offset) == expected, (n, size)


def test_the_upper_bound_at_the_first_entry_is_the_second(index: OffsetIndex) -> None:
    """As in the reference, whose search does not find a match with the first entry; it lists more, never less."""
    index.append(46, 10)
    assert index.fetch_upper_bound_offset(OffsetPosition(45, 0), 10) is None
    index.append(47, 23)
    assert index.fetch_upper_bound_offset(OffsetPosition(45, 0), 10) == OffsetPosition(47, 23)
    assert index.fetch_upper_bound_offset(OffsetPosition(45, 0), 9) == OffsetPosition(46, 10)


def test_truncate_to(index: OffsetIndex) -> None:
    """IDX-8: entries 1..9 above the base."""
    fill(index, range(BASE + 1, BASE + 10))
    for keep_below, last in ((12, 9), (10, 9), (9, 8), (5, 4)):
        index.truncate_to(BASE + keep_below)
        assert index.last_offset == BASE + last
        assert (index.entries, index.length) == (last, SIZE)
    index.append(BASE + 5, 77)
    assert index.entry(4) == OffsetPosition(BASE + 5, 77)
    index.truncate()
    assert (index.entries, index.last_offset, index.length) == (0, BASE, SIZE)
    with pytest.raises(IllegalArgument):
        index.truncate_to_entries(-1)


def test_a_thousand_entries_cut_to_three_hundred(path: Path) -> None:
    """IDX-8: last offset, last position and the next append are right; the file keeps its length until trimmed."""
    index = OffsetIndex(path, BASE, 8192)
    fill(index, range(50, 1050))
    index.truncate_to_entries(300)
    assert (index.entries, index.last_offset) == (300, 349)
    assert index.entry(299) == OffsetPosition(349, 2990)
    assert index.lookup(10**6) == OffsetPosition(349, 2990)
    assert index.fetch_upper_bound_offset(OffsetPosition(349, 2990), 1) is None
    assert os.path.getsize(path) == index.length == 8192
    index.append(350, 3333)
    assert index.entry(300) == OffsetPosition(350, 3333)
    index.truncate_to_entries(500)
    assert index.entries == 301
    assert os.path.getsize(path) == 8192
    index.trim_to_valid_size()
    assert os.path.getsize(path) == index.length == 301 * 8
    index.close()
    assert pairs(OffsetIndex(path, BASE, 8192)) == [*((50 + i, 10 * i) for i in range(300)), (350, 3333)]


def test_close_and_reopen(index: OffsetIndex, path: Path) -> None:
    """IDX-9"""
    fill(index, range(50, 53))
    rows = pairs(index)
    index.close()
    assert os.path.getsize(path) == 24
    again = OffsetIndex(path, BASE, SIZE)
    assert pairs(again) == rows
    assert (again.is_full, again.max_entries, again.last_offset) == (True, 3, 52)
    with pytest.raises(IllegalArgument, match="full"):
        again.append(60, 60)
    assert again.resize(SIZE)
    again.append(60, 60)
    assert pairs(again) == [*rows, (60, 60)]
    assert (again.length, os.path.getsize(path)) == (SIZE, SIZE)
    again.close()


def test_resize(index: OffsetIndex, path: Path) -> None:
    """IDX-10, and what resizing up adds: zeros (format.md section 14, B1)."""
    fill(index, range(50, 60))
    assert not index.resize(SIZE)
    assert not index.resize(SIZE + 7)
    assert index.resize(47)
    assert pairs(index) == [(50, 0), (51, 10), (52, 20), (53, 30), (54, 40)]
    assert (index.length, index.last_offset, os.path.getsize(path)) == (40, 54, 40)
    assert index.resize(200_000)
    assert index.entries == 5
    assert path.read_bytes()[40:] == bytes(200_000 - 40)
    index.append(55, 50)
    assert index.lookup(99) == OffsetPosition(55, 50)
    assert index.resize(0)
    assert (index.entries, index.length, index.is_full) == (0, 0, True)
    assert index.lookup(99) == OffsetPosition(45, 0)
    with pytest.raises(IllegalArgument, match="2 GiB"):
        index.resize(2**31)
    index.reset()
    assert (index.entries, index.length) == (0, SIZE)


@pytest.mark.parametrize("size", [7, 0, -1])
def test_a_new_file_without_room_for_one_entry(path: Path, size: int) -> None:
    """IDX-11"""
    with pytest.raises(IllegalArgument, match=f"Invalid max index size: {size}"):
        OffsetIndex(path, BASE, size)
    assert os.path.getsize(path) == 0


def test_sixty_seven_bytes_are_sixty_four(path: Path) -> None:
    index = OffsetIndex(path, BASE, 67)
    assert (index.length, index.max_entries, os.path.getsize(path)) == (64, 8, 64)
    index.close()


@pytest.mark.on_disk
def test_ten_mebibytes_take_no_room_before_they_are_used(path: Path) -> None:
    index = OffsetIndex(path, BASE, 10 << 20)
    assert os.path.getsize(path) == 10 << 20
    assert os.stat(path).st_blocks * 512 <= 4096
    index.append(46, 1)
    assert os.stat(path).st_blocks * 512 <= 128 << 10
    index.close()
    assert os.path.getsize(path) == 8


def test_sanity_check(path: Path) -> None:
    """IDX-12"""
    path.write_bytes(entry_bytes((-1, 0)))
    with pytest.raises(CorruptIndex, match="44 which is less than the base offset 45") as caught:
        OffsetIndex(path, BASE, SIZE).sanity_check()
    assert caught.value.path == str(path)
    path.write_bytes(entry_bytes((1, 5)) + b"123")
    with pytest.raises(CorruptIndex, match="found 11 bytes"):
        OffsetIndex(path, BASE, SIZE).sanity_check()
    for good in (b"", entry_bytes((0, 5)), entry_bytes((1, 1), (2, 2))):
        path.write_bytes(good)
        OffsetIndex(path, BASE, SIZE).sanity_check()


def test_an_existing_file_has_as_many_entries_as_fit(path: Path) -> None:
    """IDX-13: also where they are zeros, and where the last one is cut."""
    path.write_bytes(entry_bytes((5, 9)) + bytes(16) + b"123")
    index = OffsetIndex(path, BASE, SIZE)
    assert (index.entries, index.max_entries, index.length, index.last_offset) == (3, 3, 27, 45)
    assert pairs(index) == [(50, 9), (45, 0), (45, 0)]
    index.close()
    assert os.path.getsize(path) == 24


def test_warm_and_cold_halves(path: Path) -> None:
    """IDX-14: the same answers in the last 8192 bytes and before them."""
    index = OffsetIndex(path, 0, 100_000)
    fill(index, range(2, 10_002, 2), step=7)
    for target in (2, 3, 7951, 7952, 7953, 7954, 7955, 10_000, 10_001):
        assert tuple(index.lookup(target)) == (target // 2 * 2, 7 * (target // 2 - 1)), target
    targets = range(2, 10_002)
    assert list(index.lookup_many(targets)[0]) == [t // 2 * 2 for t in targets]
    index.close()


def test_rename_and_delete(index: OffsetIndex, path: Path, tmp_path: Path) -> None:
    """IDX-15"""
    fill(index, range(50, 53))
    target = tmp_path / "renamed.index.deleted"
    index.rename_to(target)
    assert index.path == str(target)
    assert not path.exists()
    assert index.lookup(51) == OffsetPosition(51, 10)
    index.append(60, 60)
    assert target.read_bytes()[24:32] == entry_bytes((15, 60))
    with pytest.raises(StorageError) as caught:
        index.rename_to(tmp_path / "missing" / "x")
    assert caught.value.errno == errno.ENOENT
    assert index.path == str(target)
    assert index.delete_if_exists()
    assert not target.exists()
    assert not index.delete_if_exists()
    with pytest.raises(LogClosed):
        index.lookup(51)


@pytest.mark.parametrize("close", [OffsetIndex.close, OffsetIndex.close_handler, OffsetIndex.delete_if_exists])
def test_after_closing_any_use_is_an_error(index: OffsetIndex, close: Callable[[OffsetIndex], object]) -> None:
    """IDX-16, IDX-5"""
    fill(index, range(50, 53))
    lookup = index.lookup
    close(index)
    uses: list[Callable[[], object]] = [
        lambda: lookup(50), lambda: index.lookup(50), lambda: index.lookup_many([50]), lambda: index.entry(0),
        lambda: index.entries, lambda: index.last_offset, lambda: index.is_full, lambda: index.append(70, 70),
        lambda: index.truncate_to(50), lambda: index.truncate(), lambda: index.resize(80), index.reset,
        index.trim_to_valid_size, index.flush, index.make_read_only, index.sanity_check, index.reserve,
        lambda: index.fetch_upper_bound_offset(OffsetPosition(45, 0), 1), lambda: index.size_in_bytes,
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(LogClosed, match="offset index is closed"):
            use()
    assert index.closed
    index.close()
    index.close_handler()
    assert "closed" in repr(index)


def test_close_handler_does_not_trim(index: OffsetIndex, path: Path) -> None:
    """IDX-16"""
    index.append(46, 1)
    index.close_handler()
    assert os.path.getsize(path) == SIZE


def test_a_file_that_may_not_be_written(index: OffsetIndex) -> None:
    """IDX-17: a view looks up and changes nothing; an index that may write is refused by name."""
    fill(index, range(50, 53))
    index.close()
    with plain_directory() as directory:
        file = directory / "x.index"
        file.write_bytes(Path(index.path).read_bytes())
        file.chmod(0o444)
        with unprivileged():
            view = OffsetIndexView(file, BASE)
            assert view.lookup(51) == OffsetPosition(51, 10)
            view.sanity_check()
            with pytest.raises(StorageError) as caught:
                OffsetIndex(file, BASE, SIZE)
            assert (caught.value.errno, caught.value.path) == (errno.EACCES, str(file))
            missing = OffsetIndexView(directory / "missing", BASE)
            assert missing.problem is not None and not (directory / "missing").exists()
        assert os.path.getsize(file) == 24


def test_a_directory_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught:
        OffsetIndex(tmp_path, BASE, SIZE)
    assert caught.value.errno == errno.EISDIR


def test_an_absurd_length(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(CorruptIndex, match="2 GiB"):
        OffsetIndex(path, BASE, SIZE)


def test_read_only_after_a_roll(index: OffsetIndex, path: Path) -> None:
    fill(index, range(50, 53))
    index.trim_to_valid_size()
    index.make_read_only()
    assert index.read_only
    for write in (lambda: index.append(60, 60), index.reserve):
        with pytest.raises(IllegalState, match="read-only"):
            write()
    assert index.lookup(60) == OffsetPosition(52, 20)
    index.flush()
    index.truncate_to(52)
    with pytest.raises(IllegalState):
        index.append(60, 60)
    assert index.resize(SIZE), "room again: the segment is the active one"
    index.append(60, 60)
    assert pairs(index) == [(50, 0), (51, 10), (60, 60)]
    index.close()
    assert path.read_bytes() == entry_bytes((5, 0), (6, 10), (15, 60))


def test_an_index_that_only_reads_holds_no_descriptor(path: Path) -> None:
    OffsetIndex(path, BASE, 80).close_handler()
    before = open_descriptors()
    index = OffsetIndex(path, BASE, 80)
    index.make_read_only()
    assert open_descriptors() == before
    assert index.entries == 10
    index.close_handler()
