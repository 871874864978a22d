"""What cleans came to: the report of one, and the sums of all since the store was opened."""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from kafkalog.cleaner.types import CleanerStats, CleanResult, LogToClean
from kafkalog.types import TopicPartition

MB: Final = 1 << 20


class Uncleanable(NamedTuple):
    """A partition that the cleaner leaves alone, and why."""

    topic_partition: TopicPartition
    directory: str
    reason: str


class Clean(NamedTuple):
    """A clean of one log, in progress while `end_offset` is None: what for, from where, up to where, what it counted.

    `began_ms` is wall-clock time, `thread` the number of the cleaner thread, -1 for a clean that was asked for.
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
        """The clean that begins."""
        return cls(
            log.topic_partition, directory, log.reason, thread, began_ms, log.first_dirty_offset, None, stats
        )

    @property
    def result(self) -> CleanResult:
        """How far the log is clean, and what that took; of a clean that is over."""
        return CleanResult(self.start_offset if self.end_offset is None else self.end_offset, self.stats)

    def report(self) -> str:
        """What the log says of a clean: sizes, rates, what it saved."""
        stats = self.stats
        seconds, map_s = stats.elapsed_s, stats.map_s
        copy_s = max(seconds - map_s, 0.0)
        lines = (
            f"cleaned {self.topic_partition} ({self.reason}), dirty were [{self.start_offset}, {self.end_offset})",
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
    """Sums of all cleans of a store since it was opened; `failures` are those that ended with an error."""

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
    """What the cleaner of a store does, has done, and leaves alone.

    `threads` are those it has now, `running` the cleans that go on, `last` the last one of each thread.
    `uncleanable` are partitions that it leaves alone, each with its directory and the reason; `dirtiest_ratio` is what
    the last look at all logs found, and `last_look_ms` when that was (wall clock; None: not yet). `throttled_ms` is how
    long it slept to keep to its rate.
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
"""The report where nothing is cleaned."""


class CleanerBook:
    """The cleans that go on and the last one of each thread, with the sums of all. Threads: safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, Clean] = {}  # guarded by self._lock; by the thread's identity
        self._last: dict[int, Clean] = {}  # guarded by self._lock; by the thread's number
        self._totals = CleanerTotals()  # guarded by self._lock

    @property
    def running(self) -> tuple[Clean, ...]:
        """The cleans that go on; their counts grow."""
        with self._lock:
            return tuple(self._running.values())

    @property
    def last(self) -> tuple[Clean, ...]:
        """The last clean of each thread that came to its end, the latest last."""
        with self._lock:
            return tuple(sorted(self._last.values(), key=lambda clean: clean.began_ms))

    @property
    def totals(self) -> CleanerTotals:
        """The sums so far."""
        return self._totals

    def began(self, clean: Clean) -> None:
        """A clean goes on in this thread."""
        with self._lock:
            self._running[threading.get_ident()] = clean

    def ended(self, clean: Clean) -> None:
        """It came to its end."""
        stats = clean.stats
        with self._lock:
            self._running.pop(threading.get_ident(), None)
            self._last[clean.thread] = clean
            so_far = self._totals
            self._totals = so_far._replace(
                cleans=so_far.cleans + 1,
                bytes_read=so_far.bytes_read + stats.bytes_read,
                bytes_written=so_far.bytes_written + stats.bytes_written,
                messages_read=so_far.messages_read + stats.messages_read,
                messages_written=so_far.messages_written + stats.messages_written,
                invalid_messages=so_far.invalid_messages + stats.invalid_messages_read,
                seconds=so_far.seconds + stats.elapsed_s,
            )

    def gave_up(self, *, aborted: bool, failed: bool) -> None:
        """It was aborted, or failed, or only counted what it would do."""
        with self._lock:
            self._running.pop(threading.get_ident(), None)
            so_far = self._totals
            self._totals = so_far._replace(aborted=so_far.aborted + aborted, failures=so_far.failures + failed)

    def thread_failed(self) -> None:
        """A cleaner thread met an error that is no log's; it goes on after its back-off."""
        with self._lock:
            self._totals = self._totals._replace(thread_failures=self._totals.thread_failures + 1)
