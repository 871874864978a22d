"""Retention of compacted logs by a cleaner thread: after a clean, and no more often than its back-off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog.cleaner.types import CleanResult, LogToClean
from kafkalog.errors import CorruptRecord
from kafkalog.storage.log import UnifiedLog
from tests.cleaner.pools import Passes, Pool


def test_retention_of_compacted_logs_follows_each_clean(pool: Pool) -> None:
    """CLN-36: by age where delete is in the policy, too; CLN-37: else only what lies below the log start."""
    both = pool.log(0, dirty=3, cleanup_policy="compact,delete", retention_ms=1000)
    only = pool.log(1, dirty=3, retention_ms=1000)
    plain = pool.log(2, dirty=3, cleanup_policy="delete", retention_ms=1000)
    cleaner = pool.cleaner(Passes())
    only.maybe_increment_log_start_offset(2)
    pool.clock.advance(2000)
    cleaner.run()
    assert [log.log_start_offset for log in (both, only, plain)] == [3, 2, 0]
    assert [len(log.segments) for log in (both, only, plain)] == [1, 2, 4]


def test_retention_of_compacted_logs_waits_for_the_back_off(pool: Pool) -> None:
    """CLN-36: it does not follow each clean of many small logs."""
    pool.clock.advance(60_000)
    both = pool.log(0, dirty=3, cleanup_policy="compact,delete", retention_ms=1000)
    for number in range(1, 4):
        pool.log(number, dirty=3, clean=1)
    passes, starts = Passes(), []

    def quick(to_clean: LogToClean, offset_map: SkimpyOffsetMap, **given: Any) -> CleanResult:
        starts.append(both.log_start_offset)
        pool.clock.advance(5_000)
        return passes(to_clean, offset_map, **given)

    assert pool.cleaner(quick, log_cleaner_backoff_ms=15_000).run() == 4
    assert starts == [0, 0, 0, 3]


def test_retention_of_compacted_logs_comes_between_cleans(pool: Pool) -> None:
    """CLN-36: a cleaner that always has something to do keeps no log from its retention for longer than a back-off."""
    both = pool.log(0, dirty=3, cleanup_policy="compact,delete", retention_ms=1000)
    pool.log(1, dirty=3, clean=1)
    passes, starts = Passes(), []

    def slow(to_clean: LogToClean, offset_map: SkimpyOffsetMap, **given: Any) -> CleanResult:
        starts.append(both.log_start_offset)
        pool.clock.advance(15_000)
        return passes(to_clean, offset_map, **given)

    assert pool.cleaner(slow).run() == 2
    assert (passes.cleaned, starts) == ([0, 1], [0, 3])


@pytest.mark.parametrize(
    ("error", "why"), [(MemoryError(), None), (CorruptRecord("bad bytes"), "CorruptRecord: bad bytes")]
)
def test_what_fails_the_retention_of_a_log_concerns_it_alone(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, error: Exception, why: str | None
) -> None:
    """CLN-36, CLN-39: it is set aside, but not for want of memory; others have their retention."""
    first, second = pool.log(0, dirty=3), pool.log(1, dirty=3)
    aged = []

    def noting(log: UnifiedLog) -> Callable[[int], int]:
        real = log.delete_old_segments

        def fails_once(now_ms: int) -> int:
            aged.append(log)
            if log is first:
                raise error
            return real(now_ms)

        return fails_once

    for one in (first, second):
        monkeypatch.setattr(one, "delete_old_segments", noting(one))
    cleaner = pool.cleaner(Passes())
    assert cleaner.run() == 2
    assert aged == [first, second]
    assert [cleaner.manager.uncleanable_reason(log) for log in (first, second)] == [why, None]


def test_a_log_that_is_closed_in_its_retention_is_not_set_aside(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """CLN-39: it is somebody else's now."""
    log = pool.log(0, dirty=3)

    def closes_it(now_ms: int) -> int:
        log.close()
        raise CorruptRecord("bad bytes")

    monkeypatch.setattr(log, "delete_old_segments", closes_it)
    cleaner = pool.cleaner(Passes())
    assert cleaner.run() == 1
    assert cleaner.manager.uncleanable_reason(log) is None and not caplog.messages
