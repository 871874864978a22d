"""The level of one record: its offset, time, headers, key and value; what is decoded is a tree that folds.

A tree is walked without recursion, and only the nodes that are open become rows: its depth and size are the data's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.browse.decoding import Failed, Part, Typed, decode_record, serdes_for
from kafkalog.browse.levels import ListLevel
from kafkalog.inspect.rows import Column
from kafkalog.inspect.values import moment
from kafkalog.inspect.width import cut, escape_text
from kafkalog.util.text import plural

if TYPE_CHECKING:
    from kafkalog._core.batch.record import Record
    from kafkalog.storage.readonly.view import LogView
    from kafkalog.tools.consume.decoded import Serdes

_LINE_BYTES: Final = 48
_MAX_VALUE_BYTES: Final = 64 << 10
_MAX_ROWS: Final = 100_000
"""Most rows of one record; what is behind them is counted in a line."""
_OPEN_NODES: Final = 200
"""A tree of up to so many nodes is open at first; of a larger one only the topmost fields are rows."""
_NAME_COLUMNS: Final = 40
_MAX_INDENT: Final = 12
_OPEN: Final = "▾ "
_FOLDED: Final = "▸ "
_LEAF: Final = "  "

FIELD_COLUMNS: Final = (
    Column("field", lambda one: one[0], "count"),
    Column("what", lambda one: one[1], "key"),
)
TREE_COLUMNS: Final = (FIELD_COLUMNS[0]._replace(kind="text"), FIELD_COLUMNS[1])
"""Columns of a record with a tree: names stand on the left, so that their indents show."""
Line = tuple[str, bytes | str | None]


class Node(NamedTuple):
    """The row of a record, list or map with something in it: `path` has the numbers of the nodes above it, and its own.

    The first number is 0 for the key and 1 for the value.
    """

    name: str
    text: str
    path: tuple[int, ...]
    is_open: bool


class FieldLevel(ListLevel):
    """All of one record, a line at a time; values are cut at 64 KiB. `toggle` opens or folds a node of a tree."""

    def __init__(self, view: LogView | None, record: Record, serdes: Serdes | None = None) -> None:
        self.record = record
        self._parts = decode_record(record, serdes_for(view, serdes))
        self._open: set[tuple[int, ...]] = set()
        for number, part in enumerate(self._parts):
            if isinstance(part, Typed):
                self._open |= _open_at_first(part.value, (number,))
        columns = TREE_COLUMNS if self._open else FIELD_COLUMNS
        super().__init__(self._rows(), columns, f"record {record.offset}", view=view)

    def toggle(self, node: Node) -> None:
        """Fold an open node, or open a folded one."""
        self._open ^= {node.path}
        self.things = self._rows()

    def _rows(self) -> list[Line | Node]:
        record, (key, value) = self.record, self._parts
        found: list[Line | Node] = [("offset", f"{record.offset:,}"), ("time", moment(record.timestamp))]
        found += self._part_rows("key", 0, key)
        for name, data in record.headers:
            found += _split_value(f"header {name}", data)
        return found + self._part_rows("control" if record.is_control else "value", 1, value)

    def _part_rows(self, name: str, number: int, part: Part) -> list[Line | Node]:
        if isinstance(part, Typed):
            return self._tree_rows(name, number, part.value)
        if isinstance(part, Failed):
            if part.data is None:
                return [(name, part.reason)]
            return [(name, part.reason), *_split_value("", part.data)]
        return [*_split_value(name, part)]

    def _tree_rows(self, name: str, number: int, value: object) -> list[Line | Node]:
        """Return the rows of the open nodes of a tree, in the order of its text."""
        if not _children(value):
            return [*_leaf_rows(name, value, is_root=True)]
        found: list[Line | Node] = []
        pending: list[tuple[str, object, tuple[int, ...]]] = [(name, value, (number,))]
        while pending:
            label, value, path = pending.pop()
            children = _children(value)
            indent = "  " * min(len(path) - 1, _MAX_INDENT)
            if len(found) >= _MAX_ROWS:
                found.append(("", f"... {plural(len(pending) + 1, 'more field')}: fold what is above"))
                break
            if not children:
                found += _leaf_rows(f"{indent}{_LEAF}{label}", value)
                continue
            is_open = path in self._open
            mark = _OPEN if is_open else _FOLDED
            found.append(Node(f"{indent}{mark}{label}", _summary(value, children), path, is_open))
            if is_open:
                named = ((_name(one), below, (*path, at)) for at, (one, below) in enumerate(children))
                pending += reversed([*named])
        return found


def _children(value: object) -> list[tuple[object, object]]:
    """Return the names and values of a record's or a map's fields, or the numbers and values of a list's items."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    return []


def _open_at_first(value: object, path: tuple[int, ...]) -> set[tuple[int, ...]]:
    """Return the paths of the nodes that are open at first."""
    found = set()
    nodes = 0
    pending: list[tuple[object, tuple[int, ...]]] = [(value, path)]
    while pending:
        value, at = pending.pop()
        children = _children(value)
        nodes += 1
        if nodes + len(children) > _OPEN_NODES:
            return {path}
        if children:
            found.add(at)
            pending += [(below, (*at, number)) for number, (_, below) in enumerate(children)]
    return found


def _name(name: object) -> str:
    return cut(escape_text(str(name)), _NAME_COLUMNS)


def _summary(value: object, children: list[tuple[object, object]]) -> str:
    return plural(len(children), "field" if isinstance(value, Mapping) else "item")


def _leaf_rows(name: str, value: Any, *, is_root: bool = False) -> Iterator[Line]:
    """Yield the lines of a value without parts; a string within a tree is in quotes, unless it is long."""
    if value is None or isinstance(value, bytes):
        yield from _split_value(name, value)
    elif isinstance(value, str):
        data = value.encode("utf-8", "backslashreplace")
        if is_root or len(data) > _LINE_BYTES:
            yield from _split_value(name, data)
        else:
            yield name, f'"{value}"'
    elif isinstance(value, Mapping | list | tuple):
        yield name, "{}" if isinstance(value, Mapping) else "[]"
    elif isinstance(value, bool):
        yield name, "true" if value else "false"
    else:
        yield name, str(value)


def _split_value(name: str, data: bytes | str | None) -> Iterator[Line]:
    """Yield the lines of a key or a value, split between characters if it is UTF-8."""
    if not data or isinstance(data, str):
        yield name, data
        return
    at, end = 0, min(len(data), _MAX_VALUE_BYTES)
    while at < end:
        stop = min(at + _LINE_BYTES, end)
        newline = data.find(b"\n", at, stop)
        if newline >= 0:
            stop = newline + 1
        while stop < end and stop > at + _LINE_BYTES - 4 and data[stop] & 0xC0 == 0x80:
            stop -= 1
        yield name if not at else "", data[at:stop]
        at = stop
    if end < len(data):
        yield "", f"... {len(data) - end:,} more bytes"
