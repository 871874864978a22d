"""A read cut into Spark partitions: ranges of offsets, along the batches, of about the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from errno import ENOENT
from math import ceil

from kafkalog.errors import CorruptRecord, StorageError
from kafkalog.spark.options import SourceOptions
from kafkalog.spark.partitions import PartitionViews
from kafkalog.storage.view import LogView
from kafkalog.storage.view_segment import ViewSegment
from kafkalog.types import TopicPartition

__all__ = ["OffsetRange", "boundaries", "bytes_between", "cut", "plan_ranges"]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets [start, stop) of the partition in `directory`: what one task reads."""

    topic: str
    partition: int
    directory: str
    start: int
    stop: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    def __len__(self) -> int:
        return self.stop - self.start


def plan_ranges(
    views: PartitionViews,
    starts: Mapping[TopicPartition, int],
    stops: Mapping[TopicPartition, int],
    options: SourceOptions,
) -> list[OffsetRange]:
    """The ranges that together are [start, stop) of each partition, none of them empty, in order.

    They are cut at batch boundaries, at about `max_partition_bytes` each, or at so few that there are
    `min_partitions`; where batches are too few for that, and for `max_records_per_partition`, at any offset.
    """
    wanted = [one for one in starts if starts[one] < stops[one]]
    most_bytes = options.max_partition_bytes
    if options.min_partitions:
        total = sum(bytes_between(views[one], starts[one], stops[one]) for one in wanted)
        most_bytes = max(1, min(most_bytes, total // options.min_partitions))
    found = []
    for one in wanted:
        whole = OffsetRange(one.topic, one.partition, views.directories[one], starts[one], stops[one])
        found += cut(whole, boundaries(views[one], starts[one], stops[one], most_bytes))
    if options.max_records_per_partition:
        most = options.max_records_per_partition
        found = [part for one in found for part in divided(one, ceil(len(one) / most))]
    if options.min_partitions:
        found = at_least(found, options.min_partitions)
    return found


def cut(whole: OffsetRange, offsets: Sequence[int]) -> list[OffsetRange]:
    """The range cut at these offsets; those outside it are passed over."""
    inside = sorted({offset for offset in offsets if whole.start < offset < whole.stop})
    places = [whole.start, *inside, whole.stop]
    return [replace(whole, start=first, stop=last) for first, last in zip(places, places[1:], strict=False)]


def divided(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """The range as so many ranges of nearly equal length, as the Kafka source divides; fewer where it is shorter."""
    size = len(whole)
    parts = min(parts, size)
    return cut(whole, [whole.start + size * i // parts for i in range(1, parts)])


def at_least(ranges: list[OffsetRange], least: int) -> list[OffsetRange]:
    """The ranges, divided by their share of all offsets until there are at least so many, where that can be."""
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


def boundaries(view: LogView, start: int, stop: int, most_bytes: int) -> list[int]:
    """Base offsets of batches in (start, stop), about `most_bytes` of the data files apart."""
    found = []
    room = most_bytes
    for segment, first, last in _spans(view, start, stop):
        if room <= 0:
            found.append(max(segment.base_offset, start))
            room = most_bytes
        while last - first > room:
            batch = segment.boundary_after(first + room)
            if batch is None or batch.position >= last:
                break
            found.append(batch.base_offset)
            first = batch.position
            room = most_bytes
        room -= last - first
    return found


def _spans(view: LogView, start: int, stop: int) -> Iterator[tuple[ViewSegment, int, int]]:
    """The segments that hold offsets of [start, stop), and from where to where in their files, in bytes.

    A segment that its owner deletes meanwhile is passed over: reading tells what that means.
    """
    segments = list(view.segments)
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if segment.base_offset >= stop or (following is not None and following.base_offset <= start):
            continue
        try:
            first = _position(segment, start) if start > segment.base_offset else 0
            within = following is None or stop < following.base_offset
            yield segment, first, _position(segment, stop) if within else segment.size
        except StorageError as error:
            if error.errno != ENOENT:
                raise


def _position(segment: ViewSegment, offset: int) -> int:
    """Where the batch with this offset begins; the segment's end where there is none, or the damage that hides it."""
    try:
        found = segment.translate_offset(offset)
    except CorruptRecord as error:
        return segment.size if error.position is None else min(error.position, segment.size)
    return segment.size if found is None else found[1]


def bytes_between(view: LogView, start: int, stop: int) -> int:
    """About so many bytes of the data files hold offsets of [start, stop)."""
    return sum(last - first for _, first, last in _spans(view, start, stop))
