"""The records of a topic as rows of a table: decoded keys and values, and the columns beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.dirs.scan import with_decoders
from kafkalog.errors import IllegalArgument, InvalidRecord
from kafkalog.lake.positions import ReadRange
from kafkalog.lake.renames import numbers_of, with_names
from kafkalog.log.scan import TYPED_OPTIONS, LogScan
from kafkalog.log.selection import Selection
from kafkalog.log.typed_keywords import selection_of
from kafkalog.records.column_reader import BATCH_BYTES, COLUMNS
from kafkalog.util.keywords import unknown_keyword

if TYPE_CHECKING:
    import pyarrow

    from kafkalog.log.log import Log
    from kafkalog.storage.damage import Skipped

COLUMNS_OF_TABLE: Final = ("key", "value", "partition", "offset", "timestamp", "headers")
SCHEMA_ID: Final = "schema_id"
_HEADER_BYTES: Final = 5
_REGISTERED: Final = ("schemas", "registry")


class Piece(NamedTuple):
    """Decoded rows of a partition, the same records undecoded, and the offset after them."""

    rows: pyarrow.RecordBatch
    raw: pyarrow.RecordBatch
    partition: int
    next_offset: int


class TopicRows:
    """The rows of ranges of a topic's partitions, read on use. All are decoded by the same decoders.

    `given` are the typed keywords of a scan (docs/where.md) but `where`. With the `samples` of other rows, their types
    are the same; `typical` values have the types of a table (`typical_values`). Errors are those of `LogDirs.scan`.
    """

    def __init__(
        self, topic: str, logs: Mapping[int, Log], ranges: Sequence[ReadRange], given: Mapping[str, Any],
        *, on_damage: str = "raise", skipped: list[Skipped] | None = None, batch_bytes: int = BATCH_BYTES,
        samples: Mapping[str, list[bytes]] | None = None, topic_id: str | None = None,
        typical: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.ranges = ranges
        self.topic = topic
        self.topic_id = topic_id
        self.logs = logs
        self.given = given
        self.on_damage = on_damage
        self.skipped = skipped
        self.samples = dict(samples or {})
        """Keys and values, by column, that gave the types of decoders."""
        self._reading: dict[str, Any] = {
            "isolation": "read_committed", "on_damage": on_damage, "skipped": skipped, "batch_bytes": batch_bytes,
        }  # fmt: skip
        bounds = {one.number: {"start": one.start, "stop": one.stop} for one in ranges}
        names = None if given.get("project") is not None else [*COLUMNS_OF_TABLE]
        self._has_ids = names is not None and _is_registered(given)
        options = {**given, "isolation": "read_committed", "on_damage": on_damage}
        options = with_decoders(
            topic, [logs[one.number] for one in ranges], names, options, lambda log: bounds[log.partition],
            self.samples, typical,
        )  # fmt: skip
        typed = {name: options[name] for name in TYPED_OPTIONS if options.get(name) is not None}
        self.selection: Selection = selection_of(names, typed, None, topic)
        columns = {*self.selection.columns, "offset", "key", "value"}
        self._columns = [name for name in COLUMNS if name in columns]
        self.names: dict[str, str] = {}
        """Paths of renamed fields, with their paths in the table."""
        self.numbers = numbers_of(self.selection.decoders) if names is not None else {}
        """Numbers of the fields by path, for decoders that have some."""

    @property
    def schema(self) -> pyarrow.Schema:
        """Columns of the rows."""
        import pyarrow as pa

        schema = pa.schema(one.with_type(with_names(one.type, one.name, self.names)) for one in self.selection.schema)
        if self._has_ids:
            schema = schema.insert(schema.get_field_index("headers") + 1, pa.field(SCHEMA_ID, pa.int32()))
        return schema

    def pieces(self, one: ReadRange) -> Iterator[Piece]:
        """Yield the rows of a range by offset."""
        import pyarrow as pa

        scan = LogScan(self.logs[one.number], one.start, one.stop, self._columns, **self._reading)
        for piece in scan:
            raw = pa.record_batch(piece)
            if raw.num_rows:
                yield self._piece(raw, one.number, raw.column("offset")[-1].as_py() + 1)

    def _piece(self, raw: pyarrow.RecordBatch, partition: int, next_offset: int) -> Piece:
        rows = self.selection.batch(raw)
        for name in {path.partition(".")[0] for path in self.names}:
            at = rows.schema.get_field_index(name)
            column = rows.column(at)
            rows = rows.set_column(at, name, column.view(with_names(column.type, name, self.names)))
        if self._has_ids:
            at = rows.schema.get_field_index("headers") + 1
            rows = rows.add_column(at, SCHEMA_ID, schema_ids(raw.column("value")))
        return Piece(rows, raw, partition, next_offset)


def _is_registered(given: Mapping[str, Any]) -> bool:
    """Return True if values begin with the id of a schema."""
    return given.get("value") is not None and (
        given.get("framing") == "registry"
        or (given.get("framing") is None and any(given.get(name) is not None for name in _REGISTERED))
    )


def schema_ids(values: pyarrow.BinaryArray) -> pyarrow.Int32Array:
    """Return the ids in the registry's headers of values, null where there is none.

    >>> import pyarrow
    >>> schema_ids(pyarrow.array([bytes([0, 0, 0, 1, 2, 9]), b"{}", None])).to_pylist()
    [258, None, None]
    """
    import numpy as np
    import pyarrow as pa

    _, offsets, data = values.buffers()
    rows = len(values)
    starts = np.frombuffer(offsets, np.int32)[values.offset : values.offset + rows + 1].astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    first, sizes = starts[:-1], np.diff(starts)
    has_id = (sizes >= _HEADER_BYTES) & values.is_valid().to_numpy(zero_copy_only=False)
    found = np.zeros(rows, np.int32)
    at = first[has_id]
    is_framed = content[at] == 0
    has_id[has_id] = is_framed
    at = at[is_framed]
    number = np.zeros(len(at), np.uint32)
    for step in range(1, _HEADER_BYTES):
        number = (number << np.uint32(8)) | content[at + step]
    found[has_id] = number.astype(np.int32)
    return pa.array(found, pa.int32(), mask=~has_id)


def fitted(rows: pyarrow.RecordBatch, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    """Return rows with the columns and types of a table; missing columns are null.

    Raises InvalidRecord for a value outside of the table's type, such as a time that microseconds cannot express.
    """
    import pyarrow as pa

    if rows.schema.equals(schema):
        return rows
    arrays = []
    for field in schema:
        index = rows.schema.get_field_index(field.name)
        if index < 0:
            arrays.append(pa.nulls(rows.num_rows, field.type))
            continue
        column = rows.column(index)
        try:
            arrays.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowInvalid as error:
            raise InvalidRecord(
                f"a {field.name} among the {rows.num_rows} records from here is beyond {field.type}: {error}",
                offset=_first_offset(rows), hint="leave the column out with project",
            ) from None  # fmt: skip
    for field, column in zip(schema, arrays, strict=True):
        if not field.nullable and column.null_count:
            raise InvalidRecord(
                f"a {field.name} is null, and the table requires one", offset=_first_offset(rows),
                hint="sync into another table",
            )  # fmt: skip
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _first_offset(rows: pyarrow.RecordBatch) -> int | None:
    at = rows.schema.get_field_index("offset")
    return rows.column(at)[0].as_py() if at >= 0 and rows.num_rows else None


def check_typed(call: str, given: Mapping[str, Any], *others: str) -> None:
    """Raise TypeError for a keyword that is none of a typed scan's, IllegalArgument for one that a sync does not take.

    `others` are further keywords of the call.
    """
    unknown = {name: value for name, value in given.items() if name not in TYPED_OPTIONS}
    if unknown:
        raise unknown_keyword(call, unknown, (*others, *(name for name in TYPED_OPTIONS if name != "where")))
    if given.get("where") is not None:
        raise IllegalArgument("a sync takes no where", hint="a table has all records: filter where it is read")
