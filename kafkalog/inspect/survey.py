"""Survey of a log: selects the bytes to read and computes the statistics.

Batch headers are enough for most of them: bytes are read in chunks, scanned by compiled code without the GIL, and
summed as arrays. Records are decoded only if their sizes or keys are requested.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from errno import ENOENT
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog._core.batch.scan import BatchTable, scan
from kafkalog.cleaner.types import bytes_of
from kafkalog.errors import CorruptRecord, KafkalogError, StorageError
from kafkalog.inspect.damage import DamagedPlace, Locate, SegmentDamage, damage_in_sample, sound_chunks
from kafkalog.inspect.details import DETAIL_BYTES, DetailTally
from kafkalog.inspect.headers import HeaderColumns
from kafkalog.inspect.parts import IndexSummary, index_summary
from kafkalog.inspect.sample import Sample, Window, windows
from kafkalog.inspect.stats import CodecStats, Dirty, LogStats, SegmentStats
from kafkalog.inspect.tally import SegmentTally, Span, Tally, spans_between
from kafkalog.records.format import codec_name
from kafkalog.storage.file_slice import LARGEST_OFFSET, claimed_size
from kafkalog.storage.names import index_file_name, log_file_name
from kafkalog.storage.readonly.index import OffsetIndexView
from kafkalog.types import OffsetPosition, TopicPartition

if TYPE_CHECKING:
    from kafkalog.storage.log import UnifiedLog
    from kafkalog.storage.readonly.view import LogView
    from kafkalog.storage.segments import AnySegment, AnySegments

    LogSource = LogView | UnifiedLog

_WHOLE_BATCH: Final = 32 << 20
"""Largest batch of a sample that is read although it exceeds its window."""


class SurveyOptions(NamedTuple):
    """Requested statistics besides those from headers, and the most bytes to read (None for all)."""

    most_bytes: int | None
    sizes: bool = False
    keys: bool = False
    detail_bytes: int | None = DETAIL_BYTES
    first_dirty_offset: int | None = None
    """Offset at which the dirty part of a compacted log begins; None for a log that is not compacted."""


def survey(
    engine: LogSource,
    topic_partition: TopicPartition,
    options: SurveyOptions,
    progress: Callable[[float], object] | None = None,
    *,
    locate: Locate,
) -> LogStats:
    """Return the statistics of an open log, a `LogView` or a `UnifiedLog`; unreadable data is reported in `problems`.

    `progress` is called after each chunk with the share, 0 to 1, of the bytes to be read. `locate` finds the damage of
    a segment that shows signs of it.
    """
    return _Survey(engine, topic_partition, options, locate).run(progress)


class _Survey:
    """One survey in progress."""

    def __init__(
        self, engine: LogSource, topic_partition: TopicPartition, options: SurveyOptions, locate: Locate
    ) -> None:
        self._locate = locate
        self._is_whole = False
        self._damage: dict[int, SegmentDamage] = {}
        self._topic_partition = topic_partition
        self._options = options
        self._path: str = engine.path
        self._start, self._end = engine.log_start_offset, engine.log_end_offset
        self._all: AnySegments = engine.segments
        self._fs = engine.fs
        self._segments: tuple[AnySegment, ...] = tuple(self._all)
        self._sizes = [segment.size for segment in self._segments]
        self._tally = Tally(len(self._segments))
        self._details = DetailTally(keys=options.keys) if options.sizes or options.keys else None
        self._problems = [str(problem) for problem in getattr(engine, "problems", ())]
        self._end_damage: CorruptRecord | None = engine.tail_damage
        self._places: list[tuple[int, int, int]] = []
        self._index: tuple[int, OffsetIndexView] | None = None

    def run(self, progress: Callable[[float], object] | None) -> LogStats:
        """Read the requested bytes and return the statistics."""
        chosen, is_whole = windows(self._sizes, self._options.most_bytes)
        self._is_whole = is_whole
        interval = self._decode_interval(chosen)
        number = done = 0
        total = max(sum(window.size for window in chosen), 1)
        for window in chosen:
            before = -1
            for data, table in self._chunks(window):
                if before < 0:
                    before = table.base_offset(0) if window.position else self._segments[window.segment].base_offset - 1
                columns = self._tally.add(window.segment, data, table, before)
                before = table.last_offset
                if not is_whole:
                    self._record_progress(window, table, columns)
                if self._details is not None and number % interval == 0 and not self._details.is_full:
                    self._details.add(data, table, self._segments[window.segment].path)
                number += 1
                done += len(data)
                if progress is not None:
                    progress(min(done / total, 1.0))
        return self._stats(is_whole, len(chosen), was_decoded_whole=is_whole and interval == 1)

    def _decode_interval(self, chosen: Sequence[Window]) -> int:
        """Return n if the records of every n-th chunk are decoded."""
        most = self._options.detail_bytes
        return 1 if most is None else max(1, -(-sum(window.size for window in chosen) // most))

    # Reading

    def _chunks(self, window: Window) -> Iterator[tuple[bytes, BatchTable]]:
        """Yield the batches of a window; damage ends it and is noted."""
        segment = self._segments[window.segment]
        try:
            position = window.position and self._boundary(window)
            if position is None:
                return
            end = window.position + window.size
            size = max(end - position, 0) if end == self._sizes[window.segment] else window.size
            found = False
            stop = position + min(size, segment.size - position)
            number = window.segment
            bound = self._segments[number + 1].base_offset if number + 1 < len(self._segments) else LARGEST_OFFSET
            find = partial(self._find_sound, number)
            for chunk in sound_chunks(segment, position, stop, find, bound=bound, is_whole=self._is_whole):
                found = True
                yield chunk
            if not found and window.position:
                yield from self._one_batch(segment, position)
        except KafkalogError as error:
            if not isinstance(error, StorageError) or error.errno != ENOENT:  # deleted by retention in the meantime
                self._problems.append(str(error))

    def _boundary(self, window: Window) -> int | None:
        """Return the position of the first batch at or after the window's, by the offset index; None if it is unknown.

        An index entry is trusted only if a whole batch with the right checksum begins there.
        """
        segment = self._segments[window.segment]
        if self._index is None or self._index[0] != window.segment:
            name = index_file_name(segment.base_offset)
            path = os.path.join(self._path, name)
            self._index = window.segment, OffsetIndexView(path, segment.base_offset, fs=self._fs)
        index = self._index[1]
        base = segment.base_offset
        entry = index.fetch_upper_bound_offset(OffsetPosition(base, window.position), 0)
        at = entry.position if entry is not None else -1
        if not index.entries or at >= self._sizes[window.segment]:
            return None
        if at < 0:  # the last entry is before it, and only the segment's end follows that entry
            at = index.entry(index.entries - 1).position
        head = segment.records.read(at, 16 << 10)
        size = claimed_size(head)
        if len(head) < size <= _WHOLE_BATCH:
            head = segment.records.read(at, size)
        table = scan(head, file_mode=True, max_batches=1)
        is_sound = len(table) == 1 and table.first_invalid < 0 and table.base_offset(0) >= base
        return at if is_sound else None

    def _find_sound(self, number: int, position: int, last: int) -> Sequence[tuple[int, int]]:
        """Return the intact ranges of a segment after damage was met; none if the segment is only sampled."""
        if self._is_whole:
            return self._damage_of(number).sound
        self._add_sampled(number, position, last)
        return ()

    def _add_sampled(self, number: int, position: int, last: int) -> None:
        path = os.path.join(self._path, log_file_name(self._segments[number].base_offset))
        before = self._damage.get(number, SegmentDamage((), ()))
        self._damage[number] = SegmentDamage((*before.places, damage_in_sample(path, position, last)), ())

    def _damage_of(self, number: int) -> SegmentDamage:
        """Return the damage of a segment; it is searched for once."""
        if number not in self._damage:
            following = self._segments[number + 1].base_offset if number + 1 < len(self._segments) else None
            self._damage[number] = self._locate(self._segments[number], following)
        return self._damage[number]

    def _damaged_places(self) -> tuple[DamagedPlace, ...]:
        """Return all damage found, in log order; a view that ends early is damaged in its last segment."""
        number = len(self._segments) - 1
        if self._end_damage is not None and not self._is_whole:
            self._add_sampled(number, self._end_damage.position or 0, self._end - 1)
        elif self._segments and (self._problems or self._end_damage is not None) and self._is_whole:
            try:
                self._damage_of(number)
            except KafkalogError as error:
                self._problems.append(str(error))
        return tuple(place for number in sorted(self._damage) for place in self._damage[number].places)

    @staticmethod
    def _one_batch(segment: AnySegment, position: int) -> Iterator[tuple[bytes, BatchTable]]:
        size = claimed_size(segment.records.read(position, 17))
        if 0 < size <= min(_WHOLE_BATCH, segment.size - position):
            yield from sound_chunks(segment, position, position + size, lambda *_: ())

    def _record_progress(self, window: Window, table: BatchTable, columns: HeaderColumns) -> None:
        """Record the times at which the log had certain offsets and bytes."""
        is_known = (columns.times >= 0) & ~columns.is_control
        if is_known.any():
            before = sum(self._sizes[: window.segment])
            at = min(max(table.base_offset(0), self._start), self._end)
            self._places.append((int(columns.first_times[is_known][0]), at - self._start, before + table.position(0)))
            last = min(max(table.last_offset + 1, at), self._end)
            self._places.append((int(columns.times[is_known][-1]), last - self._start, before + table.stop_position))

    # Result

    def _stats(self, is_whole: bool, places: int, *, was_decoded_whole: bool) -> LogStats:
        tally, details = self._tally, self._details
        read = sum(one.bytes for one in tally.segments)
        total = sum(self._sizes)
        sample = Sample(read, total, 0 if is_whole else places)
        segments = tuple(self._segment(number, is_whole) for number in range(len(self._segments)))
        counted = [one for one in segments if one.records is not None and one.batches is not None]
        size_counted = sum(one.size for one in counted)
        scale = total / size_counted if size_counted and not is_whole else 1.0
        records = round(sum(one.records or 0 for one in counted) * scale)
        factor = total / read if read and not is_whole else 1.0
        times = [one for one in tally.segments if one.first_ms >= 0]
        damage = self._damaged_places()
        problems = [*map(str, damage), *self._problems, *(details.problems if details is not None else ())]
        return LogStats(
            topic_partition=self._topic_partition, path=self._path, start_offset=self._start, end_offset=self._end,
            size=total, sample=sample, records=min(records, self._end - self._start) if not is_whole else records,
            batches=round(sum(one.batches or 0 for one in counted) * scale),
            control_batches=round(sum(one.control_batches for one in tally.segments) * factor),
            first_ms=min((one.first_ms for one in times), default=-1),
            last_ms=max((one.last_ms for one in times), default=-1),
            segments=segments, indexes=self._index_summaries(), codecs=self._codecs(factor),
            formats={magic: round(count * factor) for magic, count in tally.formats.items()},
            batch_sizes=tally.batch_sizes, batch_records=tally.batch_records,
            spans=tuple(tally.spans() if is_whole else self._spans(records)),
            key_sizes=details.key_sizes if details is not None and self._options.sizes else None,
            value_sizes=details.value_sizes if details is not None and self._options.sizes else None,
            tombstones=details.tombstones if details is not None else 0,
            keys=details.spread(was_decoded_whole and not details.is_full and not details.problems)
            if details is not None and self._options.keys else None,
            dirty=self._dirty(),
            problems=tuple(dict.fromkeys(problems)), damage=damage,
            checked_batches=sum(one.batches + one.control_batches for one in tally.segments),
        )  # fmt: skip

    def _segment(self, number: int, is_whole: bool) -> SegmentStats:
        segment, tally, size = self._segments[number], self._tally.segments[number], self._sizes[number]
        end = self._segments[number + 1].base_offset if number + 1 < len(self._segments) else self._end
        place = (segment.base_offset, end, size, tally.bytes)
        if is_whole or tally.bytes >= size:
            return SegmentStats(*place, tally.records, tally.batches, tally.first_ms, tally.last_ms)
        if not tally.bytes:
            return SegmentStats(*place, None, None, -1, -1)
        records = _estimate_records(tally, size, end - segment.base_offset)
        return SegmentStats(*place, records, round(tally.batches * size / tally.bytes), tally.first_ms, tally.last_ms)

    def _index_summaries(self) -> tuple[IndexSummary, ...]:
        named = zip(self._segments, self._sizes, strict=True)
        return tuple(index_summary(self._path, segment.base_offset, size, self._fs) for segment, size in named)

    def _codecs(self, factor: float) -> tuple[CodecStats, ...]:
        found = []
        for codec, one in sorted(self._tally.codecs.items()):
            ratio = 1.0 if not codec else one.plain_bytes / one.packed_bytes if one.packed_bytes else None
            batches, records, size = (round(value * factor) for value in (one.batches, one.records, one.bytes))
            found.append(CodecStats(codec_name(codec), batches, records, size, ratio))
        return tuple(found)

    def _spans(self, records: int) -> list[Span]:
        """Return records and bytes by time, from places: offsets are scaled to records by their average share."""
        spans = spans_between(self._places)
        share = records / max(self._end - self._start, 1)
        return [one._replace(records=one.records * share) for one in spans]

    def _dirty(self) -> Dirty | None:
        first = self._options.first_dirty_offset
        if first is None or not self._segments:
            return None
        active = self._segments[-1].base_offset
        first = min(max(first, self._start), self._end)
        clean, dirty = bytes_of(self._all, min(first, active), active)
        return Dirty(first, clean, dirty)


def _estimate_records(tally: SegmentTally, size: int, offsets: int) -> int:
    """Estimate the records of a segment of which a part was read.

    If no offset was missing in that part, none is assumed missing elsewhere: records are the offsets less the markers.
    """
    if tally.offsets == tally.entries and tally.entries:
        return round(offsets * tally.records / tally.entries)
    return min(round(tally.records * size / tally.bytes), offsets)
