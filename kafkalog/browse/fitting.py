"""Which columns of a table stand on a screen, and how wide they are: what does not fit is left out from the right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kafkalog.inspect.rows import Column
from kafkalog.inspect.values import text_of
from kafkalog.inspect.width import columns_of, cut

__all__ = ["fitted"]

_PADDING: Final = 2
"""Columns of the terminal beside each cell."""
_LEAST: Final = {"text": 8, "name": 8, "key": 14}
"""How narrow a column of text may become; the others are never cut."""


def fitted(columns: Sequence[Column], things: Sequence[Any], width: int) -> tuple[list[str], list[list[str]]]:
    """The headings and the cells, row by row, that `width` columns of a terminal have room for.

    A column of text is cut down, keys and values to 14 columns, before one is left out, and the first always stays.
    Every cell is safe to show.
    """
    heads = [column.name for column in columns]
    cells = [[text_of(column.get(thing), column.kind) for column in columns] for thing in things]
    widths = [max(map(columns_of, (head, *(row[at] for row in cells)))) for at, head in enumerate(heads)]
    least = [min(one, _LEAST.get(column.kind, one)) for one, column in zip(widths, columns, strict=True)]
    kept = len(columns)
    while kept > 1 and sum(least[:kept]) + _PADDING * kept > width:
        kept -= 1
    over = sum(widths[:kept]) + _PADDING * kept - width
    for at in sorted(range(kept), key=lambda at: widths[at], reverse=True):
        if over > 0 and columns[at].kind in _LEAST:
            narrowed = max(least[at], widths[at] - over, 4)
            over -= widths[at] - narrowed
            widths[at] = narrowed
    short = [
        [cut(cell, widths[at], middle=columns[at].kind == "name") for at, cell in enumerate(row[:kept])]
        for row in cells
    ]
    return [cut(head, max(widths[at], 4)) for at, head in enumerate(heads[:kept])], short
