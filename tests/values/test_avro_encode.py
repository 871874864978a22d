"""Columns become the Avro values that fastavro reads, and the decoder of columns."""

import io
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog import values
from kafkalog.errors import IllegalArgument
from kafkalog.lake.derived_avro import avro_schema
from kafkalog.values.avro_encode import encoder
from kafkalog.values.avro_schema import parse_avro

I64 = st.integers(-(2**63), 2**63 - 1)
DAYS = st.dates(date(1, 1, 1), date(9999, 12, 31))
MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
INNER = pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.list_(pa.string()), False)])
COLUMNS: list[tuple[str, pa.DataType, st.SearchStrategy[Any]]] = [
    ("flag", pa.bool_(), st.booleans()),
    ("small", pa.int8(), st.integers(-128, 127)),
    ("middle", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    ("large", pa.int64(), I64),
    ("single", pa.float32(), st.floats(width=32, allow_nan=False)),
    ("double", pa.float64(), st.floats(allow_nan=False)),
    ("text", pa.string(), st.text(st.characters(exclude_categories=["Cs"]))),
    ("long_text", pa.large_string(), st.text(st.characters(exclude_categories=["Cs"]))),
    ("data", pa.binary(), st.binary()),
    ("four", pa.binary(4), st.binary(min_size=4, max_size=4)),
    ("day", pa.date32(), DAYS),
    ("clock", pa.time64("us"), st.times()),
    ("at", pa.timestamp("us", "UTC"), MOMENTS.map(lambda one: one.replace(tzinfo=UTC))),
    ("local", pa.timestamp("us"), MOMENTS),
    ("money", pa.decimal128(12, 3), st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n) / 1000)),
    ("list", pa.list_(pa.int64()), st.lists(st.none() | I64, max_size=4)),
    ("record", INNER, st.fixed_dictionaries({"x": st.none() | I64, "y": st.lists(st.text("ab"), max_size=3)})),
    ("records", pa.list_(INNER), st.lists(st.fixed_dictionaries({"x": I64, "y": st.just(["z"])}), max_size=3)),
    ("map", pa.map_(pa.string(), pa.int64()), st.dictionaries(st.text("ab", max_size=3), I64, max_size=3)),
]
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | one for name, _, one in COLUMNS}), max_size=12)
SCHEMA = pa.schema([(name, kind) for name, kind, _ in COLUMNS])


def read_values(schema: Any, encoded: pa.Array) -> list[Any]:
    """Return what fastavro reads from each value; it must consume all bytes."""
    parsed, found = fastavro.parse_schema(schema), []
    for one in encoded.to_pylist():
        stream = io.BytesIO(one)
        found.append(fastavro.schemaless_reader(stream, parsed, None))
        assert not stream.read()
    return found


def encode(schema: Any, fields: Sequence[pa.Field], rows: pa.RecordBatch) -> pa.Array:
    return encoder(parse_avro(schema), pa.struct(fields))(rows.to_struct_array())


@given(rows=ROWS, skipped=st.integers(0, 3))
def test_all_columns_are_read_back_by_fastavro_and_by_the_decoder(rows: list[dict[str, Any]], skipped: int) -> None:
    schema = avro_schema([*SCHEMA], "new-orders")
    made = pa.RecordBatch.from_pylist(rows, SCHEMA).slice(skipped)
    encoded = encode(schema, [*SCHEMA], made)
    assert read_values(schema, encoded) == rows[skipped:]
    found = values.decoder("avro", schema=schema).decode(encoded)
    assert found.failed == 0
    assert found.values.to_pylist() == made.to_pylist()


def test_columns_that_are_never_null_have_no_union() -> None:
    names = pa.list_(pa.field("item", pa.string(), False))
    fields = [pa.field("id", pa.int64(), False), pa.field("names", names, False)]
    schema = avro_schema(fields, "1st")
    assert schema["name"] == "_1st"
    assert [one["type"] for one in schema["fields"]] == ["long", {"type": "array", "items": "string"}]
    rows = pa.RecordBatch.from_pylist([{"id": 7, "names": ["a", ""]}], pa.schema(fields))
    assert read_values(schema, encode(schema, fields, rows)) == [{"id": 7, "names": ["a", ""]}]


def test_views_of_texts_and_bytes_are_as_plain_ones() -> None:
    inner = {"a": pa.string_view(), "b": pa.list_(pa.binary_view()), "c": pa.map_(pa.string(), pa.string_view())}
    made = [{"a": None, "b": [b"x", None], "c": [("k", "v")]}, None, {"a": "é", "b": None, "c": None}]
    plain = pa.array(made, pa.struct({"a": pa.string(), "b": pa.list_(pa.binary()), "c": pa.map_("string", "string")}))
    rows = pa.StructArray.from_arrays([plain.cast(pa.struct(inner))], ["o"]).slice(1)
    schema = avro_schema([pa.field("o", plain.type)], "back")
    found = values.decoder("avro", schema=schema).decode(encoder(parse_avro(schema), rows.type)(rows))
    assert found.values.to_pylist() == [{"o": None}, {"o": made[2]}]


def test_views_beside_lists_of_nulls() -> None:
    """Arrow's own cast of such lists has fewer items than they say: to encode a slice of one ended the process."""
    types = {"s": pa.string(), "l": pa.list_(pa.null()), "n": pa.null(), "m": pa.map_(pa.string(), pa.null())}
    made = [{"s": "a", "l": [None] * n, "n": None, "m": [("k", None)] * n} for n in (3, 2, 0)]
    rows = pa.array(made, pa.struct({**types, "s": pa.string_view()}))
    schema = avro_schema([*pa.struct(types)], "back")
    for start in range(4):
        found = encoder(parse_avro(schema), rows.type)(rows.slice(start))
        shown = values.decoder("avro", schema=schema).decode(found).values.to_pylist()
        assert shown == [{**one, "m": one["m"][:1]} for one in made[start:]]


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Row", "fields": [*fields]}


def test_a_given_schema_takes_columns_by_name_alias_and_default() -> None:
    schema = record(
        {"name": "number", "type": "long", "aliases": ["id"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "ratio", "type": ["null", "string", "double"]},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "count", "type": "int", "default": -3},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "price", "type": {"type": "fixed", "name": "P", "size": 3, "logicalType": "decimal", "precision": 6,
                                   "scale": 2}},
    )  # fmt: skip
    at, key = datetime(2026, 5, 4, 3, 2, 1, 5000, UTC), UUID(int=9)
    columns = pa.schema({
        "id": pa.int32(), "kind": pa.dictionary(pa.int8(), pa.string()), "ratio": pa.float64(), "unused": pa.null(),
        "at": pa.timestamp("us", "UTC"), "code": pa.binary(), "key": pa.uuid(), "price": pa.decimal128(5, 2),
    })  # fmt: skip
    row = {"id": -1, "kind": "B", "ratio": 0.5, "at": at, "code": b"\0\1", "key": key.bytes, "price": Decimal("-1.50")}
    rows = pa.RecordBatch.from_pylist([row], columns)
    assert read_values(schema, encode(schema, [*columns], rows)) == [
        {"number": -1, "kind": "B", "ratio": 0.5, "note": None, "count": -3, "at": at, "code": b"\0\1", "key": key,
         "price": Decimal("-1.50")}
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "column", "value", "match"),
    [
        ("int", pa.int64(), 2**31, "not in range"),
        ("string", pa.string(), None, "field a is null"),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("us", "UTC"), 1, "would lose data"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string(), "B", "'B' is no symbol of enum E"),
        ({"type": "fixed", "name": "F", "size": 2}, pa.binary(), b"abc", "2 bytes of fixed F"),
        ({"type": "fixed", "name": "D", "size": 1, "logicalType": "decimal", "precision": 5, "scale": 0},
         pa.decimal128(5, 0), Decimal(300), "1 bytes of fixed D"),
    ],
)  # fmt: skip
def test_a_value_beyond_its_type_is_an_error(kind: Any, column: pa.DataType, value: Any, match: str) -> None:
    schema, fields = record({"name": "a", "type": kind}), [pa.field("a", column)]
    rows = pa.RecordBatch.from_arrays([pa.array([value], column)], schema=pa.schema(fields))
    with pytest.raises(ValueError, match=match):
        encode(schema, fields, rows)


@pytest.mark.parametrize(
    ("schema", "match"),
    [
        ('"long"', "of type long"),
        (record({"name": "idd", "type": "long"}), "did you mean the column id?"),
        (record({"name": "id", "type": "string"}), "field id is string, and the column is int64"),
        (record({"name": "id", "type": ["null", "string"]}), "field id is string"),
        (record({"name": "id", "type": ["boolean", "string"]}), "no branch for a column of int64"),
        (record({"name": "no", "type": "int", "default": "x"}), "default of no"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused_before_any_row(schema: Any, match: str) -> None:
    with pytest.raises(IllegalArgument, match=match.replace("?", r"\?")):
        encoder(parse_avro(schema), pa.struct({"id": pa.int64()}))


@pytest.mark.parametrize(("name", "kind"), [("a b", pa.int64()), ("a", pa.duration("s")), ("é", pa.string())])
def test_columns_that_avro_does_not_know_are_named(name: str, kind: pa.DataType) -> None:
    with pytest.raises(IllegalArgument, match=f"column '{name}'"):
        avro_schema([pa.field(name, kind)], "t")
