"""The rules for Avro, held against the decoder that resolves schemas: what they judge compatible is read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")

from kafkalog.errors import IllegalArgument  # noqa: E402
from kafkalog.server.registry.avro_rules import avro_incompatibilities, types_of  # noqa: E402
from kafkalog.values.avro import AvroDecoder  # noqa: E402
from kafkalog.values.avro_default import encoded_default  # noqa: E402
from kafkalog.values.avro_schema import AvroType, parse_avro  # noqa: E402
from tests.server.registry.calls import record  # noqa: E402

PLAIN = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
DEFAULTS = dict(zip(PLAIN, (None, True, 1, 2, 0.5, 2.5, "x", "y"), strict=True))


@st.composite
def schemas(draw: Any, path: str = "T", depth: int = 2) -> Any:
    """A schema whose types have the name of their place, so that two of them often have the same."""
    kinds = [*PLAIN, "enum", "fixed"] + (["array", "map", "record", "record", "union"] if depth else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "enum":
        symbols = draw(st.lists(st.sampled_from("ABC"), min_size=1, unique=True))
        more = {"default": symbols[0]} if draw(st.booleans()) else {}
        return {"type": "enum", "name": f"E{path}", "symbols": symbols, **more}
    if kind == "fixed":
        return {"type": "fixed", "name": f"F{path}", "size": draw(st.integers(1, 2))}
    if kind == "array":
        return {"type": "array", "items": draw(schemas(f"{path}a", depth - 1))}
    if kind == "map":
        return {"type": "map", "values": draw(schemas(f"{path}m", depth - 1))}
    if kind == "union":
        parts = draw(st.lists(schemas(f"{path}u", 0), min_size=1, max_size=3))
        return list({json.dumps(p.get("name") if isinstance(p, dict) else p): p for p in parts}.values())
    if kind == "record":
        names = draw(st.lists(st.sampled_from("xyz"), min_size=1, unique=True))
        return {"type": "record", "name": f"R{path}", "fields": [draw(fields(f"{path}{n}", n, depth)) for n in names]}
    return kind


@st.composite
def fields(draw: Any, path: str, name: str, depth: int) -> Any:
    kind = draw(schemas(path, depth - 1))
    more: dict[str, object] = {}
    if isinstance(kind, str) and draw(st.booleans()):
        more["default"] = DEFAULTS[kind]
    if draw(st.integers(0, 4)) == 0:
        more["aliases"] = [draw(st.sampled_from("xyz"))]
    return {"name": name, "type": kind, **more}


@st.composite
def changed(draw: Any, schema: Any, path: str = "T") -> Any:
    """A schema with a few changes of the kind that people make."""
    step = draw(st.integers(0, 9))
    if step == 0:
        return draw(schemas(path, 1))
    if isinstance(schema, str):
        wider = {"int": "long", "long": "float", "float": "double", "bytes": "string", "string": "bytes"}
        return wider.get(schema, schema) if step < 5 else [schema, "null"] if step == 5 and schema != "null" else schema
    if isinstance(schema, list):
        return [*schema, "string"] if step < 5 and "string" not in schema else schema
    made = dict(schema)
    for key in ("items", "values"):
        if key in made:
            made[key] = draw(changed(made[key], path + {"items": "a", "values": "m"}[key]))
    if made["type"] == "enum" and step < 5:
        made["symbols"] = ["A", "B", "C", "D"]
        made.pop("default", None)
    if made["type"] == "record":
        made["fields"] = [
            one if "default" in one else {**one, "type": draw(changed(one["type"], path + one["name"]))}
            for one in made["fields"]
        ]
        if step == 1:
            made["fields"] = made["fields"][1:]
        if step in (2, 3):
            made["fields"] += [{"name": "w", "type": "long"} | ({"default": 7} if step == 2 else {})]
    return made


@st.composite
def pairs(draw: Any) -> tuple[Any, Any]:
    writer = draw(schemas())
    return writer, draw(changed(writer))


def value_of(draw: Any, kind: AvroType) -> Any:
    """Return a value as the JSON of a default."""
    if kind.kind == "union":
        return value_of(draw, draw(st.sampled_from(kind.parts)))
    if kind.kind == "record":
        return {one.name: value_of(draw, one.type) for one in kind.fields}
    if kind.kind == "array":
        return [value_of(draw, kind.parts[0]) for _ in range(draw(st.integers(0, 2)))]
    if kind.kind == "map":
        return {"k": value_of(draw, kind.parts[0])} if draw(st.booleans()) else {}
    if kind.kind == "enum":
        return draw(st.sampled_from(kind.symbols))
    return "ab"[: kind.size] if kind.kind == "fixed" else DEFAULTS[kind.kind]


@settings(max_examples=250, deadline=None)
@given(pairs(), st.data())
def test_a_compatible_reader_decodes_what_the_writer_wrote(pair: tuple[Any, Any], data: st.DataObject) -> None:
    writer, reader = parse_avro(pair[0]), parse_avro(pair[1])
    column = pa.array([encoded_default(writer, value_of(data.draw, writer)) for _ in range(3)], pa.binary())
    if not avro_incompatibilities(reader, writer):
        found = AvroDecoder(pair[1], writer=pair[0]).decode(column)
        assert found.failed == 0, found.errors
    elif all(one.kind != "union" for one in (*types_of(writer), *types_of(reader))) and _is_certain(reader, writer):
        with pytest.raises(IllegalArgument):
            AvroDecoder(pair[1], writer=pair[0])


def _is_certain(reader: AvroType, writer: AvroType) -> bool:
    """Return True unless only some values cannot be read, such as those with a symbol that the reader lacks."""
    return not any("MISSING_ENUM_SYMBOLS" in text for text in avro_incompatibilities(reader, writer))


@pytest.mark.parametrize(
    ("reader", "writer", "reason"),
    [
        (record(a="int"), record(a="long"), "TYPE_MISMATCH at /a"),
        (record(a="int", b="int"), record(a="int"), "READER_FIELD_MISSING_DEFAULT_VALUE at /b"),
        (record("A", a="int"), record("B", a="int"), "NAME_MISMATCH at /"),
        (["null", "int"], "string", "MISSING_UNION_BRANCH at /"),
        ("int", ["null", "int"], "TYPE_MISMATCH at /"),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}, "FIXED_SIZE_MISMATCH"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, {"type": "enum", "name": "E", "symbols": ["A", "B"]},
         "MISSING_ENUM_SYMBOLS"),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, "TYPE_MISMATCH at /array"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
         {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}, "DECIMAL_MISMATCH"),
    ],
)  # fmt: skip
def test_reasons(reader: Any, writer: Any, reason: str) -> None:
    (text,) = avro_incompatibilities(parse_avro(reader), parse_avro(writer))
    assert text.startswith(reason)


def test_schemas_that_contain_themselves() -> None:
    def tree(kind: str, **more: Any) -> AvroType:
        fields = [{"name": "value", "type": kind}, {"name": "children", "type": {"type": "array", "items": "Tree"}}]
        return parse_avro({"type": "record", "name": "Tree", "fields": [*fields, *more.get("fields", ())]})

    assert avro_incompatibilities(tree("long"), tree("int")) == []
    assert avro_incompatibilities(tree("int"), tree("long"))
    assert avro_incompatibilities(tree("int", fields=[{"name": "w", "type": "int"}]), tree("int"))


def test_what_was_assumed_inside_a_type_must_hold() -> None:
    """The branch B of the union fits only as long as A is taken to fit, which it does not."""
    def schema(kind: str) -> AvroType:
        inner = {"type": "record", "name": "B", "fields": [{"name": "up", "type": ["null", "A"]}]}
        return parse_avro({"type": "record", "name": "A", "fields": [
            {"name": "b", "type": ["null", inner]}, {"name": "n", "type": kind},
        ]})  # fmt: skip

    reader = parse_avro(["string", {"type": "record", "name": "A", "fields": [
        {"name": "b", "type": ["null", {"type": "record", "name": "B", "fields": [
            {"name": "up", "type": ["null", "A"]}]}]}, {"name": "n", "type": "int"}]}, "B"])  # fmt: skip
    writer = schema("string")
    assert avro_incompatibilities(reader, writer)
    assert avro_incompatibilities(reader, writer.fields[0].type.parts[1]), "B holds an A, whose n is a string"
    assert avro_incompatibilities(reader, schema("int")) == []
