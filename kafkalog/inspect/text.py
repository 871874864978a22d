"""Tables as lines of text, aligned by display width and fitted to the terminal's columns."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.inspect.values import BAR_COLUMNS, Kind, text_of
from kafkalog.inspect.width import columns_of, cut, escape_text

if TYPE_CHECKING:
    from kafkalog.inspect.rows import Column, Rows

DEFAULT_COLUMNS: Final = 100
MIN_COLUMNS: Final = 40
"""Least width of a table; a narrower terminal wraps the lines."""
_GAP: Final = "  "
_LEFT: Final = frozenset({"text", "name", "key", "bar", "time"})
_CUT: Final = frozenset({"text", "name", "key"})
_MIN_NAME: Final = 12


def terminal_columns() -> int:
    """Return the width of the terminal or COLUMNS; 100 if neither is known."""
    return max(MIN_COLUMNS, shutil.get_terminal_size((DEFAULT_COLUMNS, 24)).columns)


def _table_columns() -> int:
    """Return the width of the terminal or COLUMNS; no limit if stdout is a file or a pipe."""
    columns_setting = os.environ.get("COLUMNS", "")
    is_set = columns_setting.isdecimal() and int(columns_setting) > 0
    return terminal_columns() if is_set or (sys.stdout is not None and sys.stdout.isatty()) else sys.maxsize


def stdout_is_ascii() -> bool:
    """Return True if stdout cannot encode the characters that tables are drawn with."""
    try:
        "█é日".encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return True
    return False


class _FormattedColumn(NamedTuple):
    """A formatted column: its heading and cells as text, and its width in terminal columns."""

    kind: Kind
    head: str
    cells: list[str]
    width: int

    @property
    def is_left(self) -> bool:
        return self.kind in _LEFT

    def narrowed(self, width: int) -> _FormattedColumn:
        """Return the column cut to `width`."""
        if self.width <= width:
            return self
        cells = [cut(cell, width, middle=self.kind == "name") for cell in self.cells]
        return _FormattedColumn(self.kind, cut(self.head, width), cells, width)

    def line(self, row: int) -> str:
        """Return the heading (-1) or a cell, padded to the column's width."""
        text = self.head if row < 0 else self.cells[row]
        room = " " * (self.width - columns_of(text))
        return text + room if self.is_left else room + text


def lines(
    rows: Rows[object], width: int | None = None, *, most: int | None = None, ascii_only: bool | None = None
) -> Iterator[str]:
    """Yield the lines of a table; see `Rows.text`."""
    width = _table_columns() if width is None else max(width, MIN_COLUMNS)
    ascii_only = stdout_is_ascii() if ascii_only is None else ascii_only
    if rows.title:
        yield from _wrapped(rows.title, width, ascii_only)
    head, tail, gap = rows.left_out(most)
    if not head:
        yield "(none)"
    else:
        things = (*head, *tail)
        fitted_columns = _fit_columns([_column(column, things, ascii_only) for column in rows.columns], width)
        for number, block in enumerate(_blocks(fitted_columns, width)):
            if number:
                yield ""
            for row in range(-1, len(things)):
                if gap and row == len(head):
                    yield gap
                yield _GAP.join(column.line(row) for column in block).rstrip()
    for note in rows.notes:
        yield from _wrapped(note, width, ascii_only)


def _column(column: Column, things: Sequence[object], ascii_only: bool) -> _FormattedColumn:
    cells = [text_of(column.get(thing), column.kind, ascii_only=ascii_only) for thing in things]
    head = text_of(column.name.upper(), "text", ascii_only=ascii_only)
    least = max(BAR_COLUMNS if column.kind == "bar" else 0, columns_of(head))
    return _FormattedColumn(column.kind, head, cells, max(least, *map(columns_of, cells)))


def _fit_columns(columns: list[_FormattedColumn], width: int) -> list[_FormattedColumn]:
    """Cut the widest texts until all columns fit side by side; return them unchanged if that is not enough."""
    before = list(columns)
    over = sum(column.width for column in columns) + len(_GAP) * (len(columns) - 1) - width
    while over > 0:
        texts = [at for at, column in enumerate(columns) if column.kind in _CUT and column.width > _MIN_NAME]
        if not texts:
            return before
        widest = max(texts, key=lambda at: columns[at].width)
        current = columns[widest].width
        next_width = max((columns[at].width for at in texts if columns[at].width < current), default=_MIN_NAME)
        target = max(next_width, current - over, _MIN_NAME)
        columns[widest] = columns[widest].narrowed(target)
        over -= current - target
    return columns


def _blocks(columns: list[_FormattedColumn], width: int) -> Iterator[list[_FormattedColumn]]:
    """Yield the columns as few tables as their widths allow, each beginning with the first column."""
    key, rest = columns[0].narrowed(width), columns[1:]
    if rest:
        key = key.narrowed(max(_MIN_NAME, width // 3)) if _width([key, *rest]) > width else key
    while True:
        block, key_room = [key], width - key.width - len(_GAP)
        while rest and (len(block) == 1 or _width([*block, rest[0]]) <= width):
            block.append(rest.pop(0).narrowed(key_room))
        yield block
        if not rest:
            return


def _width(columns: Sequence[_FormattedColumn]) -> int:
    return sum(column.width for column in columns) + len(_GAP) * (len(columns) - 1)


def _wrapped(text: str, width: int, ascii_only: bool) -> Iterator[str]:
    """Yield a sentence wrapped to `width`."""
    text = text_of(text, "text", ascii_only=True) if ascii_only else escape_text(text)
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if line and columns_of(longer) > width:
            yield line
            longer = word
        line = longer
        while columns_of(line) > width:
            at = next(n for n in range(1, len(line) + 1) if columns_of(line[: n + 1]) > width)
            yield line[:at]
            line = line[at:]
    yield line
