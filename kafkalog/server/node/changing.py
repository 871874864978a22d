"""Changes of a part, one after the other, that a handover of the leadership rejects and waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class Changing:
    """A part whose changes hold `_changing`. Only for the event loop's thread."""

    def __init__(self) -> None:
        self.check_change: Callable[[], object] = lambda: None
        """Called before each change; raises if changes are not allowed."""
        self._changing = asyncio.Lock()

    async def settled(self) -> None:
        """Wait until no change is in progress."""
        async with self._changing:
            pass

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Let no change begin in the block, once the current one is complete."""
        async with self._changing:
            yield
