"""Types of JSON values: a tree of what each part may be, and the columns and the steps that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.errors import IllegalArgument
from kafkalog.values.wanted import Wanted, unknown_field
from kafkalog.where.nodes import Step

if TYPE_CHECKING:
    from kafkalog._core.values.builder import Field
    from kafkalog._core.values.json_rows import Spot

MOST_LEVELS: Final = 24
"""Objects and arrays within each other that become columns; what is deeper stays JSON text."""
FORMATS: Final = {
    "bool": "b", "int64": "l", "double": "g", "string": "u", "json": "u", "timestamp": "tsu:UTC", "date": "tdD",
}  # fmt: skip


class JsonType(NamedTuple):
    """A kind of FORMATS, or "struct", "list" or "map" with the types below: of its fields, its item, its value."""

    kind: str
    children: tuple[tuple[str, JsonType], ...] = ()


JSON: Final = JsonType("json")
NO_FIELDS: Final = JsonType("struct")


def json_columns(type: JsonType, name: str = "", path: str = "") -> tuple[Field, Spot]:
    """Return the tree of a builder, and of steps for the compiled decoder, for a type.

    ValueError for a field with a name that Arrow cannot have.
    """
    inside = {"list": "[]", "map": "{}"}.get(type.kind, "")
    below = []
    for child, kind in type.children:
        if not is_column_name(child):
            raise ValueError(f"{child!r} is no name of a column")
        step = path + inside if inside else f"{path}.{child}" if path else child
        below.append(json_columns(kind, child, step))
    fields = tuple(field for field, _ in below)
    spots = tuple(spot for _, spot in below)
    if type.kind == "map":
        key: Field = ("key", "u", False, (), ())
        return (name, "+m", True, (("entries", "+s", False, (key, *fields), ()),), ()), ("map", name, path, spots)
    format = {"struct": "+s", "list": "+l"}.get(type.kind) or FORMATS[type.kind]
    return (name, format, True, fields, ()), (type.kind, name, path, spots)


def is_column_name(name: str) -> bool:
    """Return False for a name with a zero byte or half of a surrogate pair, which Arrow cannot have."""
    return "\x00" not in name and not any("\ud800" <= letter <= "\udfff" for letter in name)


_WORDS: Final[dict[str, dict[str, str]]] = {
    "bool": {"type": "boolean"}, "int64": {"type": "integer"}, "double": {"type": "number"},
    "string": {"type": "string"}, "json": {}, "timestamp": {"type": "string", "format": "date-time"},
    "date": {"type": "string", "format": "date"},
}  # fmt: skip
"""JSON Schemas of the kinds without others below."""


def schema_of(type: JsonType) -> dict[str, Any]:
    """Return the JSON Schema that gives a type.

    >>> schema_of(JsonType("list", (("item", JsonType("int64")),)))
    {'type': 'array', 'items': {'type': 'integer'}}
    """
    below = {name: schema_of(child) for name, child in type.children}
    if type.kind == "struct":
        return {"type": "object", "properties": below}
    if type.kind in ("list", "map"):
        word = "items" if type.kind == "list" else "additionalProperties"
        return {"type": "array" if type.kind == "list" else "object", word: next(iter(below.values()))}
    return dict(_WORDS[type.kind])


def select(type: JsonType, wanted: Wanted, *, strict: bool, path: str = "") -> JsonType:
    """Return the type with only the wanted fields, which are found within arrays too, in the order they are wanted.

    A field that the type does not have is an error if `strict`, else JSON text, or as the word of its type says.
    """
    if type.kind == "list":
        name, item = type.children[0]
        return JsonType("list", ((name, select(item, wanted, strict=strict, path=path)),))
    known = dict(type.children) if type.kind == "struct" else {}
    chosen = []
    for name, want in wanted.items():
        here = f"{path}.{name}" if path else name
        if name not in known and strict:
            raise unknown_field(here, known)
        found = known.get(name, JSON)
        if isinstance(want, dict):
            found = select(found, want, strict=strict, path=here)
        elif want is not None:
            found = JsonType(want)
        chosen.append((name, found))
    return JsonType("struct", tuple(chosen))


def has_path(type: JsonType, path: Sequence[str]) -> bool:
    """Return True if a path of names leads through objects, alone or in arrays, to a field of the type."""
    for name in path:
        while type.kind == "list":
            type = type.children[0][1]
        known = dict(type.children) if type.kind == "struct" else {}
        if name not in known:
            return False
        type = known[name]
    return True


def with_type(type: JsonType, path: tuple[str, ...], word: str) -> JsonType:
    """Return a type in which a path of names, and of steps into arrays, leads to a field with the type of a word.

    >>> from kafkalog.where.nodes import Step
    >>> with_type(JsonType("struct", (("a", JsonType("int64")),)), ("b", Step(0)), "double").children[1]
    ('b', JsonType(kind='list', children=(('item', JsonType(kind='double', children=())),)))
    """
    if not path:
        return JsonType(word)
    name, rest = path[0], path[1:]
    kind = "list" if isinstance(name, Step) else "map" if type.kind == "map" else "struct"
    known = dict(type.children) if type.kind == kind else {}
    child = {"list": "item", "map": "value"}.get(kind, name)
    return JsonType(kind, tuple({**known, child: with_type(known.get(child, JSON), rest, word)}.items()))


def given_types(wanted: Wanted) -> JsonType | None:
    """Return the type that the words of the wanted fields give; None if a field has no word."""
    fields = []
    for name, want in wanted.items():
        type = given_types(want) if isinstance(want, dict) else None if want is None else JsonType(want)
        if type is None:
            return None
        fields.append((name, type))
    return JsonType("struct", tuple(fields))


def check_levels(type: JsonType, level: int = 1) -> None:
    """Raise IllegalArgument for paths of more levels than columns may have."""
    if level > MOST_LEVELS:
        raise IllegalArgument(f"the wanted fields are nested more than {MOST_LEVELS} levels deep")
    for _, child in type.children:
        check_levels(child, level + 1)
