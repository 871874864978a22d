"""Copies from a voter: a node that is ahead of a candidate lets it copy the missing data.

Until the copy ends, or the candidate stops asking, the node follows no leader. So the data that the candidate compares
and copies stays the same. A node that leads, or is a candidate, grants no copy.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kafkalog.server.quorum.file import NO_NODE

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

GRANT_SECONDS: Final = 5.0
"""Time after its last request when a candidate counts as gone."""


class LogCopyGrant:
    """The candidate that may copy this node's logs. The event loop owns it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._candidate = NO_NODE
        self._until = 0.0
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self, candidate: int) -> bool:
        """Hold the logs for the candidate and return True. Return False while another candidate has them."""
        if self._task is not None and not self._task.done():
            return self.is_granted_to(candidate)
        loop = asyncio.get_running_loop()
        self._until = loop.time() + GRANT_SECONDS
        has_begun: asyncio.Future[None] = loop.create_future()
        self._news.clear()
        self._task = loop.create_task(self._hold(candidate, has_begun))
        await asyncio.wait([has_begun, self._task], return_when=asyncio.FIRST_COMPLETED)
        return self.is_granted_to(candidate)

    def is_granted_to(self, candidate: int) -> bool:
        """Return True if the node may copy from here. The call extends its permission."""
        is_granted = candidate == self._candidate != NO_NODE
        if is_granted:
            self._until = asyncio.get_running_loop().time() + GRANT_SECONDS
        return is_granted

    def end(self) -> None:
        """End the permission; the node may follow again."""
        self._candidate = NO_NODE
        self._news.set()

    async def stop(self) -> None:
        """End the permission. On return nothing is held."""
        task, self._task = self._task, None
        self.end()
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _hold(self, candidate: int, has_begun: asyncio.Future[None]) -> None:
        loop = asyncio.get_running_loop()
        async with self._node.following.held():
            try:
                if not self._news.is_set():
                    self._candidate = candidate
                    has_begun.set_result(None)
                while not self._news.is_set() and (left_s := self._until - loop.time()) > 0:
                    await asyncio.wait([task := loop.create_task(self._news.wait())], timeout=left_s)
                    task.cancel()
            finally:
                self._candidate = NO_NODE
