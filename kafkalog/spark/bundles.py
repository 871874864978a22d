"""Small ranges put together, so that a micro-batch of many partitions is no task for a few records of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kafkalog.exchange.ranges import OffsetRange

__all__ = ["Bundle", "bundled"]

FEW: Final = 16
"""So many ranges have a task each, however small they are."""
BUNDLE_BYTES: Final = 4 << 20
"""Bytes of log that a task reads in about the time that it takes to start one; Spark counts a small file as so much."""

Bundle = tuple[OffsetRange, ...]


def bundled(ranges: Iterable[OffsetRange], bytes_of: Callable[[OffsetRange], int]) -> list[Bundle]:
    """The ranges, in order, by the task that reads them: several in one where they are many and small.

    Together they are at most BUNDLE_BYTES, or a single larger one. `bytes_of` tells about how long a range is.
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
