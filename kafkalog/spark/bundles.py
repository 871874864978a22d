"""Bundles of small ranges, so that a micro-batch of many partitions does not start a task for a few records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kafkalog.exchange.ranges import OffsetRange

__all__ = ["Bundle", "bundled"]

FEW: Final = 16
"""Number of ranges up to which each has its own task, however small."""
BUNDLE_BYTES: Final = 4 << 20
"""Bytes of log read in about the time it takes to start a task; Spark counts a small file as this many."""

Bundle = tuple[OffsetRange, ...]


def bundled(ranges: Iterable[OffsetRange], bytes_of: Callable[[OffsetRange], int]) -> list[Bundle]:
    """Return the ranges, in order, grouped by the task that reads them: several in one if they are many and small.

    A group has at most BUNDLE_BYTES, or is a single larger range. `bytes_of` returns a range's approximate size.
    """
    ranges = list(ranges)
    if len(ranges) <= FEW:
        return [(one,) for one in ranges]
    bundles: list[Bundle] = []
    filled: list[OffsetRange] = []
    room = BUNDLE_BYTES
    for one in ranges:
        size = bytes_of(one)
        if filled and size > room:
            bundles.append(tuple(filled))
            filled, room = [], BUNDLE_BYTES
        filled.append(one)
        room -= size
    return [*bundles, tuple(filled)]
