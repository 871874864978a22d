"""LeaderEpochCache: assigning, looking up, cutting, and its file (format.md section 8)."""

import sys
from pathlib import Path

import pytest

from kafkalog.errors import CorruptCheckpoint, IllegalArgument
from kafkalog.storage.leader_epoch import EpochEntry, LeaderEpochCache


@pytest.fixture
def cache(tmp_path: Path) -> LeaderEpochCache:
    made = LeaderEpochCache.open(tmp_path)
    for epoch, start in ((0, 0), (2, 10), (5, 30)):
        assert made.assign(epoch, start)
    return made


def list_entries(cache: LeaderEpochCache) -> list[tuple[int, int]]:
    return [tuple(entry) for entry in cache.entries]


def test_an_epoch_begins_once(cache: LeaderEpochCache) -> None:
    assert not cache.assign(5, 30) and not cache.assign(5, 40)
    assert list_entries(cache) == [(0, 0), (2, 10), (5, 30)] and cache.latest_epoch == 5


@pytest.mark.parametrize(
    ("epoch", "start", "left"),
    [(6, 20, [(0, 0), (2, 10), (6, 20)]), (1, 40, [(0, 0), (1, 40)]), (5, 5, [(0, 0), (5, 5)]), (9, 0, [(9, 0)])],
)
def test_entries_that_contradict_a_new_one_go(
    cache: LeaderEpochCache, epoch: int, start: int, left: list[tuple[int, int]]
) -> None:
    assert cache.assign(epoch, start)
    assert list_entries(cache) == left


@pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (9, 0), (10, 2), (29, 2), (30, 5), (999, 5), (-1, -1)])
def test_epoch_of_an_offset(cache: LeaderEpochCache, offset: int, epoch: int) -> None:
    assert cache.epoch_for(offset) == epoch


@pytest.mark.parametrize(
    ("end", "left"), [(31, 3), (30, 2), (11, 2), (10, 1), (0, 0)]
)
def test_cut_from_the_end(cache: LeaderEpochCache, end: int, left: int) -> None:
    cache.truncate_from_end(end)
    assert len(cache.entries) == left


def test_cut_from_the_start_keeps_the_epoch_that_covers_it(cache: LeaderEpochCache) -> None:
    cache.truncate_from_start(15)
    assert list_entries(cache) == [(2, 15), (5, 30)]
    cache.truncate_from_start(15)
    cache.truncate_from_start(3)
    assert list_entries(cache) == [(2, 15), (5, 30)]


@pytest.mark.parametrize(("start", "written"), [(3, "0\n2\n1 3\n4 8\n"), (0, "0\n3\n1 2\n3 9\n4 8\n")])
def test_a_file_that_contradicts_itself_is_written_again_by_a_cut_that_meets_it(
    tmp_path: Path, start: int, written: str
) -> None:
    """EPOCH-6, EPOCH-12: as the reference does, which writes the file only where an epoch covers the start."""
    file = tmp_path / "leader-epoch-checkpoint"
    file.write_text("0\n3\n1 2\n3 9\n4 8\n")
    cache = LeaderEpochCache.open(tmp_path)
    assert list_entries(cache) == [(1, 2), (4, 8)] and not cache.has_changed
    cache.truncate_from_start(start)
    cache.write_if_changed()
    assert file.read_text() == written


def test_a_file_that_contradicts_itself_is_written_again_though_the_epochs_stay(tmp_path: Path) -> None:
    """EPOCH-6."""
    file = tmp_path / "leader-epoch-checkpoint"
    file.write_text("0\n3\n1 2\n3 9\n4 8\n")
    cache = LeaderEpochCache.open(tmp_path)
    cache.truncate_from_start(2)
    cache.write_if_changed()
    assert file.read_text() == "0\n2\n1 2\n4 8\n"
    cache.truncate_from_start(2)
    assert not cache.has_changed, "once is enough"


def test_clearing_writes_the_file_also_of_no_epochs(tmp_path: Path) -> None:
    """EPOCH-9."""
    cache = LeaderEpochCache.open(tmp_path)
    cache.clear()
    cache.write_if_changed()
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n0\n"


def test_the_file_follows_when_told(cache: LeaderEpochCache, tmp_path: Path) -> None:
    file = tmp_path / "leader-epoch-checkpoint"
    assert cache.has_changed and file.read_bytes() == b""
    cache.write_if_changed()
    assert not cache.has_changed and file.read_text() == "0\n3\n0 0\n2 10\n5 30\n"
    assert list_entries(LeaderEpochCache.open(tmp_path)) == list_entries(cache)
    cache.clear()
    cache.write_if_changed()
    assert file.read_text() == "0\n0\n"


def test_entries_out_of_order_in_the_file_drop_earlier_ones(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n5 5\n3 9\n")
    assert list_entries(LeaderEpochCache.open(tmp_path)) == [(3, 9)]


@pytest.mark.parametrize(
    "text", ["0\n1\n-1 0\n", "0\n1\n0 -1\n", "0\n1\n2147483648 5\n", "0\n1\n5\n", "1\n0\n", "0\n2\n0 0\n"]
)
def test_a_malformed_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text(text)
    with pytest.raises(CorruptCheckpoint):
        LeaderEpochCache.open(tmp_path)


def test_negative_numbers_are_refused(cache: LeaderEpochCache) -> None:
    for epoch, start in ((-1, 0), (0, -1)):
        with pytest.raises(IllegalArgument):
            cache.assign(epoch, start)


def test_a_file_of_many_epochs_is_gone_through_once(tmp_path: Path) -> None:
    """Each entry is compared with the last ones, not with all: a file may have a great many."""
    entries = 2000
    lines = "".join(f"{epoch} {epoch * 10}\n" for epoch in range(entries))
    (tmp_path / "leader-epoch-checkpoint").write_text(f"0\n{entries}\n{lines}")
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(count)
    try:
        cache = LeaderEpochCache.read(tmp_path)
    finally:
        sys.setprofile(None)
    assert len(cache.entries) == entries and steps < 100 * entries


def test_as_many_epochs_as_batches(tmp_path: Path) -> None:
    """Parsing costs time linear in the file's length, not quadratic."""
    count = 200_000
    lines = "".join(f"{n} {10 * n}\n" for n in range(count))
    (tmp_path / "leader-epoch-checkpoint").write_text(f"0\n{count}\n{lines}")
    cache = LeaderEpochCache.open(tmp_path)
    cache.extend(EpochEntry(n, 10 * n) for n in range(count, 2 * count))
    assert len(cache.entries) == 2 * count and cache.latest_epoch == 2 * count - 1
    cache.extend([EpochEntry(7, 1_000_000), EpochEntry(9, 65), EpochEntry(9, 70)])
    assert list_entries(cache) == [(0, 0), (1, 10), (2, 20), (3, 30), (4, 40), (5, 50), (6, 60), (9, 65)]
