"""Scans that leave out what a predicate rules out: offsets that are not read, batches that are not decoded.

Only what is certain is left out: a record's time may be anything up to its batch's largest time, so a header or Kafka's
index rules out times above, never below. Where the time type is LogAppendTime, every record has exactly that time. For
an upper bound, the times of segments are noted (`kafkalog.time_ranges`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from copy import copy
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import IllegalArgument, KafkalogError
from kafkalog.keys.ranges import KeyRanges
from kafkalog.log.keyed import lookup_of
from kafkalog.log.scan import LogScan
from kafkalog.reading.chunks import Chunk, batch_chunks, check_end
from kafkalog.reading.source import isolation_of, truncation_count, was_truncated
from kafkalog.where.bounds import EVERY, MAX, Bounds, Spans, shared

if TYPE_CHECKING:
    from kafkalog.log.log import Log
    from kafkalog.reading.source import LogSource
    from kafkalog.time_ranges.ranges import TimeRanges

_LOG_APPEND_TIME: Final = 0x08
BUILD_TASK: Final = "build-time-ranges"
NEAR_OFFSETS: Final = 512
"""Offsets between two spans up to which those between them are read too."""


class PrunedScan(LogScan):
    """A `LogScan` of the batches that may hold a record within some bounds; it also yields other records of these.

    With `keys`, so far as key indexes locate them, only batches that may hold one of these keys are read. Damage at the
    log's end is met unless the bounds rule out the offsets there: its records may have had any time and key.
    """

    __slots__ = ("_asked", "_cuts", "_end", "_keys", "_spans", "_times")

    def __init__(
        self,
        log: Log,
        start: int,
        stop: int,
        columns: Iterable[str] | None,
        bounds: Bounds,
        keys: frozenset[bytes] | None = None,
        **options: Any,
    ) -> None:
        self._keys = keys
        self._asked = start, stop, bounds
        self._end = stop if _may_lie_behind(log._source, stop, bounds) else -1
        self._times = bounds.times
        super().__init__(log, start, stop, columns, **options)
        self._cuts = truncation_count(log._source)
        self._read_only(narrowed(log._source, start, stop, bounds))

    def _read_only(self, spans: Spans) -> None:
        self._spans = spans
        self.start, self.stop = (spans[0][0], spans[-1][1]) if spans else self._asked[:1] * 2

    def as_now(self) -> PrunedScan:
        """Return the scan of the same range in the log as it is now: after a truncation others may be in bounds."""
        if not was_truncated(self.log._source, self._cuts):
            return self
        found = copy(self)
        found._read_only(narrowed(self.log._source, *self._asked, by_time=False))  # what is missing there is met
        return found

    def _chunks(self) -> Iterator[Chunk]:
        source = self.log._source
        keys = None if self._keys is None else KeyRanges(lookup_of(self.log), self._keys)
        chunks = (
            _below(batch_chunks(source, *part, self.log, sequential=keys is None, skipped=self._skipped), part[1])
            for span in self._spans
            for times in possible_ranges(time_ranges_of(self.log), *span, self._times)
            for part in ((times,) if keys is None else keys.possible(*times))
        )
        found = chain.from_iterable(chunks)
        yield from found if self._times == EVERY else possible_chunks(found, self._times)
        if self._end >= 0:
            check_end(source, self._end, isolation_of(self.isolation) == "committed", self._skipped)

    def _identity(self) -> tuple[object, ...]:
        return *super()._identity(), self._spans, self._times, self._keys


def possible_ranges(ranges: TimeRanges, start: int, stop: int, times: Spans) -> Iterator[tuple[int, int]]:
    """Yield the parts of [start, stop) that may hold records with these times; only an upper bound rules out any."""
    if not times or times[-1][1] >= MAX:
        return iter(((start, stop),))
    return ranges.possible(start, stop, times[0][0], times[-1][1])


def time_ranges_of(log: Log) -> TimeRanges:
    """Return the notes of the times of a log's segments; the first call creates them, in memory."""
    if log._time_ranges is None:
        set_time_ranges(log, None)
        assert log._time_ranges is not None
    return log._time_ranges


def set_time_ranges(log: Log, store: bool | str | os.PathLike[str] | None) -> None:
    """Set where the time ranges of a log's segments are kept: the option `time_ranges` of `kafkalog.open`.

    Raises IllegalArgument for True in mode "r", and for a place inside a data directory.
    """
    from kafkalog.time_ranges.ranges import TimeRanges

    if store is True and log.mode == "r":
        raise IllegalArgument(
            'time_ranges is True in mode "r", which never writes beside the segments', hint="name a directory"
        )
    from kafkalog.time_ranges.place import TimeRangesPlace
    from kafkalog.util.fileio import OS

    source = log._source
    if store is None or store is False:
        # files beside the segments are used where they are; in an object store each would take a request
        beside = TimeRangesPlace(source.path, None, OS) if source.fs is OS else None
        log._time_ranges = TimeRanges(source, beside, writes=False)
        return
    # a store is local, also that of a log behind a URL
    place = TimeRangesPlace(source.path, None if store is True else store, source.fs if log.mode == "a" else OS)
    log._time_ranges = TimeRanges(source, place)
    if log._opened is not None and log._opened.tasks is not None:
        from kafkalog.log.sidecar_building import build_when_rolled
        from kafkalog.time_ranges.background import TimeRangesBuilder

        build_when_rolled(log, TimeRangesBuilder(None if isinstance(store, bool) else store), BUILD_TASK)


def narrowed(source: LogSource, start: int, stop: int, bounds: Bounds, *, by_time: bool = True) -> Spans:
    """Return the parts of [start, stop) that may hold records within the bounds, by offset, partition and time index.

    Damage that keeps the index from being searched leaves the times alone: reading meets it.
    """
    partition = source.topic_partition.partition
    if start >= stop or bounds.nothing or not shared(bounds.partitions, ((partition, partition + 1),)):
        return ()
    spans = shared(((start, stop),), bounds.offsets)
    since_ms = bounds.times[0][0] if by_time else 0
    if spans and since_ms > 0:
        first = _first_since(source, since_ms)
        spans = shared(spans, ((first, MAX),)) if first is not None else ()
    return _near_together(spans)


def _may_lie_behind(source: LogSource, stop: int, bounds: Bounds) -> bool:
    """Return True if offsets from `stop` on may match."""
    at = source.topic_partition.partition
    here = shared(bounds.partitions, ((at, at + 1),))
    return bool(here and bounds.times and shared(bounds.offsets, ((stop, MAX),)))


def _near_together(spans: Spans) -> Spans:
    """Return the spans with those joined that lie near each other: they are read together."""
    found: list[tuple[int, int]] = []
    for start, stop in spans:
        if found and start - found[-1][1] <= NEAR_OFFSETS:
            found[-1] = found[-1][0], stop
        else:
            found.append((start, stop))
    return tuple(found)


def _first_since(source: LogSource, since_ms: int) -> int | None:
    """Return the offset of the first record at or after a time, 0 if damage hides it; None if there is none."""
    try:
        found = source.offset_for_time(since_ms)
    except KafkalogError:  # damage, or a segment that is being deleted: reading reports it
        return 0
    return None if found is None else found.offset


def _below(chunks: Iterable[Chunk], stop: int) -> Iterator[Chunk]:
    """Yield the chunks without the batches from `stop` on; where v0 and v1 wrappers start is known from inside only."""
    for chunk in chunks:
        batches, last = chunk.batches, chunk.last
        while last > chunk.first and batches.base_offset(last - 1) >= stop and batches.magic(last - 1) >= 2:
            last -= 1
        if last > chunk.first:
            yield chunk if last == chunk.last else chunk._replace(last=last)


def possible_chunks(chunks: Iterable[Chunk], times: Spans) -> Iterator[Chunk]:
    """Yield the chunks without the batches whose headers rule out these times; a chunk may come in several parts."""
    least, below = (times[0][0], times[-1][1]) if times else (MAX, MAX)
    for chunk in chunks:
        start = chunk.first
        for row in _ruled_out(chunk, least, below):
            if start < row:
                yield chunk._replace(first=start, last=row)
            start = row + 1
        if start == chunk.first:
            yield chunk
        elif start < chunk.last:
            yield chunk._replace(first=start)


def _ruled_out(chunk: Chunk, least: int, below: int) -> list[int]:
    """Return the rows of the batches that have no record with a time in [least, below)."""
    from kafkalog.records.arrays import numpy

    batches = chunk.batches
    largest = numpy.asarray(batches.max_timestamps)[chunk.first : chunk.last]
    outside = largest < least
    if below < MAX:
        outside |= largest >= below
    found: list[int] = (numpy.flatnonzero(outside) + chunk.first).tolist()
    # the header of a compressed v1 message need not have the largest time of those inside
    return [
        row
        for row in found
        if batches.magic(row) >= 2
        and (batches.max_timestamp_of(row) < least or batches.attributes(row) & _LOG_APPEND_TIME)
    ]
