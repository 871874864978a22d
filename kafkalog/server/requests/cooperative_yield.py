"""Fairness for requests with many rows: yields to the event loop every TURN_ROWS rows.

`in_turns` also drops duplicates, which would make a response much larger than its request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable
from typing import Final, TypeVar

T = TypeVar("T", bound=Hashable)
TURN_ROWS: Final = 64
"""Rows handled for one request before the loop serves others."""
TURNS: Final = (*[False] * (TURN_ROWS - 1), True)
"""`cycle(TURNS)` yields True at each row where others take their turn: cheaper for requests of mostly one row."""


class CooperativeYield:
    """Counts the rows of one request and yields to the loop after every `rows` of them."""

    __slots__ = ("_left", "_rows")

    def __init__(self, rows: int = TURN_ROWS) -> None:
        self._left = self._rows = rows

    async def row(self) -> None:
        """Count one row; yield to the loop if it is others' turn."""
        self._left -= 1
        if not self._left:
            self._left = self._rows
            await asyncio.sleep(0)


async def in_turns(items: Iterable[T], rows: int = TURN_ROWS) -> AsyncIterator[T]:
    """Yield the distinct items in order, and yield to the loop after every `rows` of them."""
    turns = CooperativeYield(rows)
    for item in dict.fromkeys(items):
        yield item
        await turns.row()
