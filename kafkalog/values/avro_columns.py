"""The columns of an Avro schema: the Arrow type that each of its types becomes, and the numbers of the nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kafkalog._core.values.builder import MOST_DEPTH, MOST_NODES
from kafkalog.errors import IllegalArgument
from kafkalog.values.avro_schema import AvroType

if TYPE_CHECKING:
    from kafkalog._core.values.builder import Field

_PRIMITIVE: Final = {
    "null": "n", "boolean": "b", "int": "i", "long": "l", "float": "f", "double": "g", "bytes": "z", "string": "u",
}  # fmt: skip
_LOGICAL: Final = {
    "date": "tdD", "time-millis": "ttm", "time-micros": "ttu", "timestamp-millis": "tsm:UTC",
    "timestamp-micros": "tsu:UTC", "timestamp-nanos": "tsn:UTC", "local-timestamp-millis": "tsm:",
    "local-timestamp-micros": "tsu:", "local-timestamp-nanos": "tsn:", "uuid": "u",
}  # fmt: skip


@dataclass(slots=True)
class Column:
    """A column of a reader's schema: its node's number, its Arrow format, the columns inside."""

    number: int
    name: str
    format: str
    nullable: bool = True
    words: tuple[str, ...] = ()
    children: list[Column] = field(default_factory=list)

    def tree(self) -> Field:
        """The tree for a Builder."""
        return (
            self.name, self.format, self.nullable, tuple(child.tree() for child in self.children), self.words,
        )  # fmt: skip


def columns_of(schema: AvroType, *, dictionaries: bool = False) -> Column:
    """Return the column of a reader's schema; IllegalArgument for one that contains itself, or has too many columns.

    `dictionaries` makes dictionary columns of enums, which are text otherwise.

    >>> from kafkalog.values.avro_schema import parse_avro
    >>> columns_of(parse_avro('["null", {"type": "array", "items": "long"}]')).tree()
    ('', '+l', True, (('item', 'l', True, (), ()),), ())
    """
    return _Planner(dictionaries).column(schema, "", "", (), 1)


class _Planner:
    def __init__(self, dictionaries: bool) -> None:
        self.count = 0
        self.dictionaries = dictionaries

    def node(self, name: str, format: str, place: str) -> Column:
        self.count += 1
        if self.count > MOST_NODES:
            raise IllegalArgument(
                f"the schema has more than {MOST_NODES} columns, at {place}", hint="give a reader's schema with fewer"
            )
        return Column(self.count - 1, name, format)

    def column(self, kind: AvroType, name: str, place: str, above: tuple[AvroType, ...], level: int) -> Column:
        """Return the column of a type within others; `level` is that of its node."""
        if kind in above:
            raise IllegalArgument(
                f"the type {kind.name} contains itself{f', at {place}' if place else ''}: it has no columns",
                hint="give a reader's schema without that field",
            )
        if level > MOST_DEPTH:
            raise IllegalArgument(
                f"the schema is nested more than {MOST_DEPTH} levels deep",
                hint="give a reader's schema with fewer levels",
            )
        inside = (*above, kind)
        if kind.kind == "record":
            made = self.node(name, "+s", place)
            for one in kind.fields:
                made.children.append(self.column(one.type, one.name, joined(place, one.name), inside, level + 1))
            return made
        if kind.kind == "array":
            made = self.node(name, "+l", place)
            made.children.append(self.column(kind.parts[0], "item", joined(place, "[]"), inside, level + 1))
            return made
        if kind.kind == "map":
            return self.map(kind, name, place, inside, level)
        if kind.kind == "union":
            return self.union(kind, name, place, inside, level)
        made = self.node(name, format_of(kind, self.dictionaries), place)
        if kind.kind == "enum" and self.dictionaries:
            made.words = kind.symbols
        return made

    def map(self, kind: AvroType, name: str, place: str, inside: tuple[AvroType, ...], level: int) -> Column:
        made = self.node(name, "+m", place)
        entries = self.node("entries", "+s", place)
        key = self.node("key", "u", place)
        entries.nullable = key.nullable = False
        made.children.append(entries)
        value = self.column(kind.parts[0], "value", joined(place, "{}"), inside, level + 2)
        entries.children += [key, value]
        return made

    def union(self, kind: AvroType, name: str, place: str, inside: tuple[AvroType, ...], level: int) -> Column:
        branches = branches_of(kind)
        if len(branches) <= 1:
            return self.column(branches[0] if branches else AvroType("null"), name, place, inside, level)
        made = self.node(name, "+s", place)
        for branch, word in zip(branches, branch_names(branches), strict=True):
            made.children.append(self.column(branch, word, joined(place, word), inside, level + 1))
        return made


def joined(place: str, name: str) -> str:
    """Return the path of a field below a place.

    >>> joined("", "a"), joined("a", "b"), joined("a", "[]")
    ('a', 'a.b', 'a[]')
    """
    return f"{place}.{name}" if place and name not in ("[]", "{}") else f"{place}{name}"


def branches_of(union: AvroType) -> list[AvroType]:
    """Return the branches of a union that are not null."""
    return [part for part in union.parts if part.kind != "null"]


def branch_names(branches: list[AvroType]) -> list[str]:
    """Return the names of the fields that a union's branches become: short names, full ones where those collide."""
    short = [branch.short_name for branch in branches]
    return [b.short_name if short.count(b.short_name) == 1 else b.name or b.kind for b in branches]


def format_of(kind: AvroType, dictionaries: bool) -> str:
    """Return the Arrow format of a type without parts."""
    if kind.logical == "decimal":
        return f"d:{kind.precision},{kind.scale}"
    if kind.logical:
        return _LOGICAL[kind.logical]
    if kind.kind == "enum":
        return "i" if dictionaries else "u"
    return f"w:{kind.size}" if kind.kind == "fixed" else _PRIMITIVE[kind.kind]
