"""Kafka's messages by schema: tables of fields per version, and the one reader for all of them.

A schema is a line `Name id versions [flexible N+]` and an indented line for each field:
`name type [versions] [tag N] [= default]`. Types are bool, i8, i16, u16, i32, u32, i64, f64, string, bytes, uuid,
`{}` (a struct, whose fields follow, indented) and the name of a struct that a `struct Name` line defines; `[type]` is
an array, and a `?` behind a type lets it be null. A field without versions is in all versions of its message.
The formats are those of KIP-482: in flexible versions sizes are unsigned varints plus one, and tagged fields follow.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kafkalog.records.message import UNDERFLOW, MessageError, Source

Message = dict[str, Any]
Read = Callable[[Source], Any]

_HEADER = re.compile(r"(\w+) (-|\d+) (\d+)(?:-(\d+))?(?: flexible (\d+)\+)?")
_FIELD = re.compile(
    r"(?P<name>\w+) (?P<array>\[)?(?P<type>\w+|\{\})(?(array)\])(?P<null>\?)?(?: (?P<first>\d+)(?P<open>\+)?)?"
    r"(?: tag (?P<tag>\d+))?(?: = (?P<default>\S+))?"
)
_NEVER: Final = 1 << 16
_PLAIN: Final[dict[str, Read]] = {
    "bool": Source.boolean,
    "i8": Source.i8,
    "i16": Source.i16,
    "u16": Source.u16,
    "i32": Source.i32,
    "u32": Source.u32,
    "i64": Source.i64,
    "f64": Source.f64,
    "uuid": Source.uuid,
}
_ZEROS: Final[dict[str, Any]] = {"bool": False, "f64": 0.0, "uuid": "A" * 22, "string": "", "bytes": b""}


class Field(NamedTuple):
    """A row of a schema; `fields` are those of its struct, `default` matters for tagged fields only."""

    name: str
    type: str
    array: bool
    nullable: bool
    first: int
    last: int
    tag: int | None
    default: Any
    fields: tuple[Field, ...]


class Schema:
    """One message: its name, its number among its kind (-1: none), its versions and its fields."""

    def __init__(
        self, name: str, number: int, versions: tuple[int, int], flexible: int, fields: tuple[Field, ...]
    ) -> None:
        self.name = name
        self.number = number
        self.lowest, self.highest = versions
        self.flexible_from = flexible
        self.fields = fields
        self._readers: dict[int, Read] = {}

    def __repr__(self) -> str:
        return f"<Schema {self.name} {self.lowest}-{self.highest}>"

    def read(self, source: Source, version: int) -> Message:
        """The message at the source's place, in the order of the schema; the source then stands behind it.

        Strings are str, uuids str of 22 characters, bytes bytes; tagged fields that have their default are left out.
        A version below those the schema knows is read as the lowest, one above as the highest, but without structs in
        it, as the reference does. MessageError for what the schema does not take.
        """
        version = min(max(version, self.lowest), self.highest + 1)
        reader = self._readers.get(version)
        if reader is None:
            flexible = version >= self.flexible_from
            reader = self._readers[version] = struct_reader(self.fields, version, flexible, self.highest)
        try:
            message: Message = reader(source)
        except struct.error:
            raise MessageError(UNDERFLOW) from None
        return message


def struct_reader(fields: tuple[Field, ...], version: int, flexible: bool, highest: int) -> Read:
    """Reads a struct of these fields as it is in that version; `highest` is the last one with structs inside."""
    present = [f for f in fields if f.first <= version <= f.last]
    plain = [(f.name, field_reader(f, version, flexible, highest)) for f in present if f.tag is None]
    if not flexible:
        return lambda source: {name: read(source) for name, read in plain}
    tagged = {f.tag: (f, field_reader(f, version, True, highest)) for f in fields if f.tag is not None}
    absent = {f.tag for f in fields if f.tag is not None and f not in present}
    in_order = [f.name for f in fields]

    def read_struct(source: Source) -> Message:
        message = {name: read(source) for name, read in plain}
        more = {}
        for _ in range(source.uvarint()):
            tag, size = source.uvarint(), source.uvarint()
            if tag not in tagged:
                source.take(size)
                continue
            if tag in absent:
                raise MessageError(f"Tag {tag} is not valid for version {version}")
            field, read = tagged[tag]
            more[field.name] = read(source)
            if more[field.name] == field.default:
                del more[field.name]
        if not more:
            return message
        message |= more
        return {name: message[name] for name in in_order if name in message}

    return read_struct


def field_reader(field: Field, version: int, flexible: bool, highest: int) -> Read:
    """Reads one field as it is in that version."""
    one = _item_reader(field, version, flexible, highest)
    if not field.array:
        return one
    size_of = _size_reader(flexible)
    name, nullable = field.name, field.nullable

    def read_array(source: Source) -> Any:
        count = size_of(source)
        if count < 0:
            return _null(nullable, name)
        if count > source.left:
            raise MessageError(
                f"Tried to allocate a collection of size {count}, but there are only {source.left} bytes remaining."
            )
        return [one(source) for _ in range(count)]

    return read_array


def _null(allowed: bool, name: str) -> Any:
    """None, where the field may be null."""
    if not allowed:
        raise MessageError(f"non-nullable field {name} was serialized as null")
    return None


def _no_struct(source: Source) -> Any:
    raise MessageError("a struct of a newer version cannot be read")


def _size_reader(flexible: bool) -> Callable[[Source], int]:
    return (lambda source: source.uvarint() - 1) if flexible else Source.i32


def _item_reader(field: Field, version: int, flexible: bool, highest: int) -> Read:
    """Reads one value of the field's type: the field, or an element of its array (which is never null)."""
    if field.type in _PLAIN:
        return _PLAIN[field.type]
    nullable = field.nullable and not field.array
    if field.type not in ("string", "bytes"):
        read = struct_reader(field.fields, version, flexible, highest) if version <= highest else _no_struct
        if not nullable:
            return read
        if field.tag is not None:
            return lambda source: read(source) if source.uvarint() > 0 else None
        return lambda source: read(source) if source.i8() >= 0 else None
    name = f"{field.name} element" if field.array else field.name
    is_text = field.type == "string"
    size_of = Source.i16 if is_text and not flexible else _size_reader(flexible)

    def read_sized(source: Source) -> Any:
        size = size_of(source)
        if size < 0:
            return _null(nullable, name)
        return source.text(size, name) if is_text else source.take(size)

    return read_sized


# --- the notation of the tables


def schemas(text: str) -> dict[str, Schema]:
    """The schemas of a table, by name; `#` begins a comment. ValueError for a line that is none."""
    lines = [(len(line) - len(line.lstrip()), line.split("#")[0].strip()) for line in text.splitlines()]
    lines = [(depth, words) for depth, words in lines if words]
    structs: dict[str, tuple[Field, ...]] = {}
    found: dict[str, Schema] = {}
    at = 0
    while at < len(lines):
        words = lines[at][1]
        fields, after = _fields(lines, at + 1, lines[at][0], structs)
        if words.startswith("struct "):
            structs[words.split()[1]] = fields
        elif (header := _HEADER.fullmatch(words)) is not None:
            name, number, low, high, flexible = header.groups()
            found[name] = Schema(
                name,
                -1 if number == "-" else int(number),
                (int(low), int(high or low)),
                _NEVER if flexible is None else int(flexible),
                fields,
            )
        else:
            raise ValueError(f"{words!r} is no line of a schema")
        at = after
    return found


def _fields(
    lines: list[tuple[int, str]], at: int, outer: int, structs: dict[str, tuple[Field, ...]]
) -> tuple[tuple[Field, ...], int]:
    """The fields of the lines that are deeper than `outer`, and the line after them."""
    fields = []
    while at < len(lines) and lines[at][0] > outer:
        match = _FIELD.fullmatch(lines[at][1])
        if match is None:
            raise ValueError(f"{lines[at][1]!r} is no field of a schema")
        inner, after = _fields(lines, at + 1, lines[at][0], structs)
        fields.append(_field(match, inner or structs.get(match["type"], ())))
        at = after
    return tuple(fields), at


def _field(match: re.Match[str], inner: tuple[Field, ...]) -> Field:
    kind = match["type"]
    if kind not in _PLAIN and kind not in _ZEROS and kind != "{}" and not inner:
        raise ValueError(f"{match[0]!r}: there is no type {kind}")
    first = int(match["first"] or 0)
    return Field(
        name=match["name"],
        type="{}" if inner else kind,
        array=match["array"] is not None,
        nullable=match["null"] is not None,
        first=first,
        last=_NEVER if match["open"] or match["first"] is None else first,
        tag=None if match["tag"] is None else int(match["tag"]),
        default=_default(match, inner),
        fields=inner,
    )


def _default(match: re.Match[str], inner: tuple[Field, ...]) -> Any:
    given = match["default"]
    if given == "null":
        return None
    if given is not None:
        return int(given)
    if match["array"]:
        return []
    if inner:
        return {field.name: field.default for field in inner if field.tag is None}
    return _ZEROS.get(match["type"], 0)
