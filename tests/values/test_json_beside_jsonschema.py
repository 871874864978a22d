"""Columns of JSON Schemas beside jsonschema: what it calls valid decodes to its own values, by any schema."""

import json
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalog.values.json_columns import JsonDecoder
from kafkalog.values.json_schema import schema_type
from tests.values.test_json import ANY, NAMES, TEXT, loaded, shown

pytestmark = pytest.mark.skipif(find_spec("jsonschema") is None, reason="jsonschema is not installed")
INT64 = st.integers(-(2**63), 2**63 - 1)
SIMPLE = {
    "boolean": st.booleans(), "integer": INT64, "number": st.floats(allow_nan=False, allow_infinity=False) | INT64,
    "string": TEXT, "null": st.none(),
}  # fmt: skip
KINDS = {"boolean": pa.bool_(), "integer": pa.int64(), "number": pa.float64(), "string": pa.string()}


class Case:
    """A JSON Schema, documents of which most are valid, and the type of the column where it is plain."""

    def __init__(self, schema: Any, documents: st.SearchStrategy[Any], type: Any = None) -> None:
        self.schema = schema
        self.documents = documents
        self.type = type


@st.composite
def cases(draw: Any, depth: int = 3) -> Case:
    word = draw(st.sampled_from([*SIMPLE, "enum", "const", "several", *(["object", "map", "array", "ref", "any"] * 2)]))
    if word in SIMPLE:
        return Case({"type": word}, SIMPLE[word], KINDS.get(word))
    if word in ("enum", "const"):
        words = draw(st.lists(TEXT, min_size=1, max_size=3, unique=True))
        schema = {"enum": [*words, None]} if word == "enum" else {"const": words[0]}
        return Case(schema, st.sampled_from(words) | st.none(), pa.string())
    if word == "several" or depth == 0:
        kinds = draw(st.lists(st.sampled_from([*SIMPLE]), min_size=1, max_size=3, unique=True))
        return Case({"type": kinds}, st.one_of(*(SIMPLE[kind] for kind in kinds)))
    if word == "object":
        known = draw(st.dictionaries(NAMES, cases(depth - 1), min_size=1, max_size=3))
        schema = {"type": "object", "properties": {name: one.schema for name, one in known.items()}}
        if draw(st.booleans()):
            schema["required"] = draw(st.lists(st.sampled_from(sorted(known)), unique=True))
        if draw(st.booleans()):
            schema["additionalProperties"] = False
        more = st.dictionaries(NAMES.filter(lambda name: name not in known), ANY, max_size=1)
        made = st.fixed_dictionaries({}, optional={name: one.documents for name, one in known.items()})
        types = [(name, one.type) for name, one in known.items()]
        return Case(schema, st.builds(lambda a, b: a | b, made, more),
                    pa.struct(types) if all(one for _, one in types) else None)  # fmt: skip
    inner = draw(cases(depth - 1))
    if word == "map":
        schema = {"type": "object", "additionalProperties": inner.schema}
        type = inner.type and pa.map_(pa.string(), inner.type)
        return Case(schema, st.dictionaries(TEXT, inner.documents, max_size=3), type)
    if word == "array":
        return Case({"type": ["array", "null"], "items": inner.schema},
                    st.none() | st.lists(inner.documents, max_size=3), inner.type and pa.list_(inner.type))  # fmt: skip
    if word == "any":
        return Case({"anyOf": [inner.schema, {"type": "null"}]}, inner.documents | st.none(), inner.type)
    return Case({"allOf": [inner.schema], "minimum": -(2**70)}, inner.documents, inner.type)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_what_jsonschema_calls_valid_decodes_to_its_values(data: st.DataObject) -> None:
    import jsonschema  # takes more than a second: only the process that runs this test imports it

    case = data.draw(cases())
    schema = {"$defs": {"it": case.schema}, "$ref": "#/$defs/it"} if data.draw(st.booleans()) else case.schema
    checker = jsonschema.Draft202012Validator(schema)
    checker.check_schema(schema)
    drawn = data.draw(st.lists(case.documents | ANY, min_size=1, max_size=5))
    documents = [one for one in drawn if checker.is_valid(one) and is_small(one)]
    decoder = JsonDecoder(schema)
    found = decoder.decode(pa.array([json.dumps(one).encode() for one in documents], pa.binary()))
    found.values.validate(full=True)
    assert found.errors is None, found.errors
    type = schema_type(schema)
    plain = found.values.to_pylist(maps_as_pydicts="strict")
    assert [loaded(value, type) for value in plain] == [shown(one, type) for one in documents]
    assert case.type is None or decoder.arrow_type == case.type, schema


def is_small(document: Any) -> bool:
    """False for a document with numbers that no column of whole numbers takes: a schema sets no such limit."""
    if isinstance(document, dict):
        return all(map(is_small, document.values()))
    if isinstance(document, list):
        return all(map(is_small, document))
    return not isinstance(document, int | float) or -(2**63) <= document < 2**63
