"""Plan of the copies of tiered segments that supply the offsets of a partition.

A partition's leader epochs say under which leader each offset was written. A copy counts for the offsets that it holds
of the epoch that wrote them; all such copies hold the same bytes. What an earlier leader copied and later lost
(an unclean election truncated it) is of another epoch, and never chosen.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kafkalog.storage.leader_epoch import EpochEntry
from kafkalog.tiered.segment_metadata import RemoteSegment


class Span(NamedTuple):
    """Offsets [start, stop) of a partition, and the copy that supplies them; None if no copy has them."""

    start: int
    stop: int
    segment: RemoteSegment | None


def lineage_of(segments: Iterable[RemoteSegment]) -> tuple[EpochEntry, ...]:
    """Return the leader epochs that copies imply, for a partition whose own epochs are unknown.

    An epoch begins at its lowest offset in any copy, and ends where a later epoch begins.
    """
    starts: dict[int, int] = {}
    for segment in segments:
        for epoch, offset in segment.epochs:
            starts[epoch] = min(offset, starts.get(epoch, offset))
    found: list[EpochEntry] = []
    for epoch, offset in sorted(starts.items(), reverse=True):
        if not found or offset < found[-1].start_offset:
            found.append(EpochEntry(epoch, offset))
    return tuple(reversed(found))


def with_implied(epochs: Sequence[EpochEntry], implied: Sequence[EpochEntry]) -> tuple[EpochEntry, ...]:
    """Return a partition's leader epochs, and before the first of them those that copies imply.

    A partition lacks the epochs of records in old formats, and those before a log start that it moved.
    """
    if not epochs:
        return tuple(implied)
    first = epochs[0]
    before = [one for one in implied if one.start_offset < first.start_offset and one.epoch <= first.epoch]
    known = epochs[1:] if before and before[-1].epoch == first.epoch else epochs
    return (*before, *known)


def plan_spans(
    segments: Sequence[RemoteSegment], epochs: Sequence[EpochEntry], start: int, stop: int
) -> tuple[Span, ...]:
    """Return the spans of offsets [start, stop), in order and without overlap.

    segments: finished copies in the order in which they were finished. Where several copies have an offset, that of the
    span before continues; else the broker's rule decides.
    """
    spans: list[Span] = []
    for epoch, low, high in _pieces(epochs, start, stop):
        position = low
        referenced = _Referenced(segments, epoch)
        while position < high:
            before = spans[-1].segment if spans else None
            segment = _copy_at(segments, referenced, before, epoch, position)
            until = _next_copied(segments, epoch, position, high) if segment is None else _end(segment, epoch)
            _append(spans, Span(position, min(until, high), segment))
            position = min(until, high)
    return tuple(_with_whole_first(spans))


def without_deleted_start(spans: Sequence[Span], deleted: Iterable[RemoteSegment]) -> tuple[Span, ...]:
    """Return the spans without a gap at their beginning whose segments the broker has deleted by its retention."""
    if not spans or spans[0].segment is not None:
        return tuple(spans)
    position, stop = spans[0].start, spans[0].stop
    for segment in sorted(deleted, key=lambda one: one.start):
        if segment.start <= position:
            position = max(position, segment.end + 1)
    return tuple(spans[1:] if position >= stop else spans)


def _pieces(epochs: Sequence[EpochEntry], start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield (epoch, first offset, offset behind the last) of the parts of [start, stop); epoch -1 if it is unknown."""
    before = min(epochs[0].start_offset, stop) if epochs else stop
    if start < before:
        yield -1, start, before
    for number, entry in enumerate(epochs):
        following = epochs[number + 1].start_offset if number + 1 < len(epochs) else stop
        low, high = max(start, entry.start_offset), min(stop, following)
        if low < high:
            yield entry.epoch, low, high


class _Referenced:
    """The copies of an epoch that a broker refers to, by their first offset of the epoch.

    A copy replaces those finished before it that begin at or behind its first offset, if it reaches as far as they do.
    """

    def __init__(self, segments: Iterable[RemoteSegment], epoch: int) -> None:
        self._copies: dict[int, RemoteSegment] = {}
        self._starts: list[int] = []
        highest = -1
        for segment in segments:
            held = segment.range_in(epoch)
            if held is None:
                continue
            first, behind = held
            while highest <= behind and self._starts and self._starts[-1] >= first:
                del self._copies[self._starts.pop()]
            if first not in self._copies:
                insort(self._starts, first)
            self._copies[first] = segment
            highest = max(highest, behind)

    def floor(self, offset: int) -> RemoteSegment | None:
        """Return the copy that begins last at or before `offset`; None if there is none."""
        row = bisect_right(self._starts, offset)
        return self._copies[self._starts[row - 1]] if row else None


def _copy_at(
    segments: Sequence[RemoteSegment], referenced: _Referenced, before: RemoteSegment | None, epoch: int,
    offset: int,
) -> RemoteSegment | None:  # fmt: skip
    """Return the copy to read an offset of `epoch` from: that of the span before, the broker's choice, or any other."""
    if before is not None and _holds(before, epoch, offset):
        return before
    floor = referenced.floor(offset)
    if floor is not None and _holds(floor, epoch, offset):
        return floor
    others = (one for one in segments if _holds(one, epoch, offset))
    return max(others, key=lambda one: _end(one, epoch), default=None)


def _holds(segment: RemoteSegment, epoch: int, offset: int) -> bool:
    held = segment.range_in(epoch)
    return held is not None and held[0] <= offset < held[1]


def _end(segment: RemoteSegment, epoch: int) -> int:
    held = segment.range_in(epoch)
    assert held is not None
    return held[1]


def _next_copied(segments: Iterable[RemoteSegment], epoch: int, offset: int, stop: int) -> int:
    """Return the first offset behind `offset` of which there is a copy; `stop` if there is none before it."""
    held = (segment.range_in(epoch) for segment in segments)
    return min((one[0] for one in held if one is not None and offset < one[0] < stop), default=stop)


def _append(spans: list[Span], span: Span) -> None:
    if spans and spans[-1].segment is span.segment and spans[-1].stop == span.start:
        span = spans.pop()._replace(stop=span.stop)
    spans.append(span)


def _with_whole_first(spans: list[Span]) -> list[Span]:
    """Return the spans with the first one extended to its segment's beginning: those offsets are below the log start.

    So the segment is not cut there, as the broker does not cut one when its log start moves.
    """
    if spans and spans[0].segment is not None:
        spans[0] = spans[0]._replace(start=min(spans[0].start, spans[0].segment.start))
    return spans
