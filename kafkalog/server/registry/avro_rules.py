"""Compatibility of Avro schemas: what keeps a reader from reading a writer's data, by Avro's schema resolution."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kafkalog.values.avro_default import BadDefault, encoded_default
from kafkalog.values.avro_schema import MISSING, AvroField, AvroType

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_MOST_PAIRS: Final = 1 << 16
"""Pairs of types that are compared at most: unions of unions make many of a few."""
_PROMOTED: Final = {
    "long": ("int",), "float": ("int", "long"), "double": ("int", "long", "float"), "string": ("bytes",),
    "bytes": ("string",),
}  # fmt: skip


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
                except (BadDefault, RecursionError) as error:
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
    try:
        return list(_Comparison().problems(reader, writer, "/"))
    except RecursionError:
        return ["the schemas are nested too deeply"]


def _same_name(reader: AvroType, writer: AvroType) -> bool:
    """Return True if names match without their namespaces, or one is an alias."""
    names = {writer.name, writer.short_name}
    return bool(names & {reader.name, reader.short_name, *reader.aliases})


class _Comparison:
    """Types are compared once for each pair, so that schemas that contain themselves come to an end."""

    def __init__(self) -> None:
        self._begun: dict[tuple[int, int], list[str]] = {}

    def problems(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        key = (id(reader), id(writer))
        if key not in self._begun:
            if len(self._begun) >= _MOST_PAIRS:
                return [f"the schemas have more than {_MOST_PAIRS} pairs of types"]
            self._begun[key] = []
            self._begun[key] = self._compared(reader, writer, path)
        return self._begun[key]

    def _compared(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        if writer.kind == "union":
            return [text for part in writer.parts for text in self.problems(reader, part, path)]
        if reader.kind == "union":
            if any(not self.problems(part, writer, path) for part in reader.parts):
                return []
            return [f"MISSING_UNION_BRANCH at {path}: the reader's union has no branch for {writer.short_name}"]
        if reader.kind != writer.kind:
            if writer.kind in _PROMOTED.get(reader.kind, ()):
                return []
            return [f"TYPE_MISMATCH at {path}: the reader has {reader.kind}, the writer {writer.kind}"]
        if reader.kind in ("array", "map"):
            return self.problems(reader.parts[0], writer.parts[0], f"{path.rstrip('/')}/{reader.kind}")
        if not reader.name:
            return _decimals(reader, writer, path)
        if not _same_name(reader, writer):
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
        found: list[str] = []
        taken: set[str] = set()
        for one in reader.fields:
            source = _writer_field(one, writer, taken)
            inner = f"{path.rstrip('/')}/{one.name}"
            if source is not None:
                taken.add(source.name)
                found += self.problems(one.type, source.type, inner)
            elif one.default is MISSING:
                found.append(
                    f"READER_FIELD_MISSING_DEFAULT_VALUE at {inner}: the writer has no such field, and the reader no "
                    "default"
                )
        return found


def _decimals(reader: AvroType, writer: AvroType, path: str) -> list[str]:
    """Decimals are numbers only with the writer's scale."""
    if reader.logical == writer.logical == "decimal":
        if (reader.precision, reader.scale) != (writer.precision, writer.scale):
            return [f"DECIMAL_MISMATCH at {path}: precision and scale differ"]
    return []


def _writer_field(wanted: AvroField, writer: AvroType, taken: set[str]) -> AvroField | None:
    """Return the writer's field for one of the reader's: by its name, else by an alias."""
    known = {one.name: one for one in writer.fields}
    for name in (wanted.name, *wanted.aliases):
        if name in known and name not in taken:
            return known[name]
    return None
