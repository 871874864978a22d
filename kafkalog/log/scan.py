"""LogScan: a range of a log as columns, read on use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog._core.arrow.capsules import schema_of, stream_from
from kafkalog._core.arrow.columns import Columns
from kafkalog.errors import IllegalArgument, KafkalogError
from kafkalog.reading.chunks import Chunk, batch_chunks, visible_chunks
from kafkalog.reading.source import isolation_of, skipped_of
from kafkalog.records.column_reader import BATCH_BYTES, BATCH_ROWS, COLUMNS, ColumnReader, kinds_of
from kafkalog.records.table import RecordBatchColumns, Table
from kafkalog.storage.segment_reader import WHOLE_CHUNK_BYTES
from kafkalog.util.data_frames import pandas_frame, polars_frame
from kafkalog.util.keywords import unknown_keyword
from kafkalog.util.readahead import map_ahead

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from kafkalog.log.log import Log
    from kafkalog.storage.damage import Skipped

JOB_BYTES: Final = 1 << 20
"""Compressed bytes of one decoding job of a thread."""
KEPT_BYTES: Final = 16 << 20
"""Bytes of columns that a thread decodes ahead of the consumer; the rest of a job is decoded on use."""
MOST_CHOSEN: Final = 16
"""Keys that each record's key is compared with, at most, before its value is copied."""
_MOST_BATCH_ROWS: Final = 2**31 - 2
_MOST_BATCH_BYTES: Final = 1 << 30


SCAN_OPTIONS: Final = ("on_damage", "skipped", "batch_rows", "batch_bytes")
"""Keywords of a scan besides its bounds and its isolation."""
SCHEMA_OPTIONS: Final = ("schema", "schemas", "registry", "subject", "message", "framing")
"""Keywords that decoders take: those of `kafkalog.values.decoder`."""
TYPED_OPTIONS: Final = ("key", "value", "where", "project", "on_undecodable", *SCHEMA_OPTIONS)
"""Keywords that make a scan a typed one."""


def check_keywords(call: str, given: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """Return `given` if all its names are known; raise TypeError for an unknown one."""
    unknown = {name: given[name] for name in given if name not in known}
    if unknown:
        raise unknown_keyword(call, unknown, ("columns", *known))
    return given


class ColumnScan:
    """Columns read on use, in pieces: `_pieces` yields those of the columns `_kinds`."""

    __slots__ = ()
    _kinds: bytes

    def _pieces(self) -> Iterator[Columns]:
        raise NotImplementedError

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(COLUMNS[kind] for kind in self._kinds)

    def table(self) -> Table:
        """Return all records as columns in memory."""
        return Table.of(self._pieces(), self._kinds)

    def to_pandas(self) -> pandas.DataFrame:
        """Return all records as a pandas DataFrame: see `Table.to_pandas`."""
        return self.table().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """Return all records as a Polars DataFrame; raise MissingPackage if Polars is not installed."""
        return polars_frame(self)

    def __iter__(self) -> Iterator[RecordBatchColumns]:
        return (RecordBatchColumns(piece) for piece in self._pieces())

    def __arrow_c_schema__(self) -> object:
        return schema_of(self._kinds)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return stream_from(self._pieces(), self._kinds, requested_schema)


class ArrowScan:
    """Columns read on use, in record batches of pyarrow's: iteration yields those of the schema."""

    __slots__ = ()

    @property
    def schema(self) -> pyarrow.Schema:
        """Schema of the record batches."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        raise NotImplementedError

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.schema.names)

    def table(self) -> pyarrow.Table:
        """Return all rows as a pyarrow Table."""
        import pyarrow

        return pyarrow.Table.from_batches(list(self), self.schema)

    def to_pandas(self) -> pandas.DataFrame:
        """Return all rows as a pandas DataFrame; raise MissingPackage if pandas is not installed."""
        return pandas_frame(self.table())

    def to_polars(self) -> polars.DataFrame:
        """Return all rows as a Polars DataFrame; raise MissingPackage if Polars is not installed."""
        return polars_frame(self)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        import pyarrow

        return pyarrow.RecordBatchReader.from_batches(self.schema, iter(self)).__arrow_c_stream__(requested_schema)


class LogScan(ColumnScan):
    """The records of a log with offsets in [start, stop), as columns, read on use.

    It has the Arrow C stream interface, so `FROM scan` in DuckDB, `polars.DataFrame(scan)` and
    `pyarrow.RecordBatchReader.from_stream(scan)` read it, a record batch at a time, in bounded memory. Iteration yields
    the same record batches as tables. Each reading starts from the beginning, so it may be read any number of times;
    the bounds are those at its creation.

    Errors are those of `Log.records`, raised when reading reaches them; a consumer of Arrow reports them as its own
    errors, with their text, file, offset and position.
    """

    __slots__ = (
        "_batch_bytes", "_batch_rows", "_chosen", "_kinds", "_skipped", "isolation", "log", "reads_ahead", "start",
        "stop",
    )  # fmt: skip

    def __init__(
        self,
        log: Log,
        start: int,
        stop: int,
        columns: Iterable[str] | None = None,
        *,
        isolation: str | None = None,
        on_damage: str = "raise",
        skipped: list[Skipped] | None = None,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        if not 0 < batch_rows <= _MOST_BATCH_ROWS:
            raise IllegalArgument(f"batch_rows is {batch_rows}", hint=f"give 1 to {_MOST_BATCH_ROWS}")
        if not 0 < batch_bytes <= _MOST_BATCH_BYTES:
            raise IllegalArgument(f"batch_bytes is {batch_bytes}", hint=f"give 1 to {_MOST_BATCH_BYTES}")
        self.log = log
        self.start = start
        self.stop = max(start, stop)
        self.isolation = isolation
        self.reads_ahead = True
        """Whether threads decode compressed batches ahead of the reader."""
        self._chosen: tuple[bytes, ...] | None = None
        self._kinds = kinds_of(columns)
        self._skipped = skipped_of(on_damage, skipped)
        self._batch_rows = batch_rows
        self._batch_bytes = batch_bytes

    def _pieces(self) -> Iterator[Columns]:
        """Yield the columns of the range in pieces: uncompressed batches in this thread, compressed ones in several."""
        committed = isolation_of(self.isolation) == "committed"
        visible = visible_chunks(self.log._source, self._chunks(), committed, self.stop, self._skipped)
        rising = trim_overlaps(visible, self.start, self.stop)
        for compressed, group in groupby(rising, lambda run: bool(run.chunk.batches.codec)):
            if not (compressed and self.reads_ahead):
                yield from self._read(group)
                continue
            for columns in map_ahead(self._decode, _jobs(group)):
                yield from columns

    def as_now(self) -> LogScan:
        """Return the scan to read; one that found at its creation what it need not read finds that again."""
        return self

    def with_values_of(self, keys: frozenset[bytes] | None) -> LogScan:
        """Return this scan with empty values beside all other keys, which a condition rules out; None is any key.

        Values beside many keys are all there: to compare each key with them would take longer than a copy.
        """
        if keys is None or len(keys) > MOST_CHOSEN:
            return self
        found = copy(self)
        found._chosen = tuple(keys)
        return found

    def _chunks(self) -> Iterator[Chunk]:
        """Yield the batches with offsets in the range."""
        return batch_chunks(
            self.log._source, self.start, self.stop, self.log,
            sequential=True, skipped=self._skipped, chunk_bytes=WHOLE_CHUNK_BYTES,
        )  # fmt: skip

    def _reader(self, start: int) -> ColumnReader:
        where = self.log.topic_partition
        return ColumnReader(
            self._kinds,
            start,
            self.stop,
            topic=where.topic,
            partition=where.partition,
            batch_rows=self._batch_rows,
            batch_bytes=self._batch_bytes,
            chosen=self._chosen,
        )

    def _read(self, runs: Iterable[Run]) -> Iterator[Columns]:
        """Yield the columns of some runs; before an error those of all records before it."""
        reader: ColumnReader | None = None
        try:
            for run in runs:
                if reader is None:
                    reader = self._reader(max(self.start, run.start))
                chunk = run.chunk
                yield from reader.read(
                    chunk.data, chunk.batches, chunk.first, chunk.last, base_position=chunk.position, path=chunk.path
                )
                if reader.ended:
                    break
        except KafkalogError:
            if reader is not None:
                yield from reader.rest()
            raise
        if reader is not None:
            yield from reader.rest()

    def _decode(self, job: list[Run]) -> Iterable[Columns]:
        """Return the columns of some runs, decoded up to KEPT_BYTES; an error comes after the columns before it."""
        pieces = self._read(job)
        decoded: list[Columns] = []
        size = 0
        while size < KEPT_BYTES:
            try:
                decoded.append(next(pieces))
            except StopIteration:
                return decoded
            except Exception as error:
                return chain(decoded, _raise_on_use(error))
            size += decoded[-1].nbytes
        return chain(decoded, pieces)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LogScan):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[object, ...]:
        return (
            id(self.log), self.start, self.stop, self._kinds, self._chosen, self.isolation, self._skipped is None,
            self._batch_rows, self._batch_bytes,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<LogScan {self.log.name} [{self.start}, {self.stop}): {', '.join(self.columns)}>"


class Run(NamedTuple):
    """A chunk whose records are used from offset `start` on."""

    chunk: Chunk
    start: int


def trim_overlaps(chunks: Iterable[Chunk], start: int, stop: int) -> Iterator[Run]:
    """Yield the chunks with their first new offset: a batch rewritten after a truncation may start below it.

    So may all batches of a chunk, where those before it were read beyond the end of their part of the log.
    Batches that start at or above `stop` are left out, except v0 and v1 wrappers, whose start is known from their
    records only.
    """
    for chunk in chunks:
        batches, last = chunk.batches, chunk.last
        while last > chunk.first and batches.base_offset(last - 1) >= stop and batches.magic(last - 1) >= 2:
            last -= 1
        if last > chunk.first:
            yield Run(chunk._replace(last=last), start)
            start = max(start, batches.last_offset_of(last - 1) + 1)


def _jobs(runs: Iterable[Run]) -> Iterator[list[Run]]:
    """Yield the runs in lists of about JOB_BYTES; before an error all runs before it."""
    job: list[Run] = []
    size = 0
    try:
        for run in runs:
            job.append(run)
            size += len(run.chunk.data)
            if size >= JOB_BYTES:
                yield job
                job, size = [], 0
    except KafkalogError:
        if job:
            yield job
        raise
    if job:
        yield job


def _raise_on_use(error: Exception) -> Iterator[Columns]:
    try:
        raise error
    finally:
        del error  # else it, its traceback and this frame keep each other alive
    yield
