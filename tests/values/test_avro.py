"""Avro columns against fastavro: the same values from random schemas, and from a writer's through a reader's."""

import io
import json
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

fastavro = pytest.importorskip("fastavro", reason="the extra `schemas` is not installed")
pa = pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")

from kafkalog import values  # noqa: E402
from tests.values.avro_cases import Case, branch_name, cases, column_value, encoded, records  # noqa: E402


def decoded(schema: Any, data: list[bytes | None], **options: Any) -> tuple[list[Any], list[str | None]]:
    """The values and the errors of a column, both valid Arrow."""
    found = values.decoder("avro", schema=json.dumps(schema), **options).decode(pa.array(data, pa.binary()))
    found.values.validate(full=True)
    assert len(found.values) == len(data)
    errors = [None] * len(data) if found.errors is None else found.errors.to_pylist()
    assert sum(error is not None for error in errors) == found.failed
    return found.values.to_pylist(), errors


@given(st.data())
def test_every_value_of_every_schema_comes_back(data: st.DataObject) -> None:
    case: Case = data.draw(cases())
    rows = data.draw(st.lists(st.none() | case.values, max_size=8))
    some = [None if row is None else encoded(case.schema, row) for row in rows]
    got, errors = decoded(case.schema, some)
    assert errors == [None] * len(rows)
    assert got == [None if row is None else column_value(case.schema, row) for row in rows]


@given(st.data())
def test_a_cut_or_longer_value_is_an_error_of_its_row_alone(data: st.DataObject) -> None:
    case = data.draw(cases())
    whole = [encoded(case.schema, row) for row in data.draw(st.lists(case.values, min_size=2, max_size=4))]
    victim = data.draw(st.integers(0, len(whole) - 1))
    wanted, _ = decoded(case.schema, whole)
    broken = list(whole)
    cut = data.draw(st.integers(0, len(whole[victim])))
    broken[victim] = whole[victim][:cut] if cut < len(whole[victim]) else whole[victim] + b"\0"
    got, errors = decoded(case.schema, broken)
    assert [error is not None for error in errors] == [row == victim for row in range(len(whole))]
    assert got == [None if row == victim else value for row, value in enumerate(wanted)]


@given(st.data())
def test_any_bytes_are_a_value_or_an_error(data: st.DataObject) -> None:
    case = data.draw(cases())
    rows = data.draw(st.lists(st.binary(max_size=30), max_size=6))
    decoder = values.decoder("avro", schema=json.dumps(case.schema), most_items=100)
    found = decoder.decode(pa.array(rows, pa.binary()))
    found.values.validate(full=True)
    errors = [None] * len(rows) if found.errors is None else found.errors.to_pylist()
    assert len(found.values) == len(rows)
    assert sum(error is not None for error in errors) == found.failed
    for value, error in zip(found.values, errors, strict=True):
        assert error is None or not value.is_valid


PROMOTED = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"], "string": ["bytes"]}


@st.composite
def evolved(draw: Any, schema: Any) -> Any:
    """A reader's schema of the same data: other order, fields fewer and more, wider types, optional ones."""
    if isinstance(schema, str):
        wider = draw(st.sampled_from([schema, *PROMOTED.get(schema, ())]))
        return ["null", wider] if wider != "null" and draw(st.booleans()) else wider
    if isinstance(schema, list) and len(set(map(branch_name, schema)) - {"null"}) != 1:
        more = [one for one in ("null", "boolean") if one not in schema]
        return draw(st.permutations([*schema, *draw(st.sampled_from([[], more]))]))
    if isinstance(schema, list):
        branches = [one if one == "null" else draw(evolved(one)) for one in schema]
        return [b if not isinstance(b, list) else b[1] for b in branches]
    if schema["type"] == "array":
        return {"type": "array", "items": draw(evolved(schema["items"]))}
    if schema["type"] == "map":
        return {"type": "map", "values": draw(evolved(schema["values"]))}
    if schema["type"] == "enum":
        kept = draw(st.lists(st.sampled_from(schema["symbols"]), min_size=1, unique=True))
        return {**schema, "symbols": [*kept, "zz"], "default": "zz"}
    if schema["type"] != "record":
        return schema
    fields = []
    for one in draw(st.permutations(schema["fields"])):
        change = draw(st.sampled_from(["keep", "keep", "drop", "rename"]))
        if change == "keep":
            fields.append({"name": one["name"], "type": draw(evolved(one["type"]))})
        elif change == "rename":
            fields.append({"name": f"x{one['name']}", "aliases": [one["name"]], "type": draw(evolved(one["type"]))})
    extra = draw(st.lists(st.sampled_from(sorted(DEFAULTS)), unique=True, max_size=2))
    fields += [{"name": f"y_{name}", **DEFAULTS[name]} for name in extra]
    return {**schema, "fields": draw(st.permutations(fields))}


DEFAULTS: dict[str, dict[str, Any]] = {
    "int": {"type": "int", "default": -7},
    "text": {"type": "string", "default": "Zürich"},
    "bytes": {"type": "bytes", "default": "\u00ff\u0000"},
    "none": {"type": ["null", "double"], "default": None},
    "list": {"type": {"type": "array", "items": "long"}, "default": [1, 2, -3]},
    "map": {"type": {"type": "map", "values": "boolean"}, "default": {"a": True}},
}


@given(st.data())
def test_a_readers_schema_is_resolved_as_fastavro_does(data: st.DataObject) -> None:
    case = data.draw(records(depth=2))
    reader = data.draw(evolved(case.schema))
    rows = data.draw(st.lists(case.values, max_size=4))
    some = [encoded(case.schema, row) for row in rows]
    got, errors = decoded(reader, [*some], writer=json.dumps(case.schema))
    assert errors == [None] * len(rows)
    parsed = fastavro.parse_schema(case.schema), fastavro.parse_schema(reader)
    wanted = [fastavro.schemaless_reader(io.BytesIO(one), *parsed) for one in some]
    assert [collapsed(reader, value) for value in got] == [plain(reader, value) for value in wanted]


def branches_of(schema: Any) -> list[Any]:
    return [one for one in schema if one != "null"]


def collapsed(reader: Any, value: Any) -> Any:
    """A value of a column with the struct of a union's branches as the branch alone, as fastavro has it."""
    if value is None:
        return None
    if isinstance(reader, list):
        found = branches_of(reader)
        if len(found) == 1:
            return collapsed(found[0], value)
        some = [collapsed(one, value[branch_name(one)]) for one in found if value[branch_name(one)] is not None]
        assert len(some) <= 1
        return some[0] if some else None
    if isinstance(reader, dict) and reader["type"] == "record":
        return {one["name"]: collapsed(one["type"], value[one["name"]]) for one in reader["fields"]}
    if isinstance(reader, dict) and reader["type"] == "array":
        return [collapsed(reader["items"], item) for item in value]
    if isinstance(reader, dict) and reader["type"] == "map":
        return {key: collapsed(reader["values"], item) for key, item in value}
    return value


def plain(reader: Any, value: Any) -> Any:
    """A value of fastavro as `collapsed` has it; it gives the default of bytes as the text of the schema."""
    if isinstance(reader, list):
        found = branches_of(reader)
        return plain(found[0], value) if len(found) == 1 and value is not None else union_plain(found, value)
    if isinstance(reader, dict) and reader["type"] == "record":
        return {
            one["name"]: b"\xff\0" if one["name"] == "y_bytes" else plain(one["type"], value[one["name"]])
            for one in reader["fields"]
        }  # fmt: skip
    if isinstance(reader, dict) and reader["type"] == "array":
        return [plain(reader["items"], item) for item in value]
    if isinstance(reader, dict) and reader["type"] == "map":
        return {key: plain(reader["values"], item) for key, item in value.items()}
    return column_value(reader, value)


def union_plain(branches: list[Any], value: Any) -> Any:
    """A value of one of several branches, found by its Python type."""
    for one in branches:
        if isinstance(value, dict | list) and isinstance(one, dict):
            keys = {each["name"] for each in one["fields"]} if one["type"] == "record" else None
            if one["type"] == ("array" if isinstance(value, list) else "record") and keys in (None, set(value)):
                return plain(one, value)
    if isinstance(value, dict):
        (one,) = [one for one in branches if isinstance(one, dict) and one["type"] == "map"]
        return plain(one, value)
    return str(value) if isinstance(value, uuid.UUID) else value
