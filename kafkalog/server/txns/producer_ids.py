"""Unique producer ids: a block of ids is reserved on disk before its first id is assigned.

In a replica set every node assigns ids. Each block belongs to one node, so that no two nodes assign the same id.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kafkalog.errors import IllegalState, StorageError
from kafkalog.manager.cluster_metadata import read_cluster_metadata
from kafkalog.manager.producer_ids import MAX_PRODUCER_ID, read_next_producer_id, write_next_producer_id
from kafkalog.storage.log import UnifiedLog
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.shielded import shielded

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.server.node.pool import Run

BLOCK: Final = 1000
"""Number of ids reserved at once, as many as a controller gives a broker."""
FIRST_CHOSEN_ID: Final = 1 << 62
"""Ids from here on are never assigned; a producer with such an id chose it itself."""
_LOG: Final = logging.getLogger(__name__)


class ProducerIds:
    """Assigns producer ids from `first` on.

    `run` calls a function outside of the event loop. With it, a block is reserved in each of `directories`, since any
    of them may be missing at the next start. With `share` (place, count), this node owns the blocks whose number modulo
    count is place.
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
        """Wait until an id is available; if one is, return without a switch to another task.

        StorageError if a block cannot be reserved in any directory; IllegalState if all ids are assigned.
        """
        while self._next == self._end:
            if self._reserving is None:
                self._reserving = asyncio.ensure_future(self._reserve())
            await shielded(self._reserving)  # others may wait for the same block

    async def _reserve(self) -> None:
        try:
            first = next_own_id(self._end, self._share)
            end = first + BLOCK if self._share[1] == 1 else (first // BLOCK + 1) * BLOCK
            if end > MAX_PRODUCER_ID:
                raise IllegalState("all producer ids are assigned")
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
                _LOG.warning("cannot reserve producer ids below %d in %s: %s", end, directory, error)
                failures.append(error)
        if failures and len(failures) == len(self._directories):
            raise failures[0]

    def take(self) -> int:
        """Return a new id. IllegalState if none is reserved: await `ready` just before."""
        if self._next == self._end:
            raise IllegalState("no producer id is reserved")
        self._next += 1
        return self._next - 1

    def skip_to(self, used: int) -> None:
        """Assign only ids above `used`, which was found in a log."""
        if used >= self._next:
            self._next = used + 1
            self._end = max(self._end, self._next)


def next_own_id(at: int, share: tuple[int, int]) -> int:
    """Return the first id from `at` on that is in a block of this share."""
    place, count = share
    block = at // BLOCK
    ahead = (place - block) % count
    return (block + ahead) * BLOCK if ahead else at


async def ids_of(node: Node) -> ProducerIds:
    """Return the ProducerIds of a node of a replica set, leader or not. Raises the errors of `first_producer_id`."""
    task = node.producer_ids
    if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
        task = node.producer_ids = asyncio.ensure_future(_ids_of(node))
    return await shielded(task)  # others may wait for them as well


async def _ids_of(node: Node) -> ProducerIds:
    members = node.quorum.own_set.ids
    store = node.store
    directories = [directory.path for directory in store.online]
    first = await node.run(first_producer_id, directories, tuple(store.logs.values()), store.fs)
    share = (members.index(node.node_id), len(members))
    return ProducerIds(directories, first, node.run, fs=store.fs, share=share)


def first_producer_id(directories: Sequence[str | os.PathLike[str]], logs: Iterable[UnifiedLog], fs: FileSystem) -> int:
    """Return the first id that neither kafkalog nor a broker has assigned in these directories.

    It is above the ids in kafkalog's own file, in a broker's metadata, and of the producers in all logs. Producers' ids
    of at least `FIRST_CHOSEN_ID` are ignored, since they would leave none to assign. CorruptRecord or CorruptCheckpoint
    for damage in the metadata or the file; StorageError.
    """
    first = 0
    for directory in directories:
        metadata = read_cluster_metadata(directory, fs=fs)
        known = 0 if metadata is None else metadata.image.next_producer_id
        first = max(first, known, read_next_producer_id(directory, fs=fs))
    for log in logs:
        first = max([first, *(one.producer_id + 1 for one in log.producers if one.producer_id < FIRST_CHOSEN_ID)])
    return first
