"""Records that match a predicate: it is evaluated on columns, and only the records that match are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog._core.batch.decode import RecordTable
from kafkalog._core.batch.record import Record
from kafkalog.errors import InvalidRecord, KafkalogError
from kafkalog.log.pruning import PrunedScan
from kafkalog.log.scan import Run, trim_overlaps
from kafkalog.log.typed_scan import TypedScan, typed_scan
from kafkalog.reading.chunks import visible_chunks
from kafkalog.reading.source import isolation_of
from kafkalog.records.column_reader import COLUMNS
from kafkalog.records.table import RecordBatchColumns
from kafkalog.util.python_rows import python_rows

if TYPE_CHECKING:
    import pyarrow
    from numpy.typing import NDArray

    from kafkalog.log.log import Log
    from kafkalog.log.selection import Selection
    from kafkalog.where import Expression

_NO_OBJECT: Final = "scan() returns it as a column; on_undecodable='null' gives null, and the reason beside it"


class DecodedRecord(NamedTuple):
    """A record whose key or value is decoded: Python objects as pyarrow makes them of a typed scan's columns.

    `key_error` and `value_error` say why one does not decode, with `on_undecodable="null"`; it is None then. `record`
    is the record as it is stored.
    """

    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    key_error: str | None
    value_error: str | None
    record: Record


class Matches(NamedTuple):
    """Rows of a record table that match, in order, and the file they come from.

    `decoded` has the columns of a typed scan for these and other records near them, if they were asked for.
    """

    table: RecordTable
    rows: list[int]
    path: str
    decoded: list[pyarrow.RecordBatch]


class _Found(NamedTuple):
    """The offsets that match in a run, and their columns if these are wanted; then possibly an error."""

    offsets: list[NDArray[Any]]
    decoded: list[pyarrow.RecordBatch]
    failure: KafkalogError | None


def matching_records(typed: TypedScan) -> Iterator[Record]:
    """Yield the records that a typed scan of offsets returns, in order; errors as for `Log.records`."""
    for found in matching_rows(typed):
        table = found.table
        for row in found.rows:
            yield table[row]


def records_decoded(
    log: Log,
    bounds: tuple[int, int],
    decoded: list[str],
    where: str | Expression | None,
    typed: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Iterator[DecodedRecord]:
    """Return an iterator of the records for which `where` is true, with the keys and values of `decoded`, in order.

    A field in a condition has the type that its constants imply, whatever type it has in the decoded value. Raises
    IllegalArgument for wrong keywords (`TYPED_OPTIONS`) and options of a `LogScan`; iteration as `Log.records`.
    """
    full = typed_scan(log, *bounds, ["offset", *decoded], typed, options)
    if where is None:
        return _records_decoded(full, full.selection)
    selection = typed_scan(log, *bounds, ["offset"], {**typed, "where": where}, options).selection
    wanted = {*selection.columns, *full.selection.columns}
    columns = [name for name in COLUMNS if name in wanted]
    scan = PrunedScan(log, *bounds, columns, selection.bounds, selection.keys, **options)
    return _records_decoded(TypedScan(scan, selection), full.selection)


def _records_decoded(typed: TypedScan, decoder: Selection) -> Iterator[DecodedRecord]:
    batches: list[pyarrow.RecordBatch] = []
    rows: Iterator[dict[str, Any]] = iter(())
    by_offset: dict[int, dict[str, Any]] = {}
    for found in matching_rows(typed, decoder=decoder):
        if found.decoded is not batches:
            batches = found.decoded
            rows = chain.from_iterable(python_rows(batch, hint=_NO_OBJECT) for batch in batches)
            by_offset = {}
        for number in found.rows:
            record = found.table[number]
            while record.offset not in by_offset:
                row = next(rows)
                by_offset[row["offset"]] = row
            row = by_offset.pop(record.offset)
            yield DecodedRecord(
                record.offset, record.timestamp, row["key"] if "key" in row else record.key,
                row["value"] if "value" in row else record.value, record.headers, row.get("key_error"),
                row.get("value_error"), record,
            )  # fmt: skip


def matching_rows(
    typed: TypedScan, tell: Callable[[int, int], None] | None = None, *, decoder: Selection | None = None
) -> Iterator[Matches]:
    """Yield the records that a typed scan of offsets returns, as rows of tables, with the columns of `decoder`.

    `tell` is called after each chunk with its bytes and the next offset; an exception of it ends the reading. All
    records before an error are yielded before it is raised.
    """
    scan = typed.scan.as_now()
    typed = TypedScan(scan, typed.selection)
    source = scan.log._source
    committed = isolation_of(scan.isolation) == "committed"
    visible = visible_chunks(source, scan._chunks(), committed, scan.stop, scan._skipped)
    following = scan.start
    for run in trim_overlaps(visible, scan.start, scan.stop):
        found = _find(typed, run, decoder)
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


def _find(typed: TypedScan, run: Run, decoder: Selection | None) -> _Found:
    import pyarrow

    offsets: list[NDArray[Any]] = []
    decoded: list[pyarrow.RecordBatch] = []
    try:
        for piece in typed.scan._read([run]):
            batch = pyarrow.record_batch(RecordBatchColumns(piece))
            mask = typed.selection.mask(batch)
            if decoder is not None:
                for part in _decoded(decoder, batch if mask is None else batch.filter(mask)):
                    decoded.append(part)
                    offsets.append(part.column("offset").to_numpy())
                continue
            passing = batch.column(batch.schema.get_field_index("offset"))
            passing = passing if mask is None else passing.filter(mask)
            if len(passing):
                offsets.append(passing.to_numpy())
    except KafkalogError as error:
        return _Found(offsets, decoded, error)
    return _Found(offsets, decoded, None)


def _decoded(decoder: Selection, batch: pyarrow.RecordBatch) -> Iterator[pyarrow.RecordBatch]:
    """Yield the decoded columns of a batch; those before a row that does not decode, and then raise its error."""
    import pyarrow.compute as pc

    failure: InvalidRecord | None = None
    try:
        found = decoder.batch(batch)
    except InvalidRecord as error:
        failure = error
        found = decoder.batch(batch.filter(pc.less(batch.column("offset"), error.offset)))
    if found.num_rows:
        yield found
    if failure is not None:
        raise failure


def _tables_of(run: Run, found: _Found) -> Iterator[Matches]:
    """Yield the rows with the offsets that were found; damage behind the last one was met before."""
    from kafkalog.records.arrays import numpy

    chunk = run.chunk
    wanted = numpy.concatenate(found.offsets)
    try:
        for table in chunk.record_tables():
            rows = numpy.flatnonzero(numpy.isin(numpy.asarray(table.offsets), wanted))
            yield Matches(table, rows.tolist(), chunk.path, found.decoded)
    except KafkalogError:
        if found.failure is None:
            raise
