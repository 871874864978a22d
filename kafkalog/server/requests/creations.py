"""Topics that are being created because a client has asked about them: the client gets its answer meanwhile."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from kafkalog.errors import KafkalogError

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

_LOG: Final = logging.getLogger(__name__)


_MOST: Final = 1000
"""Topics that wait to be created; clients ask again for others."""


class TopicCreations:
    """Creates topics one after the other, in a task; used only in the loop's thread."""

    __slots__ = ("_names", "_node", "_task")

    def __init__(self, node: Node) -> None:
        self._node = node
        self._names: dict[str, None] = {}  # the first one is being created
        self._task: asyncio.Task[None] | None = None

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def begin(self, name: str) -> bool:
        """Let a topic be created. Return False if it is already being created, or too many others are."""
        if name in self._names or len(self._names) >= _MOST:
            return False
        self._names[name] = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._create_all())
        return True

    async def _create_all(self) -> None:
        while self._names:
            name = next(iter(self._names))
            try:
                await self._node.topics.create_on_use(name)
            except (KafkalogError, OSError) as error:
                _LOG.warning("cannot create topic %s for a client: %s", name, error)
            except Exception:  # the next topics do not depend on this one
                _LOG.exception("cannot create topic %s for a client", name)
            self._names.pop(name, None)
        self._task = None

    async def stop(self) -> None:
        """Wait for the topic that is being created, and forget the others."""
        for name in list(self._names)[1:]:
            del self._names[name]
        if self._task is not None:
            await self._task
