"""Requests that ask for many things: each is answered once, so that an answer does not outgrow its request without end,
and the loop serves others in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable
from typing import Final, TypeVar

T = TypeVar("T", bound=Hashable)
TURN_ROWS: Final = 64
"""A client has the loop for so many rows."""


async def in_turns(items: Iterable[T], rows: int = TURN_ROWS) -> AsyncIterator[T]:
    """The items in their order, each once; the others' turn comes after so many rows."""
    for number, item in enumerate(dict.fromkeys(items), 1):
        yield item
        if not number % rows:
            await asyncio.sleep(0)
