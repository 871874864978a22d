"""Sums over the batches that were read, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog._core.batch.scan import BatchTable
from kafkalog.errors import KafkalogError
from kafkalog.inspect.headers import HeaderColumns, header_columns
from kafkalog.inspect.histogram import Histogram
from kafkalog.records.compression import decompress
from kafkalog.records.format import BATCH_OVERHEAD_BYTES, MAGIC_V2

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

_TIME_STEPS: Final = 4096
"""Most time steps stored; beyond that, pairs of steps are merged."""
_FIRST_STEP_MS: Final = 1000
_MAX_PARTS: Final = 64
"""Most equal parts of time over which a batch's records are spread; fewer if a chunk has many batches."""
_CHUNK_PARTS: Final = 1 << 16
_PLAIN_LIMIT: Final = 64 << 20
"""Largest decompressed size at which a batch's compression ratio is measured."""


class Span(NamedTuple):
    """Records and bytes written in [start, end) ms."""

    start_ms: int
    end_ms: int
    records: float
    bytes: float


@dataclass(slots=True)
class CodecTally:
    """Batches of one codec. `packed_bytes` and `plain_bytes` cover only those decompressed to measure the ratio."""

    batches: int = 0
    records: int = 0
    bytes: int = 0
    packed_bytes: int = 0
    plain_bytes: int = 0


@dataclass(slots=True)
class SegmentTally:
    """The batches of one segment that were read; times are ms, -1 for none, `first_ms` that of a first record.

    `offsets` is the number of offsets that they take, markers included. If it equals `entries`, compaction removed no
    record.
    """

    bytes: int = 0
    batches: int = 0
    records: int = 0
    control_batches: int = 0
    offsets: int = 0
    entries: int = 0
    first_ms: int = -1
    last_ms: int = -1


class Tally:
    """All sums of a log. Only the thread that adds may use it."""

    def __init__(self, segments: int) -> None:
        self.segments = [SegmentTally() for _ in range(segments)]
        self.codecs: dict[int, CodecTally] = {}
        self.formats: dict[int, int] = {}
        self.batch_sizes = Histogram()
        self.batch_records = Histogram()
        self._step_ms = _FIRST_STEP_MS
        self._steps: dict[int, list[float]] = {}

    def add(self, segment: int, data: bytes, table: BatchTable, before: int) -> HeaderColumns:
        """Add a chunk of a segment and return its columns; `before` is the last offset before it."""
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
        is_known = (columns.times >= 0) & ~columns.is_control
        if is_known.any():
            first = int(columns.first_times[is_known].min())
            tally.first_ms = first if tally.first_ms < 0 else min(tally.first_ms, first)
            tally.last_ms = max(tally.last_ms, int(columns.times[is_known].max()))

    def _add_codecs(self, data: bytes, table: BatchTable, columns: HeaderColumns) -> None:
        from kafkalog.records.arrays import numpy

        for magic, count in _count_values(columns.formats):
            self.formats[magic] = self.formats.get(magic, 0) + count
        for codec, _ in _count_values(columns.codecs):
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
                    _measure_ratio(tally, data, table, int(rows[len(rows) // 2]))

    def _add_times(self, columns: HeaderColumns) -> None:
        """Add the batches to steps of time, spread evenly from their first timestamps to their largest.

        Markers and batches without times are left out.
        """
        from kafkalog.records.arrays import numpy

        chosen = (columns.times >= 0) & ~columns.is_control
        first, last = columns.first_times[chosen], columns.times[chosen]
        most = max(1, min(_MAX_PARTS, _CHUNK_PARTS // max(len(first), 1)))
        parts = numpy.minimum(last // self._step_ms - first // self._step_ms + 1, most)
        batch = numpy.repeat(numpy.arange(len(parts)), parts)
        part = numpy.arange(len(batch)) - numpy.repeat(numpy.cumsum(parts) - parts, parts)
        times = first[batch] + ((part + 0.5) / parts[batch] * (last - first)[batch]).astype(numpy.int64)
        steps, index = numpy.unique(times // self._step_ms, return_inverse=True)
        records, sizes = (
            numpy.bincount(index, weights=(column[chosen] / parts)[batch], minlength=len(steps))
            for column in (columns.records, columns.sizes)
        )
        for step, count, size in zip(steps.tolist(), records.tolist(), sizes.tolist(), strict=True):
            known = self._steps.setdefault(step, [0.0, 0.0])
            known[0] += count
            known[1] += size
        while len(self._steps) > _TIME_STEPS:
            self._coarsen()

    def _coarsen(self) -> None:
        self._step_ms *= 2
        finer, self._steps = self._steps, {}
        for step, (records, size) in finer.items():
            known = self._steps.setdefault(step // 2, [0.0, 0.0])
            known[0] += records
            known[1] += size

    def spans(self) -> list[Span]:
        """Return the records and bytes by time step, oldest first.

        If batches come at regular distances longer than a step, a span begins where the previous one ended, since its
        records were written in that time. Otherwise the distances would appear as a pattern.
        """
        width = self._step_ms
        steps = sorted(self._steps)
        distances = sorted(after - before for before, after in zip(steps, steps[1:], strict=False))
        middle = distances[len(distances) // 2] if distances else 1
        is_regular = len(distances) >= 8 and distances[len(distances) * 9 // 10] <= 3 * middle
        longest_span = 2 * middle if is_regular else 1
        spans, end = [], -1
        for step in steps:
            records, size = self._steps[step]
            start = step if end < 0 else max(end, step + 1 - longest_span)
            end = step + 1
            spans.append(Span(start * width, end * width, records, size))
        return spans


def _count_values(values: NDArray[numpy.int64]) -> Iterable[tuple[int, int]]:
    from kafkalog.records.arrays import numpy

    kinds, counts = numpy.unique(values, return_counts=True)
    return zip(kinds.tolist(), counts.tolist(), strict=True)


def _measure_ratio(tally: CodecTally, data: bytes, table: BatchTable, row: int) -> None:
    """Add the packed and decompressed sizes of one v2 batch of a chunk; a damaged batch is ignored."""
    at = table.position(row) - table.position(0)
    packed = memoryview(data)[at + BATCH_OVERHEAD_BYTES : at + table.size(row)]
    try:
        plain = decompress(table.attributes(row) & 7, packed, limit_bytes=_PLAIN_LIMIT)
    except KafkalogError:
        return
    tally.packed_bytes += len(packed)
    tally.plain_bytes += len(plain)


def spans_between(places: Sequence[tuple[int, int, int]]) -> list[Span]:
    """Return spans of a sampled log from places, each (ms, records before it, bytes before it).

    Data between two places was written between their times; if a time goes back, the two times are swapped.
    """
    spans = []
    for (start, records, size), (end, more_records, more_size) in zip(places, places[1:], strict=False):
        if more_records > records or more_size > size:
            low, high = min(start, end), max(start, end)
            spans.append(Span(low, max(high, low + 1), more_records - records, more_size - size))
    return spans
