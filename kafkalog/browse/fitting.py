"""Fitting of tables to the screen: column widths, and which columns are left out from the right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafkalog.inspect.rows import Column
from kafkalog.inspect.values import text_of
from kafkalog.inspect.width import columns_of, cut

_PADDING: Final = 2
"""Terminal columns of padding for each cell."""
_LEAST: Final = {"text": 8, "name": 8, "key": 14}
"""Least width of a text column; other columns are never cut."""


def fit_columns(
    columns: Sequence[Column], things: Sequence[object], width: int
) -> tuple[list[tuple[str, int]], list[list[str]]]:
    """Return the headings, each with its column's width, and the cells, row by row, that fit in `width` columns.

    Text columns are narrowed, keys and values to 14 columns, before a column is left out; the first column always
    stays. Every cell is safe to display.
    """
    heads = [column.name for column in columns]
    cells = [[text_of(column.get(thing), column.kind) for column in columns] for thing in things]
    widths = [max(map(columns_of, (head, *(row[at] for row in cells)))) for at, head in enumerate(heads)]
    least = [min(one, _LEAST.get(column.kind, one)) for one, column in zip(widths, columns, strict=True)]
    count = len(columns)
    while count > 1 and sum(least[:count]) + _PADDING * count > width:
        count -= 1
    excess = sum(widths[:count]) + _PADDING * count - width
    for at in sorted(range(count), key=lambda at: widths[at], reverse=True):
        if excess > 0 and columns[at].kind in _LEAST:
            narrowed = max(least[at], widths[at] - excess, 4)
            excess -= widths[at] - narrowed
            widths[at] = narrowed
    short = [
        [cut(cell, widths[at], middle=columns[at].kind == "name") for at, cell in enumerate(row[:count])]
        for row in cells
    ]
    return [(cut(head, max(widths[at], 4)), widths[at]) for at, head in enumerate(heads[:count])], short
