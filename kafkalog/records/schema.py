"""Kafka's messages by schema: tables of fields per version, and the single reader for all of them.

A schema is a line `Name id versions [flexible N+]` and an indented line for each field:
`name type [versions] [tag N] [= default]`. Types are bool, i8, i16, u16, i32, u32, i64, f64, string, bytes, uuid,
`{}` (a struct, whose fields follow, indented) and the name of a struct that a `struct Name` line defines. `[type]` is
an array; a `?` after a type makes it nullable. A field without versions is in all versions of its message. The formats
are those of KIP-482: in flexible versions sizes are unsigned varints plus one, and tagged fields follow.
"""

from __future__ import annotations

import base64
import re
from typing import Any, Final, NamedTuple

from kafkalog._core.messages.reader import Dialect, MessageReader
from kafkalog.records.message import UNDERFLOW, MessageError, Source

Message = dict[str, Any]

_HEADER = re.compile(r"(\w+) (-|\d+) (\d+)(?:-(\d+))?(?: flexible (\d+)\+)?")
_FIELD = re.compile(
    r"(?P<name>\w+) (?P<array>\[)?(?P<type>\w+|\{\})(?(array)\])(?P<null>\?)?(?: (?P<first>\d+)(?P<open>\+)?)?"
    r"(?: tag (?P<tag>\d+))?(?: = (?P<default>\S+))?"
)
_NEVER: Final = 1 << 16
_NUMBERS: Final = frozenset({"i8", "i16", "u16", "i32", "u32", "i64"})
_ZEROS: Final[dict[str, object]] = {"bool": False, "f64": 0.0, "uuid": "A" * 22, "string": "", "bytes": b""}
_WORDS: Final = {
    "ends": UNDERFLOW,
    "ends in id": UNDERFLOW,
    "null": "non-nullable field {name} was serialized as null",
    "beyond": "Error reading byte array of {0} byte(s): only {1} byte(s) available",
    "text too long": "string field {name} had invalid length {0}",
    "too few bytes": "Tried to allocate a collection of size {0}, but there are only {1} bytes remaining.",
    "long varint": "Varint is too long, the most significant bit in the 5th byte is set, converted value: {0:x}",
    "negative": "{0}",
    "newer": "a struct of a newer version cannot be read",
}
"""Error texts of the reference."""


def _uuid(raw: bytes) -> str:
    """Format an id as Kafka does: base64, URL-safe, 22 characters."""
    return base64.urlsafe_b64encode(raw)[:22].decode()


_DIALECT: Final = Dialect(_WORDS, lambda words, position: MessageError(words), _uuid, True)


class Field(NamedTuple):
    """A row of a schema; `fields` are those of its struct, `default` is used for tagged fields only."""

    name: str
    type: str
    array: bool
    nullable: bool
    first: int
    last: int
    tag: int | None
    default: object
    fields: tuple[Field, ...]


class Schema:
    """A message's name, its number among its kind (-1 for none), its versions and its fields."""

    def __init__(
        self, name: str, number: int, versions: tuple[int, int], flexible: int, fields: tuple[Field, ...]
    ) -> None:
        self.name = name
        self.number = number
        self.lowest, self.highest = versions
        self.flexible_from = flexible
        self.fields = fields
        self._readers: dict[int, MessageReader] = {}

    def __repr__(self) -> str:
        return f"<Schema {self.name} {self.lowest}-{self.highest}>"

    def read(self, source: Source, version: int) -> Message:
        """Read the message at the source's position, in the order of the schema, and advance the source past it.

        Strings are str, uuids str of 22 characters, bytes bytes; tagged fields at their default are omitted. A version
        below the known ones is read as the lowest. A version above is read as the highest, but its structs are
        rejected, as in the reference. Raises MessageError for data that the schema does not accept.
        """
        version = min(max(version, self.lowest), self.highest + 1)
        reader = self._readers.get(version)
        if reader is None:
            reader = self._readers[version] = _reader(self, self.fields, version)
        message: Message
        message, source.at = reader.read_from(source.data, source.at)
        return message


def _reader(schema: Schema, fields: tuple[Field, ...], version: int) -> MessageReader:
    """Return the reader of these fields in `version`; above the highest version, nested structs are unknown."""
    flexible = version >= schema.flexible_from
    rows = [
        (
            field.name, kind_of(field), field.array, field.nullable, field.tag,
            _reader(schema, field.fields, version) if field.fields and version <= schema.highest else None,
            field.default,
        )
        for field in fields
        if field.first <= version <= field.last and (flexible or field.tag is None)
    ]  # fmt: skip
    known = {row[4] for row in rows}
    refused = {
        field.tag: f"Tag {field.tag} is not valid for version {version}"
        for field in fields
        if field.tag is not None and field.tag not in known
    }
    return MessageReader(None, flexible, rows, _DIALECT, refused)


def kind_of(field: Field) -> str:
    """Return the name of a field's type in the compiled reader and writer."""
    return "struct" if field.type == "{}" else field.type


# --- the notation of the tables


def schemas(text: str) -> dict[str, Schema]:
    """Parse a table into schemas by name; `#` begins a comment. Raises ValueError for an invalid line."""
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
            raise ValueError(f"{words!r} is not a line of a schema")
        at = after
    return found


def _fields(
    lines: list[tuple[int, str]], at: int, outer: int, structs: dict[str, tuple[Field, ...]]
) -> tuple[tuple[Field, ...], int]:
    """Parse the lines deeper than `outer` into fields; return them and the index of the line after them."""
    fields = []
    while at < len(lines) and lines[at][0] > outer:
        match = _FIELD.fullmatch(lines[at][1])
        if match is None:
            raise ValueError(f"{lines[at][1]!r} is not a field of a schema")
        inner, after = _fields(lines, at + 1, lines[at][0], structs)
        fields.append(_field(match, inner or structs.get(match["type"], ())))
        at = after
    return tuple(fields), at


def _field(match: re.Match[str], inner: tuple[Field, ...]) -> Field:
    kind = match["type"]
    if kind not in _NUMBERS and kind not in _ZEROS and kind != "{}" and not inner:
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


def _default(match: re.Match[str], inner: tuple[Field, ...]) -> object:
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
