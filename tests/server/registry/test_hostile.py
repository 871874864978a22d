"""Requests and records of any shape: each is answered, if only with an error of the interface."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.server.registry import avro_rules
from kafkalog.server.registry.avro_rules import avro_incompatibilities, avro_problems
from kafkalog.server.registry.content import Content
from kafkalog.server.registry.errors import RestError
from kafkalog.server.registry.json_rules import Document, json_incompatibilities
from kafkalog.server.registry.records import change_of
from kafkalog.server.registry.requests import request_of
from kafkalog.server.registry.routes import decide
from kafkalog.values.avro_schema import parse_avro
from kafkalog.values.json_schema import MOST_DEPTH

WORDS = st.sampled_from(["subjects", "versions", "schemas", "ids", "config", "compatibility", "mode", "latest", "1",
                         "s", "-1", "\ud800", "é/?", "schema", "types", "referencedby"])  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(
        ["AVRO", "JSON", "PROTOBUF", "record", "int", "#", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["schema", "schemaType", "references", "type", "name", "fields", "items", "properties", "$ref", "enum",
         "symbols", "size", "default", "allOf", "oneOf", "maxLength", "subject", "version", "id"]), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


def content() -> Content:
    made = Content()
    for number, text in enumerate(['"int"', '{"type":"array","items":"int"}'], 1):
        key = {"keytype": "SCHEMA", "subject": "s", "version": number}
        made.apply(change_of(json.dumps(key).encode(), json.dumps({"id": number, "schema": text}).encode()))
    return made


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD"]), st.lists(WORDS, max_size=5),
    st.sampled_from(["", "?deleted=true&permanent=true", "?normalize=true&verbose=true", "?limit=0&offset=x"]), JSON,
    st.sampled_from(["AVRO", "JSON", None]),
)  # fmt: skip
def test_any_request(method: str, parts: list[str], query: str, given_body: Any, kind: str | None) -> None:
    inner = {"schema": json.dumps(given_body), "schemaType": kind}
    for body in (given_body, inner):
        path = "/".join(quote(part, safe="", errors="surrogatepass") for part in parts)
        try:
            plan = decide(content(), request_of(method, f"/{path}{query}", json.dumps(body).encode()))
        except RestError as error:
            assert 400 <= error.status < 500 or error.code == 50001
        else:
            json.dumps(plan.answer)
            again = content()
            for key, value in plan.records:
                again.apply(change_of(key, value))


@settings(max_examples=300, deadline=None)
@given(JSON, JSON, st.sampled_from(["SCHEMA", "CONFIG", "MODE", "DELETE_SUBJECT", "CLEAR_SUBJECT", "NOOP", "?"]))
def test_any_record(subject: Any, value: Any, kind: str) -> None:
    """A record is applied or refused; what was known is still there, and answered."""
    made = content()
    try:
        made.apply(change_of(json.dumps({"keytype": kind, "subject": subject, "version": 1}).encode(),
                             json.dumps(value).encode()))  # fmt: skip
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        pass
    for path in ("/subjects", "/config", "/config/s?defaultToGlobal=true", "/mode", "/schemas?deleted=true"):
        json.dumps(decide(made, request_of("GET", path)).answer)


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_deep_schemas_and_those_that_refer_to_themselves(kind: str) -> None:
    deep = '{"type":"array","items":' * 5000 + '"int"' + "}" * 5000
    circle = '{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}'
    for text in (deep, circle):
        with pytest.raises(RestError) as caught:
            body = json.dumps({"schema": text, "schemaType": kind}).encode()
            decide(content(), request_of("POST", "/subjects/new/versions", body))
        assert caught.value.code == 42201


def far_down(calls: int, compare: Any) -> Any:
    return far_down(calls - 1, compare) if calls else compare()


def test_schemas_that_are_compared_to_a_depth_of_their_own() -> None:
    """Not to that of the interpreter's stack, which depends on the caller."""
    avro: Any = "int"
    for number in range(avro_rules.MOST_LEVELS):
        avro = {"type": "record", "name": f"R{number}", "fields": [{"name": "f", "type": avro}]}
    shallow = avro["fields"][0]["type"]
    assert far_down(200, lambda: avro_incompatibilities(parse_avro(shallow), parse_avro(shallow))) == []
    found = far_down(200, lambda: avro_incompatibilities(parse_avro(avro), parse_avro(avro)))
    assert found == [f"the schemas are nested more than {avro_rules.MOST_LEVELS} types deep"]

    def chain(count: int, word: str, last: str) -> Document:
        known: dict[str, Any] = {f"d{n}": {word: {"x": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(count)}
        return Document({"$ref": "#/$defs/d0", "$defs": {**known, f"d{count}": {"type": last}}})

    assert far_down(200, lambda: json_incompatibilities(
        chain(MOST_DEPTH - 1, "properties", "number"), chain(MOST_DEPTH - 1, "properties", "integer")
    )) == []  # fmt: skip
    found = far_down(200, lambda: json_incompatibilities(
        chain(3000, "properties", "number"), chain(3000, "properties", "integer")
    ))  # fmt: skip
    assert len(found) == 1 and f"more than {MOST_DEPTH} deep" in found[0]


def test_a_default_that_contains_itself() -> None:
    inner = {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R", "default": {}}]}
    assert far_down(200, lambda: avro_problems(parse_avro(inner))) == [
        "the default of field r of R does not fit its type: it is nested more than 200 levels deep"
    ]
