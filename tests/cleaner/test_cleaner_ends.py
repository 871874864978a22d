"""Cleans that cannot begin, or never finish: the log is released."""

from __future__ import annotations

import pytest

from kafkalog.cleaner.splits import MOST_SPLITS
from kafkalog.cleaner.types import CleanerStats
from kafkalog.errors import CleaningAborted, SegmentOffsetOverflow
from tests.cleaner.pools import Passes, Pool


def test_a_clean_that_has_no_memory_to_begin_with_lets_go(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLN-39: before its first byte, too: no one holds the log then, and the next clean of it works."""
    log = pool.log(0, dirty=2)
    cleaner = pool.cleaner(Passes())

    def nothing_left(start_s: float) -> CleanerStats:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("kafkalog.cleaner.cleaner.CleanerStats", nothing_left)
        with pytest.raises(MemoryError):
            cleaner.clean(log)
        with pytest.raises(MemoryError):
            cleaner.run()
    assert cleaner.manager.states.of(log.topic_partition) is None
    assert cleaner.book.running == () and cleaner.clean(log).end_offset == 2


def test_a_clean_that_has_to_split_for_ever_ends(pool: Pool) -> None:
    """CLN-26: with the last reported values, not in a loop; other cleans of the log may continue."""
    log = pool.log(0, dirty=2)
    passes = Passes()
    split = CleaningAborted("a segment had to be split", path=log.path)
    split.__cause__ = SegmentOffsetOverflow("too far")
    passes.fail[0] = split
    cleaner = pool.cleaner(passes)
    with pytest.raises(CleaningAborted, match="had to be split"):
        cleaner.clean(log)
    assert len(passes.given) == MOST_SPLITS + 1
    assert cleaner.manager.states.of(log.topic_partition) is None
