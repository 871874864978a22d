"""Copies from a voter: a node that is ahead of a candidate lets it copy the missing data.

Until the copy ends, or the candidate stops asking, the node follows no leader. So the data that the candidate compares
and copies stays the same. A node that leads, or is a candidate, lends nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kafkalog.server.quorum.file import NOBODY

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

LEND_SECONDS: Final = 5.0
"""Time after its last request when a candidate counts as gone."""


class LogCopyGrant:
    """The candidate that may copy this node's logs. The event loop owns it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._candidate = NOBODY
        self._until = 0.0
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self, candidate: int) -> bool:
        """Hold the logs for the candidate and return True. Return False while another candidate has them."""
        if self._task is not None and not self._task.done():
            return self.lends_to(candidate)
        loop = asyncio.get_running_loop()
        self._until = loop.time() + LEND_SECONDS
        begun: asyncio.Future[None] = loop.create_future()
        self._news.clear()
        self._task = loop.create_task(self._hold(candidate, begun))
        await asyncio.wait([begun, self._task], return_when=asyncio.FIRST_COMPLETED)
        return self.lends_to(candidate)

    def lends_to(self, candidate: int) -> bool:
        """Return True if the node may copy from here. The call extends its permission."""
        is_so = candidate == self._candidate != NOBODY
        if is_so:
            self._until = asyncio.get_running_loop().time() + LEND_SECONDS
        return is_so

    def end(self) -> None:
        """End the permission; the node may follow again."""
        self._candidate = NOBODY
        self._news.set()

    async def stop(self) -> None:
        """End the permission. On return nothing is held."""
        task, self._task = self._task, None
        self.end()
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _hold(self, candidate: int, begun: asyncio.Future[None]) -> None:
        loop = asyncio.get_running_loop()
        async with self._node.following.held():
            try:
                if not self._news.is_set():
                    self._candidate = candidate
                    begun.set_result(None)
                while not self._news.is_set() and (left_s := self._until - loop.time()) > 0:
                    await asyncio.wait([task := loop.create_task(self._news.wait())], timeout=left_s)
                    task.cancel()
            finally:
                self._candidate = NOBODY
