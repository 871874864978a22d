"""Requests that ask for many things: the loop serves others in between, and what is asked for twice is answered once
where an answer would otherwise outgrow its request without end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable
from typing import Final, TypeVar

T = TypeVar("T", bound=Hashable)
TURN_ROWS: Final = 64
"""A client has the loop for so many rows."""


class Turns:
    """Counts what was done for one request; after so many rows it is the others' turn."""

    __slots__ = ("_left", "_rows")

    def __init__(self, rows: int = TURN_ROWS) -> None:
        self._left = self._rows = rows

    async def row(self) -> None:
        """One more row is done."""
        self._left -= 1
        if not self._left:
            self._left = self._rows
            await asyncio.sleep(0)


async def in_turns(items: Iterable[T], rows: int = TURN_ROWS) -> AsyncIterator[T]:
    """The items in their order, each once; the others' turn comes after so many rows."""
    turns = Turns(rows)
    for item in dict.fromkeys(items):
        yield item
        await turns.row()
