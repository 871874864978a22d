"""Table: records as columns in memory, which NumPy, DuckDB, Polars, pandas and pyarrow read without a copy."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from kafkalog._core.arrow.capsules import array_of, schema_of, stream_of
from kafkalog._core.arrow.columns import Columns, gathered
from kafkalog.errors import IllegalArgument, MissingPackage
from kafkalog.records.column_reader import COLUMNS, kinds_of
from kafkalog.util.text import html_table

if TYPE_CHECKING:
    import numpy
    import pandas
    from numpy.typing import DTypeLike, NDArray

SHOWN_ROWS = 20
"""Most rows displayed in a notebook."""
_FIXED = frozenset(COLUMNS.index(name) for name in ("partition", "offset", "timestamp", "timestampType"))


class Table:
    """Records as columns; `len` is their number. A table is immutable, so any number of threads may use it.

    `offsets`, `timestamps` (ms), `timestamp_types` and `partitions` are read-only NumPy arrays over the table's own
    memory. In a table of several record batches, the first access to one makes these columns contiguous. `table["key"]`
    is one column, `table[a:b]` some rows, `table.select([...])` some columns, all without a copy. `table[i]` is a row
    as a dict.

    A row that `Log.get_table` found no record for is null in every column; arrays of numbers have -1 there.

    Any consumer of the Arrow C stream interface can read it: `pyarrow.table(t)`, `polars.DataFrame(t)`, `FROM t` in
    DuckDB. Types are those of Spark's Kafka source, every column nullable: key and value binary, topic string,
    partition int32, offset int64, timestamp timestamp[ms, UTC], timestampType int32 (0 CreateTime, 1 LogAppendTime, -1
    none), headers list<struct<key: string, value: binary>>. A consumer may request large_binary, binary_view, the
    corresponding string types, or timestamps in microseconds or another time zone.
    """

    __slots__ = ("_columns", "_start", "_stop")

    def __init__(self, columns: Columns, start: int = 0, stop: int | None = None) -> None:
        self._columns = columns
        self._start = start
        self._stop = len(columns) if stop is None else stop

    @classmethod
    def of(cls, parts: Iterable[Columns], kinds: bytes) -> Table:
        """Return a table with the records of all parts, in order."""
        return cls(gathered(parts, kinds))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(COLUMNS[kind] for kind in self._columns.kinds)

    @property
    def nbytes(self) -> int:
        """Bytes of the memory behind the table; memory outside a slice counts too, since it stays allocated."""
        return self._columns.nbytes

    # Columns with one value a row

    @property
    def offsets(self) -> NDArray[numpy.int64]:
        """Offsets, int64."""
        return self["offset"].to_numpy()

    @property
    def timestamps(self) -> NDArray[numpy.int64]:
        """Timestamps, int64: ms since 1970, -1 for none. `.view("datetime64[ms]")` copies nothing."""
        return self["timestamp"].to_numpy()

    @property
    def timestamp_types(self) -> NDArray[numpy.int32]:
        """Timestamp types, int32: 0 CreateTime, 1 LogAppendTime, -1 for format v0, which has no timestamps."""
        return self["timestampType"].to_numpy()

    @property
    def partitions(self) -> NDArray[numpy.int32]:
        """Partition number of every row, int32."""
        return self["partition"].to_numpy()

    # Selection

    @overload
    def __getitem__(self, key: str) -> TableColumn: ...
    @overload
    def __getitem__(self, key: SupportsIndex) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: slice) -> Table: ...
    def __getitem__(self, key: str | SupportsIndex | slice) -> TableColumn | dict[str, Any] | Table:
        if isinstance(key, str):
            return TableColumn(self._columns, kinds_of([key], self.columns)[0], self._start, self._stop)
        if isinstance(key, slice):
            if key.step not in (None, 1):
                raise IllegalArgument(f"a table has no slice with step {key.step}", hint="omit the step")
            first, last, _ = key.indices(len(self))
            return type(self)(self._columns, self._start + first, self._start + max(first, last))
        row = _row(operator.index(key), len(self)) + self._start
        return {COLUMNS[kind]: self._columns.values(kind, row, row + 1)[0] for kind in self._columns.kinds}

    def select(self, columns: Iterable[str]) -> Table:
        """Return the same records with these columns, in this order; raise IllegalArgument for a missing column."""
        return type(self)(self._columns.chosen(kinds_of(columns, self.columns)), self._start, self._stop)

    def batches(self) -> Iterator[RecordBatchColumns]:
        """Yield the record batches of the table, none empty; each also has `__arrow_c_array__`."""
        first = 0
        for number, end in enumerate(self._columns.piece_ends):
            start, stop = max(self._start, first), min(self._stop, end)
            if start < stop:
                yield RecordBatchColumns(self._columns.piece(number), start - first, stop - first)
            first = end

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas DataFrame, made without pyarrow: numbers are copied, keys and values become bytes objects.

        timestamp is datetime64[ms, UTC]; key, value, topic and headers are objects, headers as in `Record.headers`. In
        a table with null rows, numbers are Int64. Raises ImportError if pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise MissingPackage(
                f"to_pandas() needs pandas ({error}); Polars, DuckDB and pyarrow read the table directly",
                hint="pip install 'kafkalog[pandas]'",
            ) from None
        if self._columns.absent:
            columns = {name: _nullable_column(self[name].to_pylist(), name, pandas) for name in self.columns}
        else:
            columns = {name: _pandas_column(self[name].to_numpy(), name, pandas) for name in self.columns}
        return pandas.DataFrame(columns, columns=list(self.columns), copy=False)

    # Arrow

    def __arrow_c_schema__(self) -> object:
        return schema_of(self._columns.kinds)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return stream_of(self._columns, self._start, self._stop, requested_schema)

    # The object

    def __len__(self) -> int:
        return self._stop - self._start

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in range(len(self)):
            yield self[row]

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} records: {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        rows = [list(row.values()) for row in self[:SHOWN_ROWS]]
        first = f"the first {SHOWN_ROWS} of " if len(self) > SHOWN_ROWS else ""
        return html_table(self.columns, rows, f"{first}{len(self):,} records")


class RecordBatchColumns(Table):
    """Records of one record batch of a table; `__arrow_c_array__` exports it whole: `pyarrow.record_batch(b)`."""

    __slots__ = ()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return array_of(self._columns, self._start, self._stop, requested_schema)


class TableColumn:
    """One column of a table: `len`, `column[i]`, iteration, `to_numpy()`, and the Arrow C stream interface."""

    __slots__ = ("_columns", "_kind", "_start", "_stop")

    def __init__(self, columns: Columns, kind: int, start: int, stop: int) -> None:
        self._columns = columns
        self._kind = kind
        self._start = start
        self._stop = stop

    @property
    def name(self) -> str:
        """Name of the column."""
        return COLUMNS[self._kind]

    def to_numpy(self) -> NDArray[Any]:
        """Return a read-only view of the table's memory for a numeric column; else a new array of Python objects."""
        from kafkalog.records.arrays import numpy

        if self._kind in _FIXED:
            return numpy.asarray(self._columns.fixed(self._kind))[self._start : self._stop]
        out = numpy.empty(len(self), dtype=object)
        out[:] = self.to_pylist()
        return out

    def to_pylist(self) -> list[Any]:
        """Return the values as Python objects: bytes or None, str, int, headers as in `Record.headers`."""
        return self._columns.values(self._kind, self._start, self._stop)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        array = self.to_numpy()
        return array if dtype is None and not copy else array.astype(dtype or array.dtype, copy=True)

    def __arrow_c_schema__(self) -> object:
        return schema_of(bytes((self._kind,)), True)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        alone = self._columns.chosen(bytes((self._kind,)))
        return stream_of(alone, self._start, self._stop, requested_schema, alone=True)

    @overload
    def __getitem__(self, key: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, key: slice) -> TableColumn: ...
    def __getitem__(self, key: SupportsIndex | slice) -> object:
        if isinstance(key, slice):
            if key.step not in (None, 1):
                raise IllegalArgument(f"a column has no slice with step {key.step}", hint="omit the step")
            first, last, _ = key.indices(len(self))
            return TableColumn(self._columns, self._kind, self._start + first, self._start + max(first, last))
        row = _row(operator.index(key), len(self)) + self._start
        return self._columns.values(self._kind, row, row + 1)[0]

    def __iter__(self) -> Iterator[Any]:
        step = 4096
        for first in range(self._start, self._stop, step):
            yield from self._columns.values(self._kind, first, min(first + step, self._stop))

    def __len__(self) -> int:
        return self._stop - self._start

    def __repr__(self) -> str:
        return f"<TableColumn {self.name} of {len(self)} records>"


def _pandas_column(values: NDArray[Any], name: str, pandas: Any) -> Any:
    if name == "timestamp":
        return pandas.Series(values.view("datetime64[ms]").copy()).dt.tz_localize("UTC")
    return pandas.Series(values if values.dtype == object else values.copy())


def _nullable_column(values: list[Any], name: str, pandas: Any) -> Any:
    if COLUMNS.index(name) not in _FIXED:
        return pandas.Series(values, dtype=object)
    whole = pandas.Series(values, dtype="Int64")
    return pandas.to_datetime(whole, unit="ms", utc=True).dt.as_unit("ms") if name == "timestamp" else whole


def _row(index: int, count: int) -> int:
    """Return a row's number; negative ones count from the end. Raises IndexError for a missing row."""
    row = index + count if index < 0 else index
    if not 0 <= row < count:
        raise IndexError(f"row {index} of a table of {count} records")
    return row
