"""Avro schemas: the JSON of a schema as a checked tree of types, with names resolved."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kafkalog.errors import IllegalArgument

MISSING: Final = object()
"""The default of a field that has none."""
PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
NAMED: Final = frozenset(("record", "error", "enum", "fixed"))
MOST_DECIMAL_DIGITS: Final = 38
"""Digits of the decimals that become decimal columns; those of more stay bytes."""
_MOST_DEPTH: Final = 200
_LOGICAL: Final = {
    "date": ("int",), "time-millis": ("int",), "time-micros": ("long",), "timestamp-millis": ("long",),
    "timestamp-micros": ("long",), "timestamp-nanos": ("long",), "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",), "local-timestamp-nanos": ("long",), "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
}  # fmt: skip


@dataclass(slots=True, eq=False)
class AvroType:
    """A type of a schema. A named type is one object wherever it is used, so a recursive schema is a cycle."""

    kind: str
    name: str = ""
    """The full name of a named type."""
    aliases: tuple[str, ...] = ()
    logical: str = ""
    """The logical type, empty where there is none or it is not valid, which Avro ignores."""
    size: int = 0
    precision: int = 0
    scale: int = 0
    symbols: tuple[str, ...] = ()
    default: str | None = None
    """The symbol for those that a reader does not know."""
    fields: list[AvroField] = field(default_factory=list)
    parts: list[AvroType] = field(default_factory=list)
    """The items of an array, the values of a map, the branches of a union."""

    @property
    def short_name(self) -> str:
        """The name without its namespace; the kind of a type that has none."""
        return self.name.rpartition(".")[2] or self.kind


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record; `default` is JSON, or MISSING."""

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    default: Any = MISSING


def parse_avro(schema: str | bytes | Mapping[str, Any] | Sequence[Any], references: Sequence[str] = ()) -> AvroType:
    """Return the tree of a schema: JSON text, or what `json.loads` makes of it.

    `references` are schemas whose names it may use, in the order in which they build on each other. IllegalArgument
    says what is wrong with a schema, and where.

    >>> user = parse_avro('{"type": "record", "name": "a.User", "fields": [{"name": "id", "type": ["null", "long"]}]}')
    >>> user.name, user.fields[0].type.parts[1].kind
    ('a.User', 'long')
    """
    parser = _Parser()
    try:
        for text in references:
            parser.read(_loaded(text), "", "", 0)
        return parser.read(_loaded(schema), "", "", 0)
    except RecursionError:
        raise _wrong("", "it is nested too deeply") from None


def _loaded(schema: object) -> Any:
    if isinstance(schema, bytes | bytearray):
        schema = bytes(schema).decode("utf-8", "replace")
    if not isinstance(schema, str):
        return schema
    text = schema.strip()
    if text in PRIMITIVES:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong("", f"it is not JSON: {error}") from None


def _wrong(place: str, text: str) -> IllegalArgument:
    shown = f" at {place}" if place else ""
    return IllegalArgument(f"the Avro schema is not valid{shown}: {text}", hint="see Avro's specification of schemas")


class _Parser:
    def __init__(self) -> None:
        self.names: dict[str, AvroType] = {}

    def read(self, schema: Any, space: str, place: str, depth: int) -> AvroType:
        if depth > _MOST_DEPTH:
            raise _wrong(place, f"it is nested more than {_MOST_DEPTH} levels deep")
        if isinstance(schema, str):
            return self._named(schema, space, place)
        if isinstance(schema, Mapping):
            return self._object(schema, space, place, depth)
        if isinstance(schema, Sequence) and not isinstance(schema, bytes):
            return self._union(schema, space, place, depth)
        raise _wrong(place, f"{schema!r:.60} is no type")

    def _named(self, name: str, space: str, place: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        found = self.names.get(name if "." in name or not space else f"{space}.{name}") or self.names.get(name)
        if found is None:
            raise _wrong(place, f"there is no type {name!r:.100}")
        return found

    def _union(self, schema: Sequence[Any], space: str, place: str, depth: int) -> AvroType:
        parts = [self.read(part, space, place, depth + 1) for part in schema]
        if not parts:
            raise _wrong(place, "a union has no branch")
        keys = [part.name or part.kind for part in parts]
        if len(set(keys)) != len(keys) or "union" in keys:
            raise _wrong(place, "a union has a union, or a type twice")
        return AvroType("union", parts=parts)

    def _object(self, schema: Mapping[str, Any], space: str, place: str, depth: int) -> AvroType:
        kind = schema.get("type")
        if not isinstance(kind, str):
            if kind is None:
                raise _wrong(place, "a type has no 'type'")
            return self.read(kind, space, place, depth + 1)
        if kind in PRIMITIVES:
            return _with_logical(AvroType(kind), schema)
        if kind in NAMED:
            return self._definition(kind, schema, space, place, depth)
        if kind in ("array", "map"):
            key = "items" if kind == "array" else "values"
            if key not in schema:
                raise _wrong(place, f"the {kind} has no '{key}'")
            return AvroType(kind, parts=[self.read(schema[key], space, place, depth + 1)])
        return self._named(kind, space, place)

    def _definition(self, kind: str, schema: Mapping[str, Any], space: str, place: str, depth: int) -> AvroType:
        name = schema.get("name")
        if not isinstance(name, str) or not name:
            raise _wrong(place, f"the {kind} has no name")
        if "." not in name:
            own = schema.get("namespace", space)
            name = f"{own}.{name}" if isinstance(own, str) and own else name
        if not _is_text(name):
            raise _wrong(place, f"{name!r:.100} is no name")
        if name in self.names:
            raise _wrong(place, f"the name {name!r} is defined twice")
        space = name.rpartition(".")[0]
        aliases = _texts(schema.get("aliases") or (), place)
        made = AvroType("record" if kind == "error" else kind, name)
        made.aliases = tuple(a if "." in a or not space else f"{space}.{a}" for a in aliases)
        self.names[name] = made
        if kind == "fixed":
            size = schema.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= 1 << 20:
                raise _wrong(place, f"the size {size!r:.40} of fixed {name} is not from 0 to 1048576")
            made.size = size
            return _with_logical(made, schema)
        if kind == "enum":
            return self._enum(made, schema, place)
        fields = schema.get("fields")
        if not isinstance(fields, Sequence) or isinstance(fields, str | bytes):
            raise _wrong(place, f"the record {name} has no fields")
        for one in fields:
            made.fields.append(self._field(one, space, place, depth))
        names = [one.name for one in made.fields]
        if len(set(names)) != len(names):
            raise _wrong(place, f"the record {name} has a field twice")
        return made

    def _enum(self, made: AvroType, schema: Mapping[str, Any], place: str) -> AvroType:
        made.symbols = tuple(_texts(schema.get("symbols") or (), place))
        if not made.symbols or len(set(made.symbols)) != len(made.symbols):
            raise _wrong(place, f"the enum {made.name} has no symbol, or one twice")
        default = schema.get("default")
        if default is not None and default not in made.symbols:
            raise _wrong(place, f"the default {default!r:.60} of enum {made.name} is none of its symbols")
        made.default = default
        return made

    def _field(self, schema: Any, space: str, place: str, depth: int) -> AvroField:
        if not isinstance(schema, Mapping) or not isinstance(schema.get("name"), str) or "type" not in schema:
            raise _wrong(place, f"{schema!r:.60} is no field")
        name = schema["name"]
        inner = f"{place}.{name}" if place else name
        if not name or not _is_text(name):
            raise _wrong(place, f"{name!r} is no name of a field")
        aliases = tuple(_texts(schema.get("aliases") or (), inner))
        kind = self.read(schema["type"], space, inner, depth + 1)
        return AvroField(name, kind, aliases, schema.get("default", MISSING))


def _is_text(name: str) -> bool:
    """Return False for what no column's name can have: a zero byte, or half of a surrogate pair."""
    return "\0" not in name and not any("\ud800" <= letter <= "\udfff" for letter in name)


def _texts(values: Any, place: str) -> list[str]:
    if not isinstance(values, list | tuple) or not all(isinstance(name, str) and _is_text(name) for name in values):
        raise _wrong(place, f"{values!r:.60} is no list of names")
    return list(values)


def _with_logical(made: AvroType, schema: Mapping[str, Any]) -> AvroType:
    """Add the logical type; one that Avro's rules call invalid is left out, as they say."""
    logical = schema.get("logicalType")
    if not isinstance(logical, str) or made.kind not in _LOGICAL.get(logical, ()):
        return made
    if logical == "uuid" and made.kind == "fixed" and made.size != 16:
        return made
    if logical == "decimal":
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int):
            return made
        if isinstance(precision, bool) or isinstance(scale, bool):
            return made
        if precision < 1 or not 0 <= scale <= precision or precision > MOST_DECIMAL_DIGITS:
            return made
        made.precision, made.scale = precision, scale
    made.logical = logical
    return made
