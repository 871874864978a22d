"""Appends of a node that run in its pool."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from kafkalog.types import LogAppendInfo
from kafkalog.util.shielded import shielded


class PoolAppends:
    """The unfinished appends in the pool; false without one. The event loop owns it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[LogAppendInfo]] = set()

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def start(self, append: Coroutine[Any, Any, LogAppendInfo]) -> Coroutine[Any, Any, LogAppendInfo]:
        """Begin an append and return its result to wait for: a client that disconnects does not cancel the append."""
        task = asyncio.get_running_loop().create_task(append)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return shielded(task)

    async def ended(self) -> None:
        """Wait for those that are unfinished: one that began under an earlier role must not follow a later leader's."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
