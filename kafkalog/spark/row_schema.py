"""Columns in the names of Spark and Arrow: those of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import IllegalArgument
from kafkalog.util.keywords import closest_match

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""Spark's type of each column, in the Kafka source's order."""


def ddl_of(columns: Iterable[str]) -> str:
    """Return a schema of these columns as Spark's DDL."""
    return ", ".join(f"{name} {TYPES[name]}" for name in columns)


def wanted_columns(schema: StructType, typed: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the columns of a Spark schema, the user's or the source's own; `typed` are those that are decoded.

    Raises IllegalArgument for an unknown column and for a type other than the column's.
    """
    types = {**TYPES, **(typed or {})}
    for field in schema.fields:
        name, kind = field.name, field.dataType.simpleString()
        if name not in types:
            nearest = closest_match(name, types)
            hint = f"did you mean {nearest}? " if nearest else ""
            raise IllegalArgument(f"there is no column {name!r}", hint=f"{hint}columns are {ddl_of(TYPES)}")
        if kind != types[name]:
            raise IllegalArgument(
                f"the column {name} is {types[name]}, not {kind}", hint=f"read it as {types[name]}, then cast it"
            )
    return tuple(field.name for field in schema.fields)


def arrow_schema(columns: Iterable[str]) -> pyarrow.Schema:
    """Return the schema that Spark expects of Arrow batches with these columns: all nullable, times in UTC."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "binary": pa.binary(),
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
    }
    return pa.schema([(name, types.get(TYPES[name]) or pa.list_(pa.field("element", header))) for name in columns])


def arrow_of(schema: StructType) -> pyarrow.Schema:
    """Return Spark's columns in Arrow, with times in UTC, as PySpark 4.1 has them without being asked.

    Raises IllegalArgument for a type that PySpark cannot turn into one of Arrow, such as that of `array()`.
    """
    from inspect import signature

    from pyspark.sql.pandas.types import to_arrow_schema

    options: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    try:
        return to_arrow_schema(schema, **options)
    except (TypeError, ValueError) as error:
        raise IllegalArgument(
            f"a column has a type that Arrow lacks: {error}", hint="cast it, or leave out a column that is not written"
        ) from None
