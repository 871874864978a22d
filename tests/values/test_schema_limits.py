"""Schemas and samples that are hostile, odd or huge: an error when the decoder is created, or fewer columns."""

import json
import time
from typing import Any

import pyarrow as pa
import pytest

from kafkalog import values
from kafkalog.errors import IllegalArgument
from kafkalog.values.json_sample import MOST_COLUMNS, sample_type
from kafkalog.values.json_schema import MOST_BRACKETS, MOST_DEPTH, parse_schema, schema_type


def doubling(levels: int, word: str) -> dict[str, Any]:
    """A schema whose definitions each use the next one twice."""

    def twice(n: int) -> dict[str, Any]:
        ref = {"$ref": f"#/$defs/d{n + 1}"}
        return {"properties": {"x": ref, "y": ref}} if word == "properties" else {word: [ref, ref]}

    known = {f"d{n}": twice(n) for n in range(levels)} | {f"d{levels}": {"type": "integer"}}
    return {"$ref": "#/$defs/d0", "$defs": known}


@pytest.mark.parametrize("word", ["anyOf", "allOf", "properties"])
def test_json_schemas_that_grow_beyond_measure(word: str) -> None:
    assert schema_type(doubling(4, word)).kind == ("struct" if word == "properties" else "int64")
    begin = time.monotonic()
    with pytest.raises(IllegalArgument, match="stands for more than"):
        schema_type(doubling(23, word))
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize("kind", ["references", "conditions"])
def test_json_schemas_that_are_nested_without_end(kind: str) -> None:
    """Up to the limit they are read, also far down in a program's calls; beyond it is an error."""

    def nested(count: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "integer"}
        if kind == "conditions":
            for _ in range(count - 1):
                schema = {"anyOf": [schema]}
            return schema
        chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(count - 2)} | {f"d{count - 2}": schema}
        return {"$ref": "#/$defs/d0", "$defs": chain}

    def far_down(calls: int) -> str:
        return far_down(calls - 1) if calls else schema_type(nested(MOST_DEPTH)).kind

    assert far_down(300) == "int64"
    for count in (MOST_DEPTH + 1, 5000):
        with pytest.raises(IllegalArgument, match=f"nested more than {MOST_DEPTH} schemas deep") as error:
            schema_type(nested(count))
        assert "fields=" in (error.value.hint or "")


@pytest.mark.parametrize("opened", ["[", '{"items":', '{"enum": [', '{"a[{\\\\":[['])
def test_text_of_a_schema_that_is_nested_without_end(opened: str) -> None:
    for text in (opened * 100_000, (opened * 100_000).encode(), opened.encode("utf-16") * 10_000):
        with pytest.raises(IllegalArgument, match=f"more than {MOST_BRACKETS} brackets deep") as error:
            parse_schema(text, "schema.json")
        assert error.value.path == "schema.json"
    for text in ('"' + '\\"' * 200_000, '[[[{"a[{' + "\\", "]]" * 10):
        with pytest.raises(IllegalArgument, match="is not a JSON Schema"):
            parse_schema(text)
    deep: Any = {"type": "object"}
    for _ in range(MOST_BRACKETS // 2 - 1):
        deep = {"not": [deep]}
    assert parse_schema(json.dumps({"x": "]]}}[\"[{" * 500, **deep}))["not"]


@pytest.mark.parametrize("word", [{"a": 1}, [{"a": 1}], [["string"]], 5, ["string", None]])
def test_json_types_that_are_no_words(word: Any) -> None:
    with pytest.raises(IllegalArgument, match="unknown type"):
        schema_type({"type": word})


@pytest.mark.parametrize("more", [{}, {"type": "object"}, {"type": ["object", "null"]}])
def test_properties_beside_all_of_are_joined(more: dict[str, Any]) -> None:
    found = schema_type(
        {
            **more,
            "properties": {
                "a": {"type": "integer"}, "n": {"properties": {"p": {"type": "string"}}}, "c": {"minimum": 1},
            },
            "allOf": [
                {"$ref": "#/$defs/base"}, {"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"required": ["a"]},
                {"properties": {"a": {"type": "number"}, "c": {"type": "boolean"}}},
            ],
            "$defs": {
                "base": {"properties": {"b": {"type": "string"}, "n": {"properties": {"q": {"type": "boolean"}}}}}
            },
        }
    )  # fmt: skip
    assert {name: one.kind for name, one in found.children} == {"a": "int64", "n": "struct", "c": "bool", "b": "string"}
    assert [name for name, _ in dict(found.children)["n"].children] == ["p", "q"]


def test_all_of_with_many_parts() -> None:
    parts = [{"properties": {f"p{n}": {"type": "integer"}}} for n in range(40_000)]
    for schema in ({"allOf": parts}, {"properties": {"own": {"type": "string"}}, "allOf": parts}):
        assert len(schema_type(schema).children) in (40_000, 40_001)


def row(users: int, fields: int) -> bytes:
    inner = {f"f{n}": 1 for n in range(fields)}
    return json.dumps({f"u{n}": inner for n in range(users)}).encode()


def test_one_huge_row_costs_columns_and_not_the_rest() -> None:
    rows = [b'{"a": 1, "s": {"t": "x"}}', row(800, 90)]
    decoder = values.decoder("json")
    found = decoder.decode(pa.array(rows))
    assert found.failed == 0
    assert found.values.field("a").to_pylist() == [1, None]
    assert found.values.field("s").type == pa.struct([("t", pa.string())])
    kinds = {name: one.kind for name, one in sample_type(rows).children}  # type: ignore[union-attr]
    assert "json" in kinds.values() and "struct" in kinds.values()
    alone = values.decoder("json").decode(pa.array([row(800, 90)]))
    assert pa.types.is_map(alone.values.type), "fields of one type"


def test_a_sample_of_more_names_than_are_remembered() -> None:
    rows = [json.dumps({f"n{i}-{n}": {"x": n} for n in range(900)}).encode() for i in range(200)]
    found = sample_type(rows)
    assert found is not None and found.kind == "json"
    mixed = [json.dumps({"a": {f"n{i}-{n}": n for n in range(900)}, "b": 1}).encode() for i in range(200)]
    kinds = {name: one.kind for name, one in sample_type(mixed).children}  # type: ignore[union-attr]
    assert kinds == {"a": "map", "b": "int64"}
    wide = sample_type([row(MOST_COLUMNS // 2, 3)])
    assert wide is not None and wide.kind == "map"


def nested_maps(levels: int) -> Any:
    schema: Any = "long"
    for _ in range(levels):
        schema = {"type": "map", "values": schema}
    return schema


def test_avro_maps_have_two_levels_each() -> None:
    fields = [{"name": "x", "type": ["null", nested_maps(31)]}]
    decoder = values.decoder("avro", schema={"type": "record", "name": "R", "fields": fields})
    found = decoder.decode(pa.array([b"\2" + b"\2\2k" * 31 + b"\4" + b"\0" * 31]))
    assert found.failed == 0 and found.values.type == decoder.arrow_type
    for levels in (32, 40):
        with pytest.raises(IllegalArgument, match="64 levels"):
            values.decoder("avro", schema=nested_maps(levels))


HALF = "\ud800"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "enum", "name": "E", "symbols": ["A", HALF]}, {"type": "enum", "name": HALF, "symbols": ["A"]},
        {"type": "record", "name": "R", "fields": [{"name": HALF, "type": "long"}]},
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long", "aliases": ["b\0"]}]},
        ["int", {"type": "fixed", "name": "a\0", "size": 1}],
        {"type": "fixed", "name": "F", "namespace": HALF, "size": 1},
    ],
)  # fmt: skip
def test_avro_names_that_no_column_can_have(schema: Any) -> None:
    for given in (schema, json.dumps(schema)):
        with pytest.raises(IllegalArgument, match="not valid"):
            values.decoder("avro", schema=given)


def test_an_avro_decimal_without_a_sound_scale_is_bytes() -> None:
    for wrong in ({"scale": True}, {"scale": 1.5}, {"precision": True}):
        schema = {"type": "bytes", "logicalType": "decimal", "precision": 5, **wrong}
        assert values.decoder("avro", schema=schema).arrow_type == pa.binary()


def test_words_of_dictionaries_beyond_the_memory_limit() -> None:
    schema = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    with pytest.raises(IllegalArgument, match="more memory than the limit"):
        values.decoder("avro", schema=schema, dictionaries=True, most_bytes=10)
    decoder = values.decoder("avro", schema=schema, dictionaries=True)
    assert decoder.decode(pa.array([b"\2"])).values.to_pylist() == ["B"]
