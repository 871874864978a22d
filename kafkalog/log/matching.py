"""Records that match a predicate: it is evaluated on columns, and only the records that match are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog._core.batch.decode import RecordTable
from kafkalog._core.batch.record import Record
from kafkalog.errors import KafkalogError
from kafkalog.log.scan import Run, trim_overlaps
from kafkalog.log.typed_scan import TypedScan
from kafkalog.reading.chunks import visible_chunks
from kafkalog.reading.source import isolation_of
from kafkalog.records.table import RecordBatchColumns
from kafkalog.records.tables import record_tables

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Matches(NamedTuple):
    """Rows of a record table that match, in order, and the file they come from."""

    table: RecordTable
    rows: list[int]
    path: str


class _Found(NamedTuple):
    """The offsets that match in a run, then possibly an error."""

    offsets: list[NDArray[Any]]
    failure: KafkalogError | None


def matching_records(typed: TypedScan) -> Iterator[Record]:
    """Yield the records that a typed scan of offsets returns, in order; errors as for `Log.records`."""
    for found in matching_rows(typed):
        table = found.table
        for row in found.rows:
            yield table[row]


def matching_rows(typed: TypedScan, tell: Callable[[int, int], None] | None = None) -> Iterator[Matches]:
    """Yield the records that a typed scan of offsets returns, as rows of tables.

    `tell` is called after each chunk with its bytes and the next offset; an exception of it ends the reading. All
    records before an error are yielded before it is raised.
    """
    scan = typed.scan
    source = scan.log._source
    committed = isolation_of(scan.isolation) == "committed"
    visible = visible_chunks(source, scan._chunks(), committed, scan.stop, scan._skipped)
    following = scan.start
    for run in trim_overlaps(visible, scan.start, scan.stop):
        found = _find(typed, run)
        if found.offsets:
            for matches in _tables_of(run, found):
                rows = []
                offsets = matches.table.offsets
                for row in matches.rows:
                    if offsets[row] >= following:
                        following = offsets[row] + 1
                        rows.append(row)
                if rows:
                    yield matches._replace(rows=rows)
        if tell is not None:
            tell(len(run.chunk.data), run.chunk.next_offset)
        if found.failure is not None:
            raise found.failure


def _find(typed: TypedScan, run: Run) -> _Found:
    import pyarrow

    offsets = []
    try:
        for piece in typed.scan._read([run]):
            batch = pyarrow.record_batch(RecordBatchColumns(piece))
            mask = typed.selection.mask(batch)
            passing = batch.column(batch.schema.get_field_index("offset"))
            passing = passing if mask is None else passing.filter(mask)
            if len(passing):
                offsets.append(passing.to_numpy())
    except KafkalogError as error:
        return _Found(offsets, error)
    return _Found(offsets, None)


def _tables_of(run: Run, found: _Found) -> Iterator[Matches]:
    """Yield the rows with the offsets that were found; damage behind the last one was met before."""
    from kafkalog.records.arrays import numpy

    chunk = run.chunk
    wanted = numpy.concatenate(found.offsets)
    tables = record_tables(
        chunk.data, chunk.batches, chunk.first, chunk.last, base_position=chunk.position, path=chunk.path
    )
    try:
        for table in tables:
            rows = numpy.flatnonzero(numpy.isin(numpy.asarray(table.offsets), wanted))
            yield Matches(table, rows.tolist(), chunk.path)
    except KafkalogError:
        if found.failure is None:
            raise
