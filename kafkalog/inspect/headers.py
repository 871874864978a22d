"""What the headers of a chunk of batches say, as NumPy columns; records are not touched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog._core.scan import BatchTable
from kafkalog.inspect.values import LAST_MS
from kafkalog.records.format import CODEC_MASK, CONTROL_BIT, MAGIC_V2

if TYPE_CHECKING:
    import numpy

    Ints = numpy.ndarray[Any, Any]

__all__ = ["HeaderColumns", "header_columns"]

_MAGIC_AT: Final = 16
_LEGACY_ATTRIBUTES_AT: Final = 17
_ATTRIBUTES_AT: Final = 22
"""The low byte of a v2 batch's attributes, which has all bits that mean something."""
_MOST_RECORDS: Final = 2**31 - 1


class HeaderColumns(NamedTuple):
    """One value for each batch. `records` is 0 for a control batch.

    `times` are the largest timestamps (ms), -1 where there is none that a calendar has a date for.
    """

    sizes: Ints
    records: Ints
    offsets: Ints
    codecs: Ints
    formats: Ints
    times: Ints
    is_control: Ints

    def __len__(self) -> int:
        return len(self.sizes)


def header_columns(data: bytes, table: BatchTable, before: int) -> HeaderColumns:
    """The columns of a table that was made from `data`, whose first batch is the table's first.

    `before` is the last offset in front of it. What a header claims is bounded: numbers of damaged bytes must not run
    over in a sum. `offsets` are how many the batch takes. A compressed message of format v0 or v1 does not say how many
    records it holds, and its offset is that of the last one: as many as the offsets since the batch before it.
    """
    import numpy

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
    spans = numpy.clip(numpy.where(last >= first, last - first, 0), 0, _MOST_RECORDS) + 1
    counts = numpy.where(is_wrapper, spans, counts)
    claimed = numpy.clip(numpy.where(is_control, 0, counts), 0, _MOST_RECORDS)
    times = numpy.asarray(table.max_timestamps)
    return HeaderColumns(
        numpy.asarray(table.sizes), claimed, spans, (bits & CODEC_MASK).astype(numpy.int64),
        numpy.clip(magics, 0, MAGIC_V2).astype(numpy.int64), numpy.where((times >= 0) & (times <= LAST_MS), times, -1),
        is_control,
    )  # fmt: skip
