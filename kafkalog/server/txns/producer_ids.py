"""Producer ids, each given once: a block is reserved on disk before the first of it is given.

In a replica set every node gives ids, and each block is one node's, so that no two give the same.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import IllegalState, StorageError
from kafkalog.manager.cluster_metadata import read_cluster_metadata
from kafkalog.manager.producer_ids import MAX_PRODUCER_ID, read_next_producer_id, write_next_producer_id
from kafkalog.storage.log import UnifiedLog
from kafkalog.util.fileio import OS, FileSystem

if TYPE_CHECKING:
    from kafkalog.server.node import Node

BLOCK: Final = 1000
"""How many ids are reserved at once, as many as a controller gives a broker."""
MADE_UP: Final = 1 << 62
"""No id from here on was given to anybody: who writes under one has made it up."""
_LOG: Final = logging.getLogger(__name__)
Run = Callable[..., Awaitable[Any]]


class ProducerIds:
    """Gives producer ids from `first` on.

    `run` calls a function elsewhere than on the loop: that is where a block is reserved, in each of `directories`: any
    of them may be away at the next start. Of `share` (place, count), each block whose number leaves that place as its
    rest belongs to us.
    """

    def __init__(
        self, directories: Sequence[str], first: int, run: Run, *, fs: FileSystem = OS, share: tuple[int, int] = (0, 1)
    ) -> None:
        self._directories = directories
        self._fs = fs
        self._run = run
        self._share = share
        self._next = self._end = first
        self._reserving: asyncio.Future[None] | None = None

    async def ready(self) -> None:
        """Returns once there is an id to take; at once where there is one, so that nobody comes between.

        StorageError where no directory takes the reservation of a block; IllegalState once all ids are given.
        """
        while self._next == self._end:
            if self._reserving is None:
                self._reserving = asyncio.ensure_future(self._reserve())
            await asyncio.shield(self._reserving)  # others may wait for the same block

    async def _reserve(self) -> None:
        try:
            first = own_id(self._end, self._share)
            end = first + BLOCK if self._share[1] == 1 else (first // BLOCK + 1) * BLOCK
            if end > MAX_PRODUCER_ID:
                raise IllegalState("all producer ids are given out")
            await self._run(self._write, end)
            if self._end < end:
                self._next, self._end = max(self._next, first), end
        finally:
            self._reserving = None

    def _write(self, end: int) -> None:
        failures: list[StorageError] = []
        for directory in self._directories:
            try:
                write_next_producer_id(directory, end, fs=self._fs)
            except StorageError as error:
                _LOG.warning("producer ids below %d are not noted in %s: %s", end, directory, error)
                failures.append(error)
        if failures and len(failures) == len(self._directories):
            raise failures[0]

    def take(self) -> int:
        """An id that nobody has; `ready` was awaited just before. IllegalState else."""
        if self._next == self._end:
            raise IllegalState("no producer id is reserved")
        self._next += 1
        return self._next - 1

    def above(self, used: int) -> None:
        """Give only ids above `used`, which was found in a log."""
        if used >= self._next:
            self._next = used + 1
            self._end = max(self._end, self._next)


def own_id(at: int, share: tuple[int, int]) -> int:
    """The first id from `at` on that lies in a block of this share."""
    place, count = share
    block = at // BLOCK
    ahead = (place - block) % count
    return (block + ahead) * BLOCK if ahead else at


async def ids_of(node: Node) -> ProducerIds:
    """What a node of a replica set gives ids from, leading or not. Errors as `first_producer_id`."""
    made = node.producer_ids
    if made is None or (made.done() and (made.cancelled() or made.exception() is not None)):
        made = node.producer_ids = asyncio.ensure_future(_ids_of(node))
    found: ProducerIds = await asyncio.shield(made)  # others may wait for them as well
    return found


async def _ids_of(node: Node) -> ProducerIds:
    members = node.quorum.replica_set.ids
    store = node.store
    directories = [directory.path for directory in store.online]
    first = await node.run(first_producer_id, directories, tuple(store.logs.values()), store.fs)
    share = (members.index(node.node_id), len(members))
    return ProducerIds(directories, first, node.run, fs=store.fs, share=share)


def first_producer_id(directories: Sequence[str | os.PathLike[str]], logs: Iterable[UnifiedLog], fs: FileSystem) -> int:
    """The first id that neither we nor a broker gave out in these directories.

    What we gave says our file; what a broker was given, its metadata; and any log knows the producers that wrote to it,
    those too that made up an id: a huge one would leave none to give, so it is passed over.
    CorruptRecord or CorruptCheckpoint for damage in the first two, StorageError.
    """
    first = 0
    for directory in directories:
        metadata = read_cluster_metadata(directory, fs=fs)
        known = 0 if metadata is None else metadata.image.next_producer_id
        first = max(first, known, read_next_producer_id(directory, fs=fs))
    for log in logs:
        first = max([first, *(one.producer_id + 1 for one in log.producers if one.producer_id < MADE_UP)])
    return first
