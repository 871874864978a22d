"""Header fields of a chunk of batches as NumPy columns; records are not read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog._core.batch.scan import BatchTable
from kafkalog.inspect.values import LAST_MS
from kafkalog.records.format import CODEC_MASK, CONTROL_BIT, DELETE_HORIZON_BIT, MAGIC_V2, TIMESTAMP_TYPE_BIT

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Ints = NDArray[numpy.int64]
    Octets = NDArray[numpy.uint8]
    Flags = NDArray[numpy.bool_]

_MAGIC_AT: Final = 16
_LEGACY_ATTRIBUTES_AT: Final = 17
_ATTRIBUTES_AT: Final = 22
"""Position of the low byte of a v2 batch's attributes, which has all bits with a meaning."""
_BASE_TIMESTAMP_AT: Final = 27
_MAX_RECORDS: Final = 2**31 - 1


class HeaderColumns(NamedTuple):
    """One value for each batch. `records` is 0 for a control batch.

    `times` are the largest timestamps (ms), -1 for a time without a calendar date. `first_times` are the timestamps of
    the first records where a header states them and they are not larger; otherwise they equal `times`.
    """

    sizes: Ints
    records: Ints
    offsets: Ints
    codecs: Ints
    formats: Ints
    times: Ints
    first_times: Ints
    is_control: Flags

    def __len__(self) -> int:
        return len(self.sizes)


def header_columns(data: bytes, table: BatchTable, before: int) -> HeaderColumns:
    """Return the columns of a table made from `data`, which begins with the table's first batch.

    `before` is the last offset before it. Claims of headers are clipped, so that numbers from damaged bytes cannot
    overflow a sum. `offsets` is the number of offsets that the batch takes. A compressed message of format v0 or v1
    does not state its number of records, and its offset is that of its last record: the offsets since the batch before
    it are counted.
    """
    from kafkalog.records.arrays import numpy

    raw = numpy.frombuffer(data, numpy.uint8)
    positions = numpy.asarray(table.positions)
    at = positions - positions[0]
    magics = raw[at + _MAGIC_AT].view(numpy.int8)
    is_v2 = magics >= MAGIC_V2
    bits = numpy.where(is_v2, raw[at + _ATTRIBUTES_AT], raw[at + _LEGACY_ATTRIBUTES_AT] & CODEC_MASK)
    is_control = is_v2 & ((bits & CONTROL_BIT) != 0)
    counts = numpy.asarray(table.counts).astype(numpy.int64)
    first, last = numpy.asarray(table.base_offsets), numpy.asarray(table.last_offsets)
    is_wrapper = ~is_v2 & (counts < 0)
    if is_wrapper.any():
        first = numpy.where(is_wrapper, numpy.concatenate(([before], last[:-1])) + 1, first)
    spans = numpy.clip(numpy.where(last >= first, last - first, 0), 0, _MAX_RECORDS) + 1
    counts = numpy.where(is_wrapper, spans, counts)
    claimed = numpy.clip(numpy.where(is_control, 0, counts), 0, _MAX_RECORDS)
    times = numpy.asarray(table.max_timestamps)
    times = numpy.where((times >= 0) & (times <= LAST_MS), times, -1)
    return HeaderColumns(
        numpy.asarray(table.sizes), claimed, spans, (bits & CODEC_MASK).astype(numpy.int64),
        numpy.clip(magics, 0, MAGIC_V2).astype(numpy.int64), times, _first_times(raw, at, is_v2, bits, times),
        is_control,
    )  # fmt: skip


def _first_times(raw: Octets, at: Ints, is_v2: Flags, bits: Octets, times: Ints) -> Ints:
    """Return the base timestamps of v2 batches, and `times` for all others.

    Batches with LogAppendTime get `times`, since all their records have the largest time, and so do batches whose base
    timestamp is a delete horizon (format.md §2).
    """
    from kafkalog.records.arrays import numpy

    known = is_v2 & ((bits & (TIMESTAMP_TYPE_BIT | DELETE_HORIZON_BIT)) == 0)
    places = numpy.where(known, at + _BASE_TIMESTAMP_AT, 0)[:, None] + numpy.arange(8)
    base = raw[places].view(">i8")[:, 0].astype(numpy.int64)
    return numpy.where(known & (base >= 0) & (base <= times), base, times)
