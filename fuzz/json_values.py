"""JSON: values of several types of columns, between sound ones; and whether it is JSON, as Python's parser says."""

from __future__ import annotations

import json

from fuzz.rows import column_of, failed_rows
from kafkalog._core.values.json_rows import JsonRows
from kafkalog.errors import IllegalArgument
from kafkalog.values.json_schema import parse_schema, schema_type
from kafkalog.values.json_types import JSON, JsonType, json_columns

SEALS = False
MOST_BYTES = 1 << 22
INNER = JsonType("struct", (("x", JsonType("double")), ("name with \"", JsonType("string")), ("raw", JSON)))
TYPES = (
    JsonType("struct", (
        ("id", JsonType("int64")), ("name", JsonType("string")), ("price", JsonType("double")),
        ("ok", JsonType("bool")), ("t", JsonType("timestamp")), ("d", JsonType("date")), ("in", INNER),
        ("l", JsonType("list", (("item", INNER),))),
    )),
    JsonType("map", (("value", JsonType("list", (("item", JsonType("string")),))),)),
    JsonType("list", (("item", JsonType("map", (("value", JsonType("struct", (("a", JsonType("int64")),))),))),)),
)  # fmt: skip
SAMPLES = (
    b'{"id":-5,"name":"Z\\u00fcri\\ud83d\\ude00","price":1.5e300,"ok":true,"t":"2024-02-29T12:00:60.5+01:00",'
    b'"d":"2024-12-31","in":{"x":0.1,"name with \\"":"","raw":[{}]},"l":[{"x":1},null],"id":6,"more":[[],{"a":null}]}',
    b'{"a":["x",null],"b":[],"a":["\xc3\xa9"],"":null}',
    b'[{"k":{"a":1,"a":2},"k":null,"j":{}},null,{}]',
)
SCHEMA = len(TYPES)
ANY = SCHEMA + 1
"""The first byte of an input: the number of a type, SCHEMA for a schema, ANY and above for any JSON."""


def prepared(type: JsonType, framing: str = "auto") -> JsonRows:
    """The compiled decoder of a type."""
    return JsonRows(*json_columns(type), framing)


PREPARED = [prepared(type) for type in TYPES]
PLAIN = prepared(JSON, "raw")


def decoded(rows: JsonRows, values: list[bytes | None]) -> set[int]:
    """The rows that do not decode."""
    return failed_rows(rows.decode(column_of(values), MOST_BYTES), len(values))


def run(data: memoryview) -> None:
    """A value decodes or fails alone, first as later: those around it are not touched."""
    if not data:
        return
    kind, value = data[0], bytes(data[1:])
    if kind == SCHEMA:
        run_schema(value)
    elif kind >= ANY:
        run_any(value)
    else:
        rows, good = PREPARED[kind], SAMPLES[kind]
        framed = b"\0\0\0\0\7" + value
        failed = decoded(rows, [value, good, value, None, good, value[: len(value) // 2], framed, good])
        assert failed <= {0, 2, 5, 6} and (0 in failed) == (2 in failed)


def run_any(value: bytes) -> None:
    """Check that exactly what is JSON for Python is JSON here, except halves of surrogate pairs."""
    taken = not decoded(PLAIN, [value])
    try:
        found = json.loads(value.decode(), parse_constant=lambda word: 1 / 0)
    except (ValueError, ZeroDivisionError):
        assert not taken
        return
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    assert taken or "\\ud" in value.decode().lower()


def run_schema(text: bytes) -> None:
    """A schema is refused, or gives columns."""
    try:
        rows = prepared(schema_type(parse_schema(text)))
    except (IllegalArgument, ValueError):
        return
    decoded(rows, [b"", b"{}", b"[]", text, b'{"a":1}'])


def seeds() -> list[bytes]:
    """Sound values, cut and longer; schemas."""
    made = []
    for number, value in enumerate(SAMPLES):
        made += [bytes([number]) + one for one in (value, value[:-1], value + b" x", value[: len(value) // 2])]
        made.append(bytes([ANY]) + value)
    texts = [
        b"-0.0e-12", b"12345678901234567890123", b"1.7976931348623157e308", b'"\\b\\f\\n\\r\\t\\/\\\\\\""', b"null",
        b"tru", b" [ 1 , 2 ] ", b'{"a" : {"b":[true,false]}}', b"[" * 60, b'"\xf0\x9f\x98\x80"', b'"\\udc00"', b"-",
    ]  # fmt: skip
    made += [bytes([ANY]) + text for text in texts]
    made += [bytes([0]) + b'{"%s":%s}' % (name, text) for name in (b"id", b"price", b"x") for text in texts]
    times = (b"2024-01-01T00:00:00Z", b"0001-01-01 00:00:00.1234567-23:59")
    made += [bytes([0]) + b'{"t":"%s"}' % text for text in times]
    schema = {
        "$defs": {"a": {"type": ["integer", "null"]}}, "properties": {"a": {"$ref": "#/$defs/a"}, "b": {"$ref": "#"}},
        "anyOf": [{"type": "object"}], "additionalProperties": {"items": {"const": 1}, "enum": [1]},
    }  # fmt: skip
    made += [bytes([SCHEMA]) + json.dumps(one).encode() for one in (schema, schema["properties"], {"type": "object"})]
    return made
