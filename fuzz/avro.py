"""Avro: values of several schemas and resolutions, between sound ones; and schemas themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuzz.rows import column_of, failed_rows
from kafkalog._core.values.avro import FRAMINGS, fill
from kafkalog._core.values.avro_program import AvroProgram, AvroPrograms
from kafkalog._core.values.builder import Builder
from kafkalog.errors import IllegalArgument
from kafkalog.values.avro_columns import columns_of
from kafkalog.values.avro_default import encoded_default
from kafkalog.values.avro_program import avro_program
from kafkalog.values.avro_schema import parse_avro

if TYPE_CHECKING:
    from kafkalog._core.values.builder import Field

SEALS = False
MOST_BYTES = 1 << 22
MOST_ITEMS = 1000
INNER: dict[str, Any] = {
    "type": "record", "name": "In", "fields": [
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2}},
        {"name": "u", "type": ["null", "string", "F", {"type": "array", "items": "E"}]},
    ],
}  # fmt: skip
WIDE = {
    "type": "record", "name": "R", "fields": [
        {"name": "b", "type": "boolean"}, {"name": "i", "type": "int"}, {"name": "l", "type": "long"},
        {"name": "s", "type": "string"}, {"name": "o", "type": ["null", "double"]}, {"name": "x", "type": "float"},
        {"name": "in", "type": INNER}, {"name": "m", "type": {"type": "map", "values": ["null", "In"]}},
        {"name": "t", "type": {"type": "int", "logicalType": "time-millis"}},
    ],
}  # fmt: skip
NARROW = {
    "type": "record", "name": "R", "fields": [
        {"name": "l", "type": ["null", "double"]},
        {"name": "new", "type": {"type": "array", "items": "int"}, "default": [1]},
        {"name": "m", "type": {"type": "map", "values": ["null", {
            "type": "record", "name": "In", "fields": [
                {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["B", "Z"], "default": "Z"}},
            ],
        }]}},
    ],
}  # fmt: skip
TREE = {"type": "record", "name": "T", "fields": [
    {"name": "v", "type": "int"}, {"name": "kids", "type": {"type": "array", "items": "T"}},
]}  # fmt: skip
LEAF = {"type": "record", "name": "T", "fields": [{"name": "v", "type": "long"}]}
NULLS = {"type": "array", "items": {"type": "array", "items": "null"}}
PAIRS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (WIDE, WIDE), (WIDE, NARROW), (TREE, LEAF), (NULLS, NULLS), (INNER, INNER),
]  # fmt: skip
SAMPLES: list[Any] = [
    {"b": True, "i": -5, "l": 1 << 40, "s": "Zürich", "o": None, "x": 1.5, "t": 1000, "m": {"k": None},
     "in": {"e": "B", "f": "abc", "d": "\u0001\u0002", "u": "text"}},
    {"b": False, "i": 5, "l": -1, "s": "", "o": 2.5, "x": 0, "t": 0, "m": {},
     "in": {"e": "C", "f": "abc", "d": "", "u": ["A", "C"]}},
    {"v": 1, "kids": [{"v": 2, "kids": []}]},
    [[None, None], []],
    {"e": "A", "f": "abc", "d": "\u00ff", "u": None},
]  # fmt: skip
SCHEMAS = len(PAIRS)
"""The first byte of an input that is a schema; below it, the number of a pair."""


def sample(number: int) -> bytes:
    """A sound value of a pair's writer."""
    return encoded_default(parse_avro(PAIRS[number][0]), SAMPLES[number])


def prepared() -> list[tuple[Field, AvroProgram, bytes]]:
    """The columns, the program and a sound value of each pair."""
    made = []
    for number, (written, read) in enumerate(PAIRS):
        reader = parse_avro(read)
        column = columns_of(reader, dictionaries=number == 0)
        made.append((column.tree(), avro_program(parse_avro(written), reader, column), sample(number)))
    return made


PREPARED = prepared()


def decoded(tree: Field, program: AvroProgram, rows: list[bytes | None], sized: list[bytes]) -> set[int]:
    """The rows that do not decode, of all in one builder: those of `sized` begin with their lengths."""
    builder = Builder(tree, MOST_BYTES)
    programs = AvroPrograms({0: program})
    for part, framing in ((rows, "raw"), (sized, "length")):
        row, unknown = fill(builder, column_of(part), programs, FRAMINGS[framing], 0, MOST_ITEMS)
        assert unknown is None and row == len(part), (row, unknown, builder.stopped)
    return failed_rows(builder, len(rows) + len(sized))


def run(data: memoryview) -> None:
    """A value decodes or fails alone, first as later: those around it are not touched."""
    if not data:
        return
    kind, value = data[0], bytes(data[1:])
    if kind >= SCHEMAS:
        run_schema(value)
        return
    tree, program, good = PREPARED[kind]
    failed = decoded(tree, program, [value, good, value, None, good, value[: len(value) // 2], good], [value, good])
    assert failed <= {0, 2, 5, 7, 8} and (0 in failed) == (2 in failed)


def run_schema(text: bytes) -> None:
    """A schema is refused, or reads values of its own."""
    try:
        schema = parse_avro(text)
        column = columns_of(schema)
        program = avro_program(schema, schema, column)
    except IllegalArgument:
        return
    decoded(column.tree(), program, [b"", bytes(8), b"\2" * 20, text], [])
