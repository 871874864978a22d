"""Division of a read into Spark partitions: offset ranges of about the same bytes, and small ranges in one task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import Final

from kafkalog.exchange.ranges import OffsetRange, boundaries, bytes_between, cut
from kafkalog.spark.options import SourceOptions
from kafkalog.spark.partitions import PartitionViews
from kafkalog.types import TopicPartition

FEW: Final = 16
"""Number of ranges up to which only tiny ones share a task, so that a batch of few rows may still use all cores."""
TINY_BYTES: Final = 64 << 10
"""Bytes of log whose rows take less time than the start of their task, whatever is done with them."""
BUNDLE_BYTES: Final = 4 << 20
"""Bytes of log read in about the time it takes to start a task; Spark counts a small file as this many."""


def whole_ranges(
    views: PartitionViews,
    starts: Mapping[TopicPartition, int],
    stops: Mapping[TopicPartition, int],
    ids: Mapping[TopicPartition, str | None],
) -> list[OffsetRange]:
    """Return the range [start, stop) of each partition in which there are offsets; `ids` are those of the topics."""
    return [
        OffsetRange(one.topic, one.partition, views.directories[one], starts[one], stops[one], ids.get(one))
        for one in starts
        if starts[one] < stops[one]
    ]


def plan_ranges(views: PartitionViews, wholes: Sequence[OffsetRange], options: SourceOptions) -> list[OffsetRange]:
    """Return the ranges, in order, cut for the tasks of a job.

    They are cut at batch boundaries, at about `max_partition_bytes` or at fewer bytes to reach `min_partitions`. If
    there are too few batches for that, and for `max_records_per_partition`, they are cut at any offset.
    """
    most_bytes = options.max_partition_bytes
    if options.min_partitions:
        total = sum(bytes_between(views[one.topic_partition], one.start, one.stop) for one in wholes)
        most_bytes = max(1, min(most_bytes, total // options.min_partitions))
    found = []
    for one in wholes:
        found += cut(one, boundaries(views[one.topic_partition], one.start, one.stop, most_bytes))
    if options.max_records_per_partition:
        most = options.max_records_per_partition
        found = [part for one in found for part in divided(one, ceil(len(one) / most))]
    if options.min_partitions:
        found = at_least(found, options.min_partitions)
    return found


def divided(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Return the range cut into `parts` of nearly equal length, as the Kafka source cuts it; fewer if it is shorter."""
    size = len(whole)
    parts = min(parts, size)
    return cut(whole, [whole.start + size * i // parts for i in range(1, parts)])


def at_least(ranges: list[OffsetRange], least: int) -> list[OffsetRange]:
    """Return the ranges, divided by their share of all offsets until there are `least` of them, if possible."""
    if not ranges or len(ranges) >= least:
        return ranges
    parts = [1] * len(ranges)
    missing = least - len(ranges)
    while missing:
        largest = max(range(len(ranges)), key=lambda i: (len(ranges[i]) / parts[i], -i))
        if parts[largest] >= len(ranges[largest]):
            break
        parts[largest] += 1
        missing -= 1
    return [part for one, count in zip(ranges, parts, strict=True) for part in divided(one, count)]


def bundled(ranges: Iterable[OffsetRange], bytes_of: Callable[[OffsetRange], int]) -> list[tuple[OffsetRange, ...]]:
    """Return the ranges, in order, grouped by the task that reads them: several in one if they are small.

    A group has at most BUNDLE_BYTES, TINY_BYTES if there are few, or is a single larger range. `bytes_of` returns a
    range's approximate size.
    """
    ranges = list(ranges)
    if len(ranges) < 2:
        return [(one,) for one in ranges]
    most_bytes = TINY_BYTES if len(ranges) <= FEW else BUNDLE_BYTES
    bundles = []
    filled: list[OffsetRange] = []
    room = most_bytes
    for one in ranges:
        size = bytes_of(one)
        if filled and size > room:
            bundles.append(tuple(filled))
            filled, room = [], most_bytes
        filled.append(one)
        room -= size
    return [*bundles, tuple(filled)]
