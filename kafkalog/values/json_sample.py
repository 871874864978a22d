"""Types of JSON values found in a sample of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from kafkalog.values.json_types import JSON, MOST_LEVELS, JsonType, is_column_name

SAMPLE_ROWS: Final = 1000
"""Values that a sample has at most."""
SAMPLE_BYTES: Final = 16 << 20
MOST_NAMES: Final = 1000
"""Fields of an object in a sample; one with more is a map if its values have one type, else JSON text."""
MOST_PLACES: Final = 1 << 17
"""Places of values that a sample remembers; an object with fields beyond is a map or JSON text."""
MOST_COLUMNS: Final = 20_000
"""Columns that a sample gives; of an object with more the largest fields stay JSON text, if it is no map."""
HEADER_BYTES: Final = 5
LEAST_INT64, MOST_INT64 = -(1 << 63), (1 << 63) - 1


class _Seen:
    """All that was seen at one place of the values; `room` has the number of places that may be added."""

    __slots__ = ("fields", "items", "kinds", "more", "room")

    def __init__(self, room: list[int]) -> None:
        room[0] -= 1
        self.room = room
        self.more = False
        """True if there are fields that are not in `fields`."""
        self.kinds: set[str] = set()
        self.fields: dict[str, _Seen] = {}
        self.items: _Seen | None = None

    def add(self, value: Any, level: int = 1) -> None:
        if value is None:
            return
        if isinstance(value, dict):
            self.kinds.add("struct")
            for name, part in value.items() if level < MOST_LEVELS else ():
                if name not in self.fields:
                    if self.room[0] <= 0:
                        self.more = True
                        continue
                    self.fields[name] = _Seen(self.room)
                self.fields[name].add(part, level + 1)
        elif isinstance(value, list):
            self.kinds.add("list")
            if self.items is None:
                self.items = _Seen(self.room)
            for item in value if level < MOST_LEVELS else ():
                self.items.add(item, level + 1)
        else:
            self.kinds.add(_kind(value))

    def type(self, level: int = 1) -> JsonType:
        if self.kinds == {"int64", "double"}:
            return JsonType("double")
        if len(self.kinds) != 1 or (level >= MOST_LEVELS and not self.kinds <= {"bool", "int64", "double", "string"}):
            return JSON
        (kind,) = self.kinds
        if kind == "list":
            assert self.items is not None
            return JsonType("list", (("item", self.items.type(level + 1)),))
        if kind == "struct":
            return self._object(level)
        return JsonType(kind)

    def _object(self, level: int) -> JsonType:
        fields = {name: seen.type(level + 1) for name, seen in self.fields.items()}
        sizes = {name: _columns(type) for name, type in fields.items()}
        total = sum(sizes.values())
        if len(fields) > MOST_NAMES or self.more or total > MOST_COLUMNS:
            types = set(fields.values())
            if len(types) == 1:
                return JsonType("map", (("value", types.pop()),))
            if len(fields) > MOST_NAMES or self.more:
                return JSON
        for name in sorted(sizes, key=lambda name: -sizes[name]):
            if total <= MOST_COLUMNS:
                break
            total -= sizes[name] - 1
            fields[name] = JSON
        if not fields or not all(map(is_column_name, fields)):
            return JSON  # a struct without columns shows nothing
        return JsonType("struct", tuple(fields.items()))


def _columns(type: JsonType) -> int:
    """Return the columns that a type becomes; a map has its entries and keys too."""
    return 1 + 2 * (type.kind == "map") + sum(_columns(child) for _, child in type.children)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64" if LEAST_INT64 <= value <= MOST_INT64 else "json"
    return "double" if isinstance(value, float) else "string"


def sample_type(values: Iterable[bytes | str | None], only_null: JsonType | None = None) -> JsonType | None:
    """Return the type of a sample of values; None if it has no JSON, `only_null` if each of them is null.

    Whole numbers and others make `double`; values of several kinds, null alone, and objects without fields stay JSON
    text. What is no JSON is left out: decoding reports it.

    >>> sample_type([b'{"a": 1}', b'{"a": 2.5, "b": [true, null]}', b"?"])
    JsonType(kind='struct', children=(('a', JsonType(kind='double', children=())), ('b', JsonType(kind='list', \
children=(('item', JsonType(kind='bool', children=())),)))))
    """
    seen = _Seen([MOST_PLACES])
    rows, size, is_json = 0, 0, True
    for value in values:
        if value is None:
            continue
        data = value.encode() if isinstance(value, str) else bytes(value)
        rows, size = rows + 1, size + len(data)
        if rows > SAMPLE_ROWS or size > SAMPLE_BYTES:
            break
        try:
            seen.add(json.loads(data[HEADER_BYTES:] if data[:1] == b"\x00" else data, parse_constant=_refuse))
        except (ValueError, RecursionError):
            is_json = False
    return seen.type() if seen.kinds else only_null if rows and is_json else None


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")
