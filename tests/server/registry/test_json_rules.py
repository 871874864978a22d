"""The rules for JSON Schema, held against a validator: documents of a compatible writer are valid for the reader."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkalog.server.registry.json_rules import Document, json_incompatibilities, json_problems

CLOSED = {"additionalProperties": False}
VALUES = [
    None, True, False, 0, 1, -1, 2, 3.5, 6, 100, "", "a", "abc", "xyzxyz", [], [1], [1, 1], ["a"], [1, "a"],
    [None, 2, 3], {}, {"x": 1}, {"x": "a"}, {"x": None}, {"y": 2.5}, {"x": 1, "y": "abc"}, {"x": {"x": 1}}, {"z": 0},
    {"x": 1, "z": []},
]  # fmt: skip


LIMITS = {
    "integer": [{}, {"minimum": 0}, {"maximum": 2}, {"multipleOf": 2}, {"exclusiveMinimum": 1}],
    "string": [{}, {"maxLength": 1}, {"minLength": 1}, {"pattern": "^a"}],
    "array": [{}, {"maxItems": 1}, {"minItems": 1}, {"uniqueItems": True}],
}
LIMITS["number"] = LIMITS["integer"]


@st.composite
def schemas(draw: Any, depth: int = 2) -> Any:
    made: dict[str, Any]
    kinds = ["any", "integer", "number", "string", "enum", "typed enum", "boolean", "null", "types"]
    kind = draw(st.sampled_from(kinds + (["object", "object", "array", "anyOf", "oneOf", "allOf"] if depth else [])))
    if kind == "any":
        return draw(st.sampled_from([True, False, {}]))
    if kind == "enum":
        return {"enum": draw(st.lists(st.sampled_from(VALUES[:14]), min_size=1, max_size=4))}
    if kind in ("types", "typed enum"):
        names = st.sampled_from(["null", "integer", "number", "string"])
        made = {"type": draw(st.lists(names, min_size=1, unique=True))}
        return made if kind == "types" else made | {"enum": draw(st.lists(st.sampled_from(VALUES[:14]), min_size=1))}
    if kind in ("anyOf", "oneOf", "allOf"):
        return {kind: draw(st.lists(schemas(depth - 1), min_size=1, max_size=3))}
    made = {"type": kind}
    made |= draw(st.sampled_from(LIMITS.get(kind, [{}])))
    if kind == "array":
        if draw(st.booleans()):
            made["items"] = draw(schemas(depth - 1))
    elif kind == "object":
        names = draw(st.lists(st.sampled_from("xyz"), unique=True))
        made["properties"] = {name: draw(schemas(depth - 1)) for name in names}
        made["required"] = draw(st.lists(st.sampled_from("xyz"), unique=True, max_size=1))
        if draw(st.booleans()):
            made["additionalProperties"] = draw(st.one_of(st.just(False), schemas(0)))
    return made


@st.composite
def pairs(draw: Any) -> tuple[Any, Any]:
    writer = draw(schemas())
    return writer, draw(changed(writer))


@st.composite
def changed(draw: Any, schema: Any) -> Any:
    step = draw(st.integers(0, 9))
    if step == 0 or not isinstance(schema, dict) or not schema:
        return draw(st.one_of(st.just(schema), schemas(1)))
    made = dict(schema)
    if step == 1:
        return {draw(st.sampled_from(["anyOf", "oneOf", "allOf"])): [schema, draw(schemas(1))]}
    if step in (2, 3) and len(made) > 1:
        del made[draw(st.sampled_from(sorted(made)))]
    if step > 4 and isinstance(made.get("type"), str):
        made |= draw(st.sampled_from(LIMITS.get(made["type"], [{}])))
        limits = made.keys() & {"minimum", "maxLength", "minItems"}
        made |= {key: made[key] + draw(st.integers(0, 2)) for key in sorted(limits)}
    for word in ("anyOf", "oneOf", "allOf"):
        if word in made:
            made[word] = [draw(changed(one)) for one in made[word]]
    if "properties" in made:
        made["properties"] = {name: draw(changed(one)) for name, one in made["properties"].items()}
        if step == 4:
            made["properties"]["z"] = draw(schemas(0))
    if "items" in made:
        made["items"] = draw(changed(made["items"]))
    return made


@settings(max_examples=300, deadline=None)
@given(pairs())
@example(({"oneOf": [{"type": "integer"}, {"type": "string"}]}, {"oneOf": [{"type": "string"}, {"type": "number"}]}))
def test_a_compatible_reader_allows_what_the_writer_did(pair: tuple[Any, Any]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    writer, reader = pair
    if json_incompatibilities(Document(reader), Document(writer)):
        return
    old, new = jsonschema.Draft7Validator(writer), jsonschema.Draft7Validator(reader)
    for value in VALUES:
        assert not old.is_valid(value) or new.is_valid(value), value


@settings(max_examples=60, deadline=None)
@given(schemas())
def test_a_schema_without_combinations_is_compatible_with_itself(schema: Any) -> None:
    assert json_problems(schema) == []
    if "Of" not in str(schema):
        assert json_incompatibilities(Document(schema), Document(schema)) == []


def thing(**more: Any) -> dict[str, Any]:
    return {"type": "object", **more}


X, XY = {"x": {"type": "integer"}}, {"x": {"type": "integer"}, "y": {"type": "string"}}


@pytest.mark.parametrize(
    ("reader", "writer", "reason"),
    [
        (thing(properties=XY), thing(properties=X), "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL at #/properties/y"),
        (thing(properties=X), thing(properties=XY), ""),
        (thing(properties=XY, **CLOSED), thing(properties=X, **CLOSED), ""),
        (thing(properties=X, **CLOSED), thing(properties=XY, **CLOSED), "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
        (thing(properties={"x": {}}), thing(patternProperties={"^x": {"type": "string"}}), ""),
        (thing(properties=X), thing(patternProperties={"^x": {}}), "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
        (thing(required=["x"]), thing(), "REQUIRED_ATTRIBUTE_ADDED"),
        (thing(**CLOSED), thing(), "ADDITIONAL_PROPERTIES_NARROWED"),
        ({"type": "string", "maxLength": 3}, {"type": "string"}, "MAX_LENGTH_ADDED at #"),
        ({"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 4}, "MAX_LENGTH_DECREASED"),
        ({"type": "string"}, {"type": "string", "pattern": "a"}, ""),
        ({"type": "number", "minimum": 2}, {"type": "integer", "minimum": 1}, "MINIMUM_INCREASED"),
        ({"enum": [1]}, {"enum": [1, 2]}, "ENUM_ARRAY_NARROWED"),
        ({"enum": [1, 2, 3]}, {"enum": [1, 2]}, ""),
        ({"type": "string", "enum": ["a", None]}, {"type": ["string", "null"], "enum": ["a", None]}, "TYPE_NARROWED"),
        ({"type": "string", "enum": ["a", None]}, {"type": "string", "enum": ["a", None]}, ""),
        ({"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["a", None]}, ""),
        ({"type": ["null", "integer"]}, {"type": "integer"}, ""),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, {"type": "integer"}, ""),
        ({"type": "integer"}, {"oneOf": [{"type": "null"}, {"type": "integer"}]}, "TYPE_NARROWED"),
        ({"type": "array", "items": {"type": "integer"}}, {"type": "array"}, "TYPE_NARROWED at #/items"),
    ],
)  # fmt: skip
def test_reasons(reader: Any, writer: Any, reason: str) -> None:
    found = json_incompatibilities(Document(reader), Document(writer))
    assert any(text.startswith(reason) for text in found) if reason else not found


@pytest.mark.parametrize(("draft", "reasons"), [("draft/2020-12/schema#", 1), ("draft-07/schema#", 0)])
def test_what_stands_beside_a_reference_counts_from_draft_2019_on(draft: str, reasons: int) -> None:
    def document(**beside: Any) -> Document:
        properties = {"x": {"$ref": "#/$defs/a", **beside}}
        schema = f"https://json-schema.org/{draft}"
        return Document({"$schema": schema, "$defs": {"a": {}}, **thing(properties=properties)})

    assert len(json_incompatibilities(document(maxLength=3), document())) == reasons
    assert json_incompatibilities(document(maxLength=3), document(maxLength=3)) == []
    assert json_incompatibilities(document(title="x"), document(maxLength=3)) == []


def test_references_are_followed_also_in_circles() -> None:
    def tree(kind: str) -> Document:
        node = thing(properties={"value": {"type": kind}, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/n"}]}})
        return Document({"$ref": "#/$defs/n", "$defs": {"n": node}})

    assert json_incompatibilities(tree("number"), tree("integer")) == []
    assert json_incompatibilities(tree("integer"), tree("number"))
    one = Document({"$ref": "id.json#/x"}, {"id.json": {"x": {"type": "integer"}}})
    assert json_incompatibilities(one, Document({"type": "integer"})) == [] and not one.problems()
    assert Document({"$ref": "#/x"}).problems() == ["$ref '#/x' leads nowhere"]


DRAFT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
A, AB = {"a": {}}, {"a": {}, "b": {}}
EITHER = {"anyOf": [{"type": "string"}, {"type": "null"}]}


def lengths(longest: int) -> dict[str, Any]:
    return {"oneOf": [{"$ref": "#/$defs/either"}], "maxLength": longest}


@pytest.mark.parametrize(
    ("reader", "writer", "value"),
    [
        (  # one union, reached with different limits beside it
            {"properties": {name: {"type": ["string", "null"], "maxLength": 1} for name in "ab"}},
            {"properties": {"a": lengths(1), "b": lengths(9)}, "$defs": {"either": EITHER}},
            {"b": "long"},
        ),
        (
            thing(properties=A, unevaluatedProperties=False), thing(properties=AB, unevaluatedProperties=False),
            {"b": 1},
        ),
        (
            thing(allOf=[thing(properties=A)], unevaluatedProperties=False),
            thing(allOf=[thing(properties=AB)], unevaluatedProperties=False),
            {"b": 1},
        ),
        (
            thing(properties=A, unevaluatedProperties=False),
            thing(properties=A, patternProperties={"b": {}}, unevaluatedProperties=False),
            {"b": 1},
        ),
        (
            {"type": "array", "prefixItems": [{}], "unevaluatedItems": False},
            {"type": "array", "prefixItems": [{}, {}], "unevaluatedItems": False},
            [1, 2],
        ),
        (
            {"type": "array", "prefixItems": [{}], "unevaluatedItems": False},
            {"type": "array", "prefixItems": [{}], "items": {}, "unevaluatedItems": False},
            [1, 2],
        ),
        (
            {"$ref": "#/$defs/x", "unevaluatedProperties": False, "$defs": {"x": {"properties": A}}},
            {"$ref": "#/$defs/x", "unevaluatedProperties": False, "$defs": {"x": {"properties": AB}}},
            {"b": 1},
        ),
        ({"contains": {"type": "string"}}, {"contains": {"type": "string"}, "minContains": 0}, []),
        *(
            (
                {word: schema, "$defs": {"x": {"type": "integer"}}}, {word: schema, "$defs": {"x": {"type": "string"}}},
                value,
            )
            for word, schema, value in (
                ("patternProperties", {"^x": {"$ref": "#/$defs/x"}}, {"x": "text"}),
                ("not", {"not": {"allOf": [{"$ref": "#/$defs/x"}]}}, "text"),
                ("dependentSchemas", {"a": {"properties": {"b": {"$ref": "#/$defs/x"}}}}, {"a": 1, "b": "text"}),
            )
        ),
        *(
            (
                {"properties": {"a": {word: "#x"}}, "$defs": {"x": {anchor: "x", "type": "integer"}}},
                {"properties": {"a": {word: "#x"}}, "$defs": {"x": {anchor: "x", "type": "string"}}},
                {"a": "text"},
            )
            for word, anchor in (("$ref", "$anchor"), ("$ref", "$dynamicAnchor"))
        ),
        (
            {"properties": {"a": {"$dynamicRef": "#x"}}, "$defs": {"x": {"$dynamicAnchor": "x", "type": "integer"}}},
            {"properties": {"a": {"type": "string"}}},
            {"a": "text"},
        ),
    ],
)  # fmt: skip
def test_a_reader_that_refuses_a_value_is_incompatible(reader: Any, writer: Any, value: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    old, new = DRAFT | writer, DRAFT | reader
    assert jsonschema.Draft202012Validator(old).is_valid(value)
    assert not jsonschema.Draft202012Validator(new).is_valid(value)
    assert json_incompatibilities(Document(new), Document(old))
    assert json_incompatibilities(Document(new), Document(new)) == []


def test_a_closed_schema_takes_a_new_property() -> None:
    reader, writer = (DRAFT | thing(properties=one, unevaluatedProperties=False) for one in (AB, A))
    assert json_incompatibilities(Document(reader), Document(writer)) == []


def test_many_references_in_keywords_that_must_be_alike_count_as_different() -> None:
    def document(count: int) -> Document:
        refs = [{"$ref": f"#/$defs/{number}"} for number in range(count)]
        return Document(DRAFT | {"not": {"allOf": refs}, "$defs": {str(number): {} for number in range(count)}})

    assert json_incompatibilities(document(100), document(100)) == []
    assert json_incompatibilities(document(300), document(300))
