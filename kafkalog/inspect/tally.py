"""Sums over the batches that were looked at, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog._core.scan import BatchTable
from kafkalog.errors import KafkalogError
from kafkalog.inspect.headers import HeaderColumns, header_columns
from kafkalog.inspect.histogram import Histogram
from kafkalog.records.compression import decompress
from kafkalog.records.format import BATCH_OVERHEAD_BYTES, MAGIC_V2

if TYPE_CHECKING:
    import numpy

__all__ = ["CodecTally", "SegmentTally", "Span", "Tally"]

_TIME_STEPS: Final = 4096
"""Steps of time that are kept apart; with more, two become one."""
_FIRST_STEP_MS: Final = 1000
_PLAIN_LIMIT: Final = 64 << 20
"""A batch that decompresses to more is not asked for its ratio."""


class Span(NamedTuple):
    """Records and bytes written in [start, end) ms."""

    start_ms: int
    end_ms: int
    records: float
    bytes: float


class CodecTally:
    """Batches of one codec. `packed_bytes` and `plain_bytes` are those of the batches that were decompressed to see."""

    __slots__ = ("batches", "bytes", "packed_bytes", "plain_bytes", "records")

    def __init__(self) -> None:
        self.batches = 0
        self.records = 0
        self.bytes = 0
        self.packed_bytes = 0
        self.plain_bytes = 0


class SegmentTally:
    """The batches of one segment that were looked at; times are ms, -1 for none.

    `offsets` is how many offsets they take, markers too: where it equals `entries`, no record was compacted away.
    """

    __slots__ = ("batches", "bytes", "control_batches", "entries", "first_ms", "last_ms", "offsets", "records")

    def __init__(self) -> None:
        self.bytes = 0
        self.batches = 0
        self.records = 0
        self.control_batches = 0
        self.offsets = 0
        self.entries = 0
        self.first_ms = -1
        self.last_ms = -1


class Tally:
    """All sums of a log. Threads: belongs to the one that adds."""

    def __init__(self, segments: int) -> None:
        self.segments = [SegmentTally() for _ in range(segments)]
        self.codecs: dict[int, CodecTally] = {}
        self.formats: dict[int, int] = {}
        self.batch_sizes = Histogram()
        self.batch_records = Histogram()
        self._step_ms = _FIRST_STEP_MS
        self._steps: dict[int, list[int]] = {}

    def add(self, segment: int, data: bytes, table: BatchTable, before: int) -> HeaderColumns:
        """Takes in a chunk of a segment, and gives its columns; `before` is the last offset in front of it."""
        columns = header_columns(data, table, before)
        self._add_segment(self.segments[segment], columns)
        is_data = ~columns.is_control
        self.batch_sizes.add(columns.sizes[is_data])
        self.batch_records.add(columns.records[is_data & (columns.records > 0)])
        self._add_codecs(data, table, columns)
        self._add_times(columns)
        return columns

    @staticmethod
    def _add_segment(tally: SegmentTally, columns: HeaderColumns) -> None:
        controls = int(columns.is_control.sum())
        records = int(columns.records.sum())
        tally.bytes += int(columns.sizes.sum())
        tally.batches += len(columns) - controls
        tally.control_batches += controls
        tally.records += records
        tally.offsets += int(columns.offsets.sum())
        tally.entries += records + controls
        known = columns.times[(columns.times >= 0) & ~columns.is_control]
        if len(known):
            first = int(known.min())
            tally.first_ms = first if tally.first_ms < 0 else min(tally.first_ms, first)
            tally.last_ms = max(tally.last_ms, int(known.max()))

    def _add_codecs(self, data: bytes, table: BatchTable, columns: HeaderColumns) -> None:
        import numpy

        for magic, count in _counted(columns.formats):
            self.formats[magic] = self.formats.get(magic, 0) + count
        for codec, _ in _counted(columns.codecs):
            chosen = (columns.codecs == codec) & ~columns.is_control
            if not chosen.any():
                continue
            tally = self.codecs.setdefault(codec, CodecTally())
            tally.batches += int(chosen.sum())
            tally.records += int(columns.records[chosen].sum())
            tally.bytes += int(columns.sizes[chosen].sum())
            if codec:
                rows = numpy.flatnonzero(chosen & (columns.formats == MAGIC_V2))
                if len(rows):
                    _decompressed(tally, data, table, int(rows[len(rows) // 2]))

    def _add_times(self, columns: HeaderColumns) -> None:
        """Adds the batches to steps of time, by their largest timestamps; markers and batches without are left out."""
        import numpy

        chosen = (columns.times >= 0) & ~columns.is_control
        steps, index = numpy.unique(columns.times[chosen] // self._step_ms, return_inverse=True)
        records = numpy.bincount(index, weights=columns.records[chosen], minlength=len(steps))
        sizes = numpy.bincount(index, weights=columns.sizes[chosen], minlength=len(steps))
        for step, count, size in zip(steps.tolist(), records.tolist(), sizes.tolist(), strict=True):
            known = self._steps.setdefault(step, [0, 0])
            known[0] += int(count)
            known[1] += int(size)
        while len(self._steps) > _TIME_STEPS:
            self._coarsen()

    def _coarsen(self) -> None:
        self._step_ms *= 2
        finer, self._steps = self._steps, {}
        for step, (records, size) in finer.items():
            known = self._steps.setdefault(step // 2, [0, 0])
            known[0] += records
            known[1] += size

    def spans(self) -> list[Span]:
        """The records and bytes by steps of time, oldest first.

        Where batches come at regular distances that are longer than steps, a span begins where the one before it ended,
        since that is when its records were written: else the distances would show as a pattern.
        """
        width = self._step_ms
        steps = sorted(self._steps)
        apart = sorted(after - before for before, after in zip(steps, steps[1:], strict=False))
        middle = apart[len(apart) // 2] if apart else 1
        is_regular = len(apart) >= 8 and apart[len(apart) * 9 // 10] <= 3 * middle
        usual = 2 * middle if is_regular else 1
        spans, end = [], -1
        for step in steps:
            records, size = self._steps[step]
            start = step if end < 0 else max(end, step + 1 - usual)
            end = step + 1
            spans.append(Span(start * width, end * width, records, size))
        return spans


def _counted(values: numpy.ndarray[Any, Any]) -> Iterable[tuple[int, int]]:
    import numpy

    kinds, counts = numpy.unique(values, return_counts=True)
    return zip(kinds.tolist(), counts.tolist(), strict=True)


def _decompressed(tally: CodecTally, data: bytes, table: BatchTable, row: int) -> None:
    """Adds what one v2 batch of a chunk decompresses to; a damaged one is left out."""
    at = table.position(row) - table.position(0)
    packed = memoryview(data)[at + BATCH_OVERHEAD_BYTES : at + table.size(row)]
    try:
        plain = decompress(table.attributes(row) & 7, packed, limit_bytes=_PLAIN_LIMIT)
    except KafkalogError:
        return
    tally.packed_bytes += len(packed)
    tally.plain_bytes += len(plain)


def spans_between(places: Sequence[tuple[int, int, int]]) -> list[Span]:
    """Spans of a log of which only some places were seen: each is (ms, records before it, bytes before it).

    What lies between two places was written between their times; a time that goes back counts as that before it.
    """
    spans = []
    for (start, records, size), (end, more_records, more_size) in zip(places, places[1:], strict=False):
        if more_records > records or more_size > size:
            low, high = min(start, end), max(start, end)
            spans.append(Span(low, max(high, low + 1), more_records - records, more_size - size))
    return spans
