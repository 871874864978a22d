"""Rows of a table as records: the columns of key, value, headers, timestamp and partition, and their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import IllegalArgument, InvalidRecord
from kafkalog.lake.avro_encoder import avro_encoder
from kafkalog.lake.json_encoder import encode_json
from kafkalog.lake.protobuf_encoder import protobuf_encoder
from kafkalog.lake.row_encoder import RowSchema
from kafkalog.util.keywords import closest_match

if TYPE_CHECKING:
    import pyarrow

PARTS: Final = ("key", "value", "headers", "timestamp", "partition")
VALUE_FORMATS: Final = ("column", "json", "avro", "protobuf")
_BY_DEFAULT: Final = ("key", "value", "headers", "timestamp")
"""Parts that are taken from the columns of the same names, if these exist."""


class RecordColumns(NamedTuple):
    """The column of each part of a record; `encode` makes the columns `row` of a row the value."""

    names: Mapping[str, str]
    row: tuple[str, ...] = ()
    encode: Callable[[pyarrow.RecordBatch], pyarrow.Array] | None = None

    @classmethod
    def of(
        cls, schema: pyarrow.Schema, given: Mapping[str, str], value_format: str, table: str, topic: str = "",
        value_schema: RowSchema | None = None,
    ) -> RecordColumns:  # fmt: skip
        """Return the columns of a table; raise IllegalArgument for missing ones, and types that do not fit.

        `value_schema` is for Avro and Protobuf; `topic` names a schema that follows from the columns.
        """
        if value_format not in VALUE_FORMATS:
            raise IllegalArgument(f"value_format is {value_format!r}", hint=f"give {' or '.join(VALUE_FORMATS)}")
        value_schema = value_schema or RowSchema()
        if value_format not in ("avro", "protobuf") and value_schema != RowSchema():
            raise IllegalArgument(
                "schema, schemas, framing and message are for Avro and Protobuf values",
                hint="give value='avro' or value='protobuf'",
            )
        if value_format == "avro" and value_schema.message is not None:
            raise IllegalArgument("message is for Protobuf values", hint="give value='protobuf'")
        whole = value_format != "column"
        for part, name in given.items():
            if part not in PARTS or (whole and part == "value"):
                hint = f"parts are {', '.join(PARTS)}; with value format {value_format} the value has no column"
                raise IllegalArgument(f"{part} is not a part of a record with a column", path=table, hint=hint)
            if name not in schema.names:
                raise _missing(name, part, schema, table)
        names = {part: part for part in _BY_DEFAULT if part in schema.names} | dict(given)
        if whole:
            names.pop("value", None)
        elif "value" not in names:
            raise _missing("value", "value", schema, table)
        for part, name in names.items():
            if not _fits(part, schema.field(name).type):
                raise IllegalArgument(
                    f"column {name!r} of type {schema.field(name).type} cannot be the {part}", path=table,
                    hint="name another column, or load rows as JSON (--value-format json)",
                )  # fmt: skip
        if not whole:
            return cls(names)
        row = [field for field in schema if field.name != names.get("headers")]
        if value_format == "json":
            return cls(names, tuple(field.name for field in row), encode_json)
        made = (avro_encoder if value_format == "avro" else protobuf_encoder)(row, topic, value_schema)
        return cls(names, made.columns, made.encode)

    def wanted(self, schema: pyarrow.Schema) -> list[str]:
        """Return the columns to read."""
        return [one for one in schema.names if one in self.row or one in self.names.values()]

    def records(self, rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """Return rows as columns of records; raise InvalidRecord for one that does not encode, or a bad partition."""
        import pyarrow as pa

        parts = {part: _as_part(part, rows.column(name)) for part, name in self.names.items()}
        if self.encode is not None:
            parts["value"] = self.encode(rows.select(self.row))
        return pa.RecordBatch.from_arrays([*parts.values()], names=[*parts])


def _missing(name: str, part: str, schema: pyarrow.Schema, table: str) -> IllegalArgument:
    nearest = closest_match(name, schema.names)
    meant = f"did you mean {nearest}? " if nearest else ""
    return IllegalArgument(
        f"there is no column {name!r} for the {part}", path=table,
        hint=f"{meant}columns are {', '.join(schema.names[:20])}; --value-format json takes the whole row",
    )  # fmt: skip


def _fits(part: str, kind: pyarrow.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    kinds = {
        "timestamp": (types.is_timestamp, types.is_int64),
        "partition": (types.is_integer,),
        "headers": (types.is_list, types.is_large_list),
    }
    content = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    wanted = kinds.get(part, (*content, types.is_integer) if part == "key" else content)
    return any(is_kind(kind) for is_kind in wanted)


def _as_part(part: str, column: pyarrow.Array) -> pyarrow.Array:
    """Return a column in the type that a writer of records takes: times in ms, a number as text."""
    import pyarrow as pa

    if part == "timestamp" and pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    if part == "partition":
        try:
            return column.cast(pa.int32())
        except pa.ArrowInvalid as error:
            hint = "null leaves the choice to the key"
            raise InvalidRecord(f"a row is for no partition: {error}", hint=hint) from None
    if part == "key" and pa.types.is_integer(column.type):
        return column.cast(pa.string())
    return column
