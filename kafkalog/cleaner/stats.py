"""Cleaner statistics: the report of one clean, and totals since the store was opened."""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from kafkalog.cleaner.types import CleanerStats, CleanResult, LogToClean
from kafkalog.types import TopicPartition

MB: Final = 1 << 20


class Uncleanable(NamedTuple):
    """A partition that the cleaner skips, and the reason."""

    topic_partition: TopicPartition
    directory: str
    reason: str


class Clean(NamedTuple):
    """A clean of one log: its reason, offsets and counters; in progress while `end_offset` is None.

    `began_ms` is wall-clock time. `thread` is the number of the cleaner thread, -1 for a clean that a caller requested.
    """

    topic_partition: TopicPartition
    directory: str
    reason: str
    thread: int
    began_ms: int
    start_offset: int
    end_offset: int | None
    stats: CleanerStats

    @classmethod
    def of(cls, log: LogToClean, directory: str, thread: int, began_ms: int, stats: CleanerStats) -> Clean:
        """Return the record of a clean that begins."""
        return cls(
            log.topic_partition, directory, log.reason, thread, began_ms, log.first_dirty_offset, None, stats
        )

    @property
    def result(self) -> CleanResult:
        """End offset and counters of a finished clean."""
        return CleanResult(self.start_offset if self.end_offset is None else self.end_offset, self.stats)

    def report(self) -> str:
        """Return the log message of a clean: sizes, rates, savings."""
        stats = self.stats
        seconds, map_s = stats.elapsed_s, stats.map_s
        copy_s = max(seconds - map_s, 0.0)
        lines = (
            f"cleaned {self.topic_partition} ({self.reason}), dirty range [{self.start_offset}, {self.end_offset})",
            f"{_mb(stats.bytes_read)} of log in {_rate(stats.bytes_read, seconds)}",
            f"indexed {_mb(stats.map_bytes_read)} in {_rate(stats.map_bytes_read, map_s)}, "
            f"map {100 * stats.buffer_utilization:.1f} % full",
            f"copied {_mb(stats.bytes_read)} in {_rate(stats.bytes_read, copy_s)}",
            f"before {_mb(stats.bytes_read)} ({stats.messages_read:,} records), "
            f"after {_mb(stats.bytes_written)} ({stats.messages_written:,} records): "
            f"{_saved(stats.bytes_written, stats.bytes_read)} smaller, "
            f"{_saved(stats.messages_written, stats.messages_read)} fewer records",
        )
        return "\n    ".join(lines)


def _mb(count: int) -> str:
    return f"{count / MB:,.1f} MiB"


def _rate(count: int, seconds: float) -> str:
    return f"{seconds:,.1f} s ({count / MB / seconds:,.1f} MiB/s)" if seconds > 0 else f"{seconds:,.1f} s"


def _saved(after: int, before: int) -> str:
    return f"{100 * (1 - after / before):.1f} %" if before else "0 %"


class CleanerTotals(NamedTuple):
    """Totals of all cleans of a store since it was opened; `failures` counts cleans that raised an error."""

    cleans: int = 0
    aborted: int = 0
    failures: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    messages_read: int = 0
    messages_written: int = 0
    invalid_messages: int = 0
    seconds: float = 0.0
    thread_failures: int = 0


class CleanerReport(NamedTuple):
    """The state of a store's cleaner: its current and finished cleans, and the partitions it skips.

    `threads` is the present number of threads, `running` the cleans in progress, `last` the last clean of each thread.
    `uncleanable` lists the skipped partitions, each with its directory and the reason. `dirtiest_ratio` is the result
    of the last scan of all logs, and `last_look_ms` its wall-clock time (None: not yet). `throttled_ms` is the total
    time that the rate limit made the threads sleep.
    """

    threads: int
    running: tuple[Clean, ...]
    last: tuple[Clean, ...]
    totals: CleanerTotals
    uncleanable: tuple[Uncleanable, ...]
    dirtiest_ratio: float
    last_look_ms: int | None
    throttled_ms: int


NO_CLEANER: Final = CleanerReport(0, (), (), CleanerTotals(), (), 0.0, None, 0)
"""The report of a store without a cleaner."""


class CleanerBook:
    """The cleans in progress, the last one of each thread, and the totals. Threads: safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, Clean] = {}  # guarded by self._lock; by the thread's identity
        self._last: dict[int, Clean] = {}  # guarded by self._lock; by the thread's number
        self.totals = CleanerTotals()  # guarded by self._lock
        """The totals so far."""

    @property
    def running(self) -> tuple[Clean, ...]:
        """The cleans in progress; their counters grow."""
        with self._lock:
            return tuple(self._running.values())

    @property
    def last(self) -> tuple[Clean, ...]:
        """The last finished clean of each thread, the latest last."""
        with self._lock:
            return tuple(sorted(self._last.values(), key=lambda clean: clean.began_ms))

    def record_start(self, clean: Clean) -> None:
        """Record that this thread began a clean."""
        with self._lock:
            self._running[threading.get_ident()] = clean

    def record_end(self, clean: Clean) -> None:
        """Record that this thread finished its clean."""
        stats = clean.stats
        with self._lock:
            self._running.pop(threading.get_ident(), None)
            self._last[clean.thread] = clean
            totals = self.totals
            self.totals = totals._replace(
                cleans=totals.cleans + 1,
                bytes_read=totals.bytes_read + stats.bytes_read,
                bytes_written=totals.bytes_written + stats.bytes_written,
                messages_read=totals.messages_read + stats.messages_read,
                messages_written=totals.messages_written + stats.messages_written,
                invalid_messages=totals.invalid_messages + stats.invalid_messages_read,
                seconds=totals.seconds + stats.elapsed_s,
            )

    def record_incomplete(self, *, aborted: bool, failed: bool) -> None:
        """Record that this thread's clean was aborted, failed, or was a dry run."""
        with self._lock:
            self._running.pop(threading.get_ident(), None)
            totals = self.totals
            self.totals = totals._replace(aborted=totals.aborted + aborted, failures=totals.failures + failed)

    def record_thread_failure(self) -> None:
        """Count an error of a cleaner thread that no log caused; the thread continues after its back-off."""
        with self._lock:
            self.totals = self.totals._replace(thread_failures=self.totals.thread_failures + 1)
