"""Views of an index that another process owns: its end, its damage, and its owner's doings while it is read."""

import os
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kafkalog._core.log.values import OffsetPosition, TimestampOffset
from kafkalog.errors import CorruptIndex, IllegalArgument
from kafkalog.storage.index.offset_index import OffsetIndex
from kafkalog.storage.index.time_index import TimeIndex
from kafkalog.storage.readonly.index import OffsetIndexView, TimeIndexView
from tests.faults import FaultFS

BASE = 45


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000045.index"


def offset_bytes(*rows: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *row) for row in rows)


def time_bytes(*rows: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *row) for row in rows)


def test_the_index_of_a_live_log_ends_where_it_stops_growing(path: Path) -> None:
    path.write_bytes(offset_bytes((3, 500), (9, 900)) + bytes(10_000))
    view = OffsetIndexView(path, BASE)
    assert (view.entries, view.last_offset, view.problem) == (2, 54, None)
    assert view.lookup(53) == OffsetPosition(48, 500)
    assert view.lookup(10**9) == OffsetPosition(54, 900)
    assert view.lookup(47) == OffsetPosition(45, 0)
    assert view.fetch_upper_bound_offset(OffsetPosition(48, 500), 400) == OffsetPosition(54, 900)
    assert view.fetch_upper_bound_offset(OffsetPosition(48, 500), 401) is None
    assert view.entry(1) == OffsetPosition(54, 900)
    assert list(view.lookup_many([50, 60])[1]) == [500, 900]
    with pytest.raises(IllegalArgument):
        view.entry(2)
    with pytest.raises(IndexError):
        view.entry(-1)
    view.sanity_check()


def test_the_time_index_of_a_live_log(path: Path) -> None:
    path.write_bytes(time_bytes((100, 3), (101, 3), (150, 7)) + bytes(1200))
    view = TimeIndexView(path, BASE)
    assert (view.entries, view.last_entry, view.problem) == (3, TimestampOffset(150, 52), None)
    assert view.lookup(149) == TimestampOffset(101, 48)
    assert view.lookup(99) == TimestampOffset(-1, 45)
    assert view.entry(0) == TimestampOffset(100, 48)
    with pytest.raises(IllegalArgument):
        view.entry(3)


def test_a_file_of_zeros(path: Path) -> None:
    """Nothing is wrong with it: it may be the free space of a new index."""
    path.write_bytes(bytes(8000))
    view = OffsetIndexView(path, BASE)
    assert (view.entries, view.last_offset, view.problem) == (0, BASE, None)
    path.write_bytes(bytes(1200))
    assert TimeIndexView(path, BASE).last_entry == TimestampOffset(-1, BASE)


def test_an_entry_cut_in_the_middle(path: Path) -> None:
    path.write_bytes(offset_bytes((3, 500), (9, 900))[:-3])
    view = OffsetIndexView(path, BASE)
    assert view.entries == 0
    assert isinstance(view.problem, CorruptIndex)
    assert (view.problem.path, view.problem.position) == (str(path), 8)
    assert view.lookup(60) == OffsetPosition(BASE, 0), "a read begins at the segment's start"
    assert "13 bytes" in repr(view)
    path.write_bytes(offset_bytes((3, 500), (9, 900)))
    view.refresh()
    assert (view.entries, view.problem) == (2, None)


def test_a_flipped_bit_in_the_middle(path: Path) -> None:
    """The entries before it are used."""
    path.write_bytes(offset_bytes((3, 500), (9, 900), (1, 1300), (20, 1700)))
    view = OffsetIndexView(path, BASE)
    assert (view.entries, view.last_offset) == (2, 54)


def test_a_missing_or_unreadable_file(path: Path) -> None:
    view = OffsetIndexView(path, BASE)
    assert view.entries == 0
    assert isinstance(view.problem, CorruptIndex)
    assert view.problem.path == str(path)
    assert "missing" in str(view.problem)
    path.mkdir()
    view.refresh()
    assert isinstance(view.problem, CorruptIndex)
    assert "directory" in str(view.problem)
    path.rmdir()
    path.write_bytes(offset_bytes((3, 500)))
    view.refresh()
    assert (view.entries, view.problem) == (1, None)
    path.unlink()
    view.refresh()
    assert view.entries == 0
    assert view.problem is not None
    path.touch()
    os.truncate(path, 2**31)
    view.refresh()
    assert view.problem is not None
    assert "2 GiB" in str(view.problem)


def test_refresh_reads_on(path: Path) -> None:
    owner = OffsetIndex(path, BASE, 1 << 20)
    for n in range(10_000):
        owner.append(BASE + n + 1, n + 1)
    fs = FaultFS()
    view = OffsetIndexView(path, BASE, fs=fs)
    assert view.entries == 10_000
    owner.append(BASE + 20_000, 20_000)
    fs.calls.clear()
    view.refresh()
    assert (view.entries, view.last_offset) == (10_001, BASE + 20_000)
    assert min(call.args[1] for call in fs.named("pread")) == 9_999 * 8
    assert list(view.lookup_many(range(BASE + 1, BASE + 10_001))[1]) == list(range(1, 10_001))
    owner.close()


@pytest.mark.parametrize("kind", [OffsetIndexView, TimeIndexView])
def test_entries_that_a_refresh_adds_go_on_from_the_last_one(
    path: Path, kind: type[OffsetIndexView] | type[TimeIndexView]
) -> None:
    """One step on they are read; one that does not grow ends the entries."""
    made = offset_bytes if kind is OffsetIndexView else time_bytes
    rows = [(3, 500), (4, 501)] if kind is OffsetIndexView else [(500, 3), (501, 3)]
    path.write_bytes(made(rows[0]))
    view = kind(path, BASE)
    path.write_bytes(made(*rows))
    view.refresh()
    assert [view.entry(n) for n in range(view.entries)] == [kind(path, BASE).entry(n) for n in (0, 1)]
    path.write_bytes(made(*rows, rows[1]))
    view.refresh()
    assert (view.entries, view.problem) == (2, None)


def test_after_a_truncation(path: Path) -> None:
    """format.md section 14, B1: old entries stay behind the new ones, where they can look like a part of them."""
    owner = OffsetIndex(path, BASE, 800)
    for n in range(10):
        owner.append(BASE + n + 1, 100 * n + 100)
    view = OffsetIndexView(path, BASE)
    owner.truncate_to_entries(2)
    owner.append(BASE + 50, 7000)
    fresh = OffsetIndexView(path, BASE)
    assert [tuple(fresh.entry(n)) for n in range(fresh.entries)] == [(46, 100), (47, 200), (95, 7000)]
    owner.trim_to_valid_size()
    view.refresh()
    assert view.lookup(100) == fresh.lookup(100) == OffsetPosition(95, 7000)
    owner.truncate()
    owner.append(BASE + 2, 70)
    owner.trim_to_valid_size()
    view.refresh()
    assert [tuple(view.entry(n)) for n in range(view.entries)] == [(47, 70)]
    owner.close()


OWNER = """
import sys
from kafkalog.storage.index.offset_index import OffsetIndex
path, rounds = sys.argv[1], int(sys.argv[2])
index = OffsetIndex(path, 0, 1 << 20)
print("ready", flush=True)
for _ in range(rounds):
    index.reset()
    for n in range(3000):
        index.append(n + 1, 10 * n + 10)
    index.truncate_to_entries(100)
    index.trim_to_valid_size()
index.close()
"""


def test_its_owner_trims_it_while_we_read(path: Path) -> None:
    """Another process cuts and refills the file all the time: no signal, and every answer is one that it wrote."""
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(path), "40"], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "ready\n"
    view = OffsetIndexView(path, 0)
    seen = set()
    while owner.poll() is None:
        view.refresh()
        seen.add(view.entries)
        for target in (1, 99, 100, 101, 2999, 10**6):
            found = view.lookup(target)
            assert found.position == 10 * found.offset
            assert found.offset <= target
    owner.stdout.close()
    assert owner.returncode == 0
    view.refresh()
    assert (view.entries, view.problem) == (100, None)
    assert len(seen) > 1


def test_a_short_read_gives_whole_entries(path: Path) -> None:
    """The file is cut between the look at its length and the read."""
    path.write_bytes(offset_bytes((3, 500), (9, 900), (12, 1200)))
    fs = FaultFS()
    real = fs.pread

    def cut_first(fd: int, size: int, position: int) -> bytes:
        os.truncate(path, 11)
        return real(fd, size, position)

    fs.pread = cut_first  # type: ignore[assignment]
    view = OffsetIndexView(path, BASE, fs=fs)
    assert (view.entries, view.last_offset, view.problem) == (1, 48, None)
    view.refresh()
    assert view.problem is not None


def test_refresh_beside_look_ups(path: Path) -> None:
    """One thread refreshes, another looks up: every answer is from one of the files that were there."""
    many = offset_bytes(*((n + 1, 10 * n + 10) for n in range(5000)))
    path.write_bytes(many)
    view = OffsetIndexView(path, 0)
    stop = threading.Event()
    bad: list[tuple[int, int]] = []

    def search() -> None:
        while not stop.is_set():
            offsets, positions = view.lookup_many(range(5000))
            bad.extend((o, p) for o, p in zip(offsets, positions, strict=True) if p != 10 * o)

    thread = threading.Thread(target=search)
    thread.start()
    for n in range(100):
        path.write_bytes(many[: 8 * (50 * n % 5000)])
        view.refresh()
    stop.set()
    thread.join()
    assert bad == []


def test_it_takes_no_lock_and_writes_nothing(path: Path) -> None:
    path.write_bytes(offset_bytes((3, 500)) + bytes(16))
    before = path.stat()
    fs = FaultFS()
    view = OffsetIndexView(path, BASE, fs=fs)
    view.refresh()
    assert not fs.named("open", "pwrite", "ftruncate", "posix_fallocate"), "opened for reading only"
    after = path.stat()
    assert (after.st_mtime_ns, after.st_size, after.st_ino) == (before.st_mtime_ns, before.st_size, before.st_ino)


def test_a_view_of_what_time_index_wrote(path: Path) -> None:
    owner = TimeIndex(path, BASE, 1200)
    for n in range(20):
        owner.maybe_append(1000 + n, BASE + n)
    view = TimeIndexView(path, BASE)
    assert [view.entry(n) for n in range(view.entries)] == [owner.entry(n) for n in range(20)]
    owner.maybe_append(2000, BASE + 500)
    owner.close()
    view.refresh()
    assert (view.entries, view.last_entry) == (21, TimestampOffset(2000, BASE + 500))
    assert view.problem is None
