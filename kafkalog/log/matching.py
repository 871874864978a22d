"""Records that match a predicate: it is evaluated on columns, and only the records that match are made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kafkalog._core.batch.record import Record
from kafkalog.errors import KafkalogError
from kafkalog.log.scan import LogScan, Run, trim_overlaps
from kafkalog.log.selection import Selection
from kafkalog.log.typed_scan import TypedScan
from kafkalog.reading.chunks import visible_chunks
from kafkalog.reading.source import isolation_of
from kafkalog.records.table import RecordBatchColumns
from kafkalog.records.tables import record_tables

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["matching_records"]


class _Found(NamedTuple):
    """The offsets that match in a run, then possibly an error."""

    offsets: list[NDArray[int]]  # type: ignore[type-var]
    failure: KafkalogError | None


def matching_records(typed: TypedScan) -> Iterator[Record]:
    """Yield the records that a typed scan of offsets returns, in order; errors as for `Log.records`."""
    scan, selection = typed.scan, typed.selection
    source = scan.log._source
    committed = isolation_of(scan.isolation) == "committed"
    visible = visible_chunks(source, scan._chunks(), committed, scan.stop, scan._skipped)
    following = scan.start
    for run in trim_overlaps(visible, scan.start, scan.stop):
        found = _find(scan, selection, run)
        if found.offsets:
            for record in _records_at(run, found):
                if record.offset >= following:
                    following = record.offset + 1
                    yield record
        if found.failure is not None:
            raise found.failure


def _find(scan: LogScan, selection: Selection, run: Run) -> _Found:
    import pyarrow

    offsets = []
    try:
        for piece in scan._read([run]):
            batch = pyarrow.record_batch(RecordBatchColumns(piece))
            mask = selection.mask(batch)
            passing = batch.column(batch.schema.get_field_index("offset"))
            passing = passing if mask is None else passing.filter(mask)
            if len(passing):
                offsets.append(passing.to_numpy())
    except KafkalogError as error:
        return _Found(offsets, error)
    return _Found(offsets, None)


def _records_at(run: Run, found: _Found) -> Iterator[Record]:
    """Yield the records with these offsets; damage behind the last one was met before."""
    from kafkalog.records.arrays import numpy

    chunk = run.chunk
    offsets = numpy.concatenate(found.offsets)
    tables = record_tables(
        chunk.data, chunk.batches, chunk.first, chunk.last, base_position=chunk.position, path=chunk.path
    )
    try:
        for table in tables:
            for row in numpy.flatnonzero(numpy.isin(numpy.asarray(table.offsets), offsets)).tolist():
                yield table[row]
    except KafkalogError:
        if found.failure is None:
            raise
