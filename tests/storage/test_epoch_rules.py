"""The epochs of a log, rule by rule: what is kept, what contradicts, where each one ends (checklist EPOCH)."""

from pathlib import Path

import pytest

from kafkalog.errors import IllegalArgument
from kafkalog.storage.leader_epoch import LeaderEpochCache


def cache(path: Path, *entries: tuple[int, int]) -> LeaderEpochCache:
    epochs = LeaderEpochCache.open(path)
    for epoch, start in entries:
        epochs.assign(epoch, start)
    return epochs


@pytest.mark.parametrize(
    ("entries", "kept"),
    [
        ([(2, 6), (2, 10)], [(2, 6)]),
        ([(2, 9), (3, 9)], [(3, 9)]),
        ([(2, 6), (3, 5)], [(3, 5)]),
        ([(1, 5), (2, 6), (1, 7)], [(1, 7)]),
        ([(5, 5), (3, 9)], [(3, 9)]),
        ([(0, 5), (0, 7)], [(0, 5)]),
    ],
)
def test_what_contradicts_goes(tmp_path: Path, entries: list[tuple[int, int]], kept: list[tuple[int, int]]) -> None:
    """EPOCH-1, EPOCH-2; EPOCH-12: a file out of order is read by the same rule."""
    assert list(cache(tmp_path, *entries).entries) == kept
    text = "".join(f"{epoch} {start}\n" for epoch, start in entries)
    (tmp_path / "leader-epoch-checkpoint").write_text(f"0\n{len(entries)}\n{text}")
    assert list(LeaderEpochCache.open(tmp_path).entries) == kept


@pytest.mark.parametrize("entry", [(-1, 5), (5, -1)])
def test_nothing_negative(tmp_path: Path, entry: tuple[int, int]) -> None:
    """EPOCH-1."""
    with pytest.raises(IllegalArgument):
        cache(tmp_path, entry)


@pytest.mark.parametrize(
    ("entries", "asked", "answer"),
    [
        ([(0, 10), (2, 13), (4, 17)], 1, (0, 13)),
        ([(0, 10), (2, 13), (4, 17)], 2, (2, 17)),
        ([(0, 10), (2, 13), (4, 17)], 3, (2, 17)),
        ([(0, 10), (2, 13), (4, 17)], 4, (4, 99)),
        ([(0, 10), (2, 13), (4, 17)], -1, (-1, -1)),
        ([(5, 11), (6, 12), (7, 13)], 4, (4, 11)),
        ([(5, 11), (6, 12), (7, 13), (7, 12)], 5, (5, 12)),
        ([(2, 100)], 3, (-1, -1)),
        ([(1, 7)], 2, (-1, -1)),
        ([], 0, (-1, -1)),
    ],
)
def test_where_an_epoch_ends(
    tmp_path: Path, entries: list[tuple[int, int]], asked: int, answer: tuple[int, int]
) -> None:
    """EPOCH-3, EPOCH-4."""
    assert cache(tmp_path, *entries).end_offset_for(asked, 99) == answer


@pytest.mark.parametrize(
    ("start", "left"),
    [(8, [(3, 8), (4, 11)]), (9, [(3, 9), (4, 11)]), (11, [(4, 11)]), (12, [(4, 12)]), (2, [(2, 6), (3, 8), (4, 11)])],
)
def test_cut_from_the_start(tmp_path: Path, start: int, left: list[tuple[int, int]]) -> None:
    """EPOCH-6; EPOCH-7: what is written reads back."""
    epochs = cache(tmp_path, (2, 6), (3, 8), (4, 11))
    epochs.truncate_from_start(start)
    assert list(epochs.entries) == left
    epochs.write_if_changed()
    assert list(LeaderEpochCache.open(tmp_path).entries) == left


def test_cut_from_the_end_and_looked_up(tmp_path: Path) -> None:
    """EPOCH-5, EPOCH-8."""
    epochs = cache(tmp_path, (2, 6), (3, 8), (4, 11))
    epochs.truncate_from_end(12)
    assert [epochs.epoch_for(offset) for offset in (5, 6, 8, 10, 11, 50)] == [-1, 2, 3, 3, 4, 4]
    epochs.truncate_from_end(8)
    assert list(epochs.entries) == [(2, 6)]
    epochs.clear()
    assert epochs.latest_epoch == -1
