"""Releases of the records of members whose sessions ended, in turns with other work: partitions may be very many."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kafkalog.server.requests.cooperative_yield import TURN_ROWS, CooperativeYield
from kafkalog.server.share.partition import SharePartition
from kafkalog.server.share.sessions import SessionKey


class Releases:
    """The unfinished releases by member. Only for the event loop's thread.

    A member acquires nothing while its records are released: `finished` is awaited before its fetches, so that the
    records of its next session are not released with those of the one before.
    """

    def __init__(self) -> None:
        self._tasks: dict[SessionKey, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, key: SessionKey, partitions: Iterable[SharePartition]) -> None:
        """Release a member's records in some partitions: the first ones now, many others soon."""
        if key in self._tasks:  # its session has ended before, and it has acquired nothing since
            return
        left = iter(partitions)
        for _, one in zip(range(TURN_ROWS), left, strict=False):
            one.release(key[1])
        rest = tuple(left)
        if rest:
            task = asyncio.get_running_loop().create_task(_release(key[1], rest))
            self._tasks[key] = task
            task.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def finished(self, key: SessionKey) -> None:
        """Wait until the records of a member are released, if they are being released."""
        if key in self._tasks:
            await asyncio.wait([self._tasks[key]])

    async def stop(self) -> None:
        """Cancel what is not finished."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _release(member: str, partitions: Iterable[SharePartition]) -> None:
    turns = CooperativeYield()
    for one in partitions:
        one.release(member)  # nothing if the partition was closed meanwhile
        await turns.row()
