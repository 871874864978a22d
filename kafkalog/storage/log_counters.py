"""Counters of a log since it was opened; its `LogState` counts appends."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from math import inf
from typing import Any, Final

from kafkalog._core.bytes.counter import Counter
from kafkalog.util.weak_registry import WeakRegistry

BUCKETS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds, in seconds, of the histogram of durations."""
REASONS: Final = ("log_start", "size", "time")
"""Reasons for which retention deletes a segment."""


class Durations:
    """Histogram of durations. Threads: `add` under the owner's lock; reading without it is harmless."""

    __slots__ = ("count", "counts", "total_s")

    def __init__(self) -> None:
        self.count = 0
        self.total_s = 0.0
        self.counts = [0] * (len(BUCKETS_S) + 1)

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.count += 1
        self.total_s += seconds
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1

    def buckets(self) -> list[tuple[float, int]]:
        """Return (upper bound in seconds, number of durations up to it) pairs; the last bound is infinite."""
        return list(zip((*BUCKETS_S, inf), accumulate(self.counts), strict=True))


class LogCounters:
    """Counters of one log or view. Threads: changed under the log's lock, `reads` by any reader."""

    __slots__ = (
        "damaged_reads", "deleted_bytes", "deleted_segments", "flush_failures", "flushes", "load_s", "reads",
        "recovered", "rolls", "truncations",
    )  # fmt: skip

    def __init__(self) -> None:
        self.reads = Counter()
        self.damaged_reads = 0
        self.flushes = Durations()
        self.flush_failures = 0
        self.rolls = 0
        self.truncations = 0
        self.deleted_segments = dict.fromkeys(REASONS, 0)
        self.deleted_bytes = dict.fromkeys(REASONS, 0)
        self.load_s = 0.0
        self.recovered = False

    def deleted(self, reason: str, segments: int, size: int) -> None:
        """Count segments that were deleted."""
        self.deleted_segments[reason] += segments
        self.deleted_bytes[reason] += size


LOGS: Final[WeakRegistry[Any]] = WeakRegistry()
"""The logs and views of this process."""
