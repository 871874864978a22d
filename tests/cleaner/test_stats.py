"""The account of cleans: what the log says of one, the last one of each thread, the sums."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.cleaner.stats import MB, Clean, CleanerBook, CleanerTotals
from kafkalog.cleaner.types import DIRTY_RATIO, CleanerStats
from kafkalog.types import TopicPartition
from tests.storage.logs import NOW


def a_clean(thread: int = 0, began_ms: int = NOW, **counts: Any) -> Clean:
    stats = CleanerStats(10.0)
    for name, count in counts.items():
        setattr(stats, name, count)
    return Clean(TopicPartition("t", 0), "/data", DIRTY_RATIO, thread, began_ms, 5, 70, stats)


def test_the_log_says_how_fast_a_clean_was_and_what_it_saved() -> None:
    done = a_clean(
        map_complete_s=12.0, end_s=15.0, map_bytes_read=3 * MB, map_messages_read=10, bytes_read=1200 * MB,
        bytes_written=900 * MB, messages_read=4000, messages_written=1000, buffer_utilization=0.125,
    )  # fmt: skip
    assert done.report().splitlines() == [
        "cleaned t-0 (dirty ratio), dirty range [5, 70)",
        "    1,200.0 MiB of log in 5.0 s (240.0 MiB/s)",
        "    indexed 3.0 MiB in 2.0 s (1.5 MiB/s), map 12.5 % full",
        "    copied 1,200.0 MiB in 3.0 s (400.0 MiB/s)",
        "    before 1,200.0 MiB (4,000 records), after 900.0 MiB (1,000 records): 25.0 % smaller, 75.0 % fewer records",
    ]


def test_a_clean_of_nothing_has_no_rate() -> None:
    """Nor did a clean that has just begun save anything."""
    assert a_clean().report().splitlines()[1:] == [
        "    0.0 MiB of log in 0.0 s",
        "    indexed 0.0 MiB in 0.0 s, map 0.0 % full",
        "    copied 0.0 MiB in 0.0 s",
        "    before 0.0 MiB (0 records), after 0.0 MiB (0 records): 0 % smaller, 0 % fewer records",
    ]


def test_a_clean_that_goes_on_has_come_to_where_it_began() -> None:
    assert a_clean().result.end_offset == 70
    assert a_clean()._replace(end_offset=None).result.end_offset == 5


def test_the_sums_are_of_all_cleans_and_the_last_one_of_each_thread_stays() -> None:
    book = CleanerBook()
    first, second, again = a_clean(0, NOW + 2), a_clean(1, NOW + 1), a_clean(0, NOW + 3)
    counts = {"bytes_read": 50, "bytes_written": 20, "messages_read": 7, "messages_written": 3}
    for number, one in enumerate((first, second, again), 1):
        for name, count in counts.items():
            setattr(one.stats, name, number * count)
        one.stats.invalid_messages_read, one.stats.end_s = number, 10.0 + number
        book.record_start(one)
        assert book.running == (one,)
        book.record_end(one)
        assert book.running == ()
    assert book.last == (second, again)
    sums = {name: 6 * count for name, count in counts.items()}
    assert book.totals == CleanerTotals(cleans=3, invalid_messages=6, seconds=pytest.approx(6.0), **sums)


def test_what_came_to_no_end_is_counted_apart() -> None:
    book = CleanerBook()
    for aborted, failed in ((True, False), (True, False), (False, True), (False, False)):
        book.record_start(a_clean())
        book.record_incomplete(aborted=aborted, failed=failed)
    book.record_thread_failure()
    assert book.running == book.last == ()
    assert book.totals == CleanerTotals(aborted=2, failures=1, thread_failures=1)
