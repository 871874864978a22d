"""Ranges of a plan without the offsets that a condition on time rules out, by the rules of the library's own scans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalog.exchange.ranges import OffsetRange, bytes_between
from kafkalog.log.pruning import narrowed, possible_ranges
from kafkalog.spark.ranges import BUNDLE_BYTES
from kafkalog.time_ranges.place import TimeRangesPlace
from kafkalog.time_ranges.ranges import TimeRanges
from kafkalog.util.fileio import OS
from kafkalog.where.bounds import EVERY, MAX, Bounds, Spans, joined, shared

if TYPE_CHECKING:
    from kafkalog.spark.partitions import PartitionViews
    from kafkalog.storage.readonly.view import LogView


def ranges_in_time(
    views: PartitionViews, ranges: Sequence[OffsetRange], times: Spans, store: str | None
) -> list[OffsetRange]:
    """Return the parts of the ranges that may hold records with these times, rising; all of them for EVERY time.

    The time index rules out offsets below a lower bound. Time ranges rule out offsets behind an upper bound: those in
    the directory `store`, which are noted there first where they are missing; without a store there are none. Parts
    with fewer than BUNDLE_BYTES between them stay together, since a task takes as long to start. Raises
    IllegalArgument for a store inside a data directory.
    """
    if times == EVERY:
        return list(ranges)
    found: list[OffsetRange] = []
    for whole in ranges:
        view = views[whole.topic_partition]
        spans = _within_index(view, whole, times)
        if store is not None:
            noted = TimeRanges(view, TimeRangesPlace(view.path, store, OS))
            spans = tuple(part for span in spans for part in possible_ranges(noted, *span, times))
        found += [replace(whole, start=start, stop=stop) for start, stop in _merged(view, spans)]
    return found


def _within_index(view: LogView, whole: OffsetRange, times: Spans) -> Spans:
    """Return the parts that the time index leaves; behind damage, which ends the index, there may be any time."""
    spans = narrowed(view, whole.start, whole.stop, Bounds(EVERY, times, EVERY))
    if view.damage is None or not times:
        return spans
    return joined(spans, shared(((whole.start, whole.stop),), ((view.active_segment.base_offset, MAX),)))


def _merged(view: LogView, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the spans; those with little of the log between them as one."""
    first, last = -1, -1
    for start, stop in spans:
        if first >= 0 and bytes_between(view, last, start) < BUNDLE_BYTES:
            last = stop
            continue
        if first >= 0:
            yield first, last
        first, last = start, stop
    if first >= 0:
        yield first, last
