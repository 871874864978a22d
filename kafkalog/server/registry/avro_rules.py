"""Compatibility of Avro schemas: what keeps a reader from reading a writer's data, by Avro's schema resolution."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kafkalog.values.avro_default import BadDefault, encoded_default
from kafkalog.values.avro_program import PROMOTED, reader_field, same_name
from kafkalog.values.avro_schema import MISSING, AvroType

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_MOST_PAIRS: Final = 1 << 14
"""Pairs of types that are compared at most: unions of unions make many of a few."""
MOST_LEVELS: Final = 150
"""Types within each other that are compared: a field of a record has two or three of them."""


def types_of(schema: AvroType) -> Iterator[AvroType]:
    """Yield all types of a schema, a named one once."""
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [*one.parts, *(field.type for field in one.fields)]


def avro_problems(schema: AvroType) -> list[str]:
    """Return what else is wrong with a schema that could be parsed: names and defaults.

    >>> from kafkalog.values.avro_schema import parse_avro
    >>> avro_problems(parse_avro({"type": "enum", "name": "E", "symbols": ["a-b"]}))
    ["'a-b' is no name"]
    """
    found = []
    for one in types_of(schema):
        names = [*one.name.split("."), *one.symbols, *(field.name for field in one.fields)] if one.name else []
        found += [f"{name!r:.100} is no name" for name in names if not _NAME.match(name)]
        for field in one.fields:
            if field.default is not MISSING:
                try:
                    encoded_default(field.type, field.default)
                except BadDefault as error:
                    found.append(f"the default of field {field.name} of {one.name} does not fit its type: {error}")
    return found


def avro_incompatibilities(reader: AvroType, writer: AvroType) -> list[str]:
    """Return the reasons why the reader's schema cannot read what the writer's describes; none if it can.

    >>> from kafkalog.values.avro_schema import parse_avro
    >>> avro_incompatibilities(parse_avro("long"), parse_avro("int"))
    []
    >>> avro_incompatibilities(parse_avro("int"), parse_avro("long"))
    ['TYPE_MISMATCH at /: the reader has int, the writer long']
    """
    comparison = _Comparison()
    while True:  # a pair was taken for equal inside itself: that must hold in the end
        known = comparison.failures()
        if (found := comparison.problems(reader, writer, "/")) or comparison.failures() == known:
            return found


class _Comparison:
    """Types are compared once for each pair, so that schemas that contain themselves come to an end."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[int, int], list[str]] = {}
        self._left = _MOST_PAIRS
        self._level = 0

    def failures(self) -> int:
        """Return how many pairs do not fit, and forget the others."""
        self._pairs = {key: found for key, found in self._pairs.items() if found}
        return len(self._pairs)

    def problems(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        """Return why a type of the reader cannot take one of the writer's."""
        key = (id(reader), id(writer))
        if key not in self._pairs:
            self._left -= 1
            if self._left < 0:
                return [f"the schemas have more than {_MOST_PAIRS} pairs of types"]
            if self._level >= MOST_LEVELS:
                return [f"the schemas are nested more than {MOST_LEVELS} types deep"]
            self._pairs[key] = []
            self._level += 1
            self._pairs[key] = self._compared(reader, writer, path)
            self._level -= 1
        return self._pairs[key]

    def _compared(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        if writer.kind == "union":
            return [text for part in writer.parts for text in self.problems(reader, part, path)]
        if reader.kind == "union":
            if any(not self.problems(part, writer, path) for part in reader.parts):
                return []
            return [f"MISSING_UNION_BRANCH at {path}: the reader's union has no branch for {writer.short_name}"]
        if reader.kind != writer.kind:
            if (writer.kind, reader.kind) in PROMOTED:
                return _decimals(reader, writer, path)
            return [f"TYPE_MISMATCH at {path}: the reader has {reader.kind}, the writer {writer.kind}"]
        if reader.kind in ("array", "map"):
            return self.problems(reader.parts[0], writer.parts[0], f"{path.rstrip('/')}/{reader.kind}")
        if not reader.name:
            return _decimals(reader, writer, path)
        if not same_name(writer, reader):
            return [f"NAME_MISMATCH at {path}: the reader has {reader.name}, the writer {writer.name}"]
        if reader.kind == "record":
            return self._record(reader, writer, path)
        if reader.kind == "fixed":
            if reader.size != writer.size:
                return [f"FIXED_SIZE_MISMATCH at {path}: the reader has {reader.size}, the writer {writer.size} bytes"]
            return _decimals(reader, writer, path)
        missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
        if missing and reader.default is None:
            return [f"MISSING_ENUM_SYMBOLS at {path}: the reader's {reader.name} lacks {', '.join(missing)}"]
        return []

    def _record(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        sources: dict[int, AvroType] = {}
        for one in writer.fields:
            number = reader_field(one, reader, set(sources))
            if number is not None:
                sources[number] = one.type
        found: list[str] = []
        for number, wanted in enumerate(reader.fields):
            inner = f"{path.rstrip('/')}/{wanted.name}"
            if number in sources:
                found += self.problems(wanted.type, sources[number], inner)
            elif wanted.default is MISSING:
                text = "the writer has no such field, and the reader no default"
                found.append(f"READER_FIELD_MISSING_DEFAULT_VALUE at {inner}: {text}")
        return found


def _decimals(reader: AvroType, writer: AvroType, path: str) -> list[str]:
    """Decimals are numbers only with the writer's scale."""
    if reader.logical == writer.logical == "decimal":
        if (reader.precision, reader.scale) != (writer.precision, writer.scale):
            return [f"DECIMAL_MISMATCH at {path}: precision and scale differ"]
    return []
