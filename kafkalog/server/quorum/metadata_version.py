"""Version of a node's topics, settings, users, ACLs and quotas, and whether a majority of its set has them.

The leader counts each change, and a follower adopts the leader's version together with its content:

- It asks for the version before the rest, so everything that the version counts is in the answer (`complete`).
- It asks again at the end, for changes that the leader has counted but may not have on disk yet. Nothing in the answers
  is newer than that. The follower stores this version before it applies any of the content (`begun`).
- The leader counts a change when it is done, in the same step in which others can see it. It reports the change when
  the count is on disk.
- The leader's own data may be newer than its last count once it has stopped, so its `begun` is open.

So a candidate with a version not below a voter's `begun` knew each topic that the voter has, and those that it lacks
were deleted. A candidate below a voter's `complete` lacks changes that may have been acknowledged.
`quorum/decisions.py` has both rules, and `tests/server/quorum/metadata_model.py` tries them in any order of steps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from kafkalog.config.keys import MAX_LONG
from kafkalog.errors import ApiError, KafkalogError
from kafkalog.server.quorum import messages
from kafkalog.server.quorum.errors import NotController
from kafkalog.server.quorum.version_file import Version, VersionFile, Versions, unknown
from kafkalog.server.quorum.watch import ANSWER_SECONDS

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.server.quorum.quorum import Quorum

_LOG: Final = logging.getLogger(__name__)
POLL_SECONDS: Final = 0.02
"""Interval at which the leader asks the others for their versions while a request waits for a majority."""


class NotReplicated(ApiError):
    """No majority of the replica set has a change in time: it may persist, or be lost."""

    code = 7
    retriable = True


class MetadataVersion:
    """The versions of a node of a set. The event loop owns it."""

    def __init__(self, node: Node, quorum: Quorum) -> None:
        self.changes = 0
        """Number of changes that this node has made since it leads."""
        self.sent: tuple[tuple[int, int], bytes] | None = None
        """The snapshot that a node is fetching in parts, by its id."""
        self._node = node
        self._quorum = quorum
        self._file: VersionFile | None = None
        self._versions = Versions()
        self._on_disk = Versions()
        self._writing = asyncio.Lock()
        self._others: dict[int, int] = {}  # on the leader: number of its changes that each other node has
        self._waiting: set[asyncio.Event] = set()
        self._polls: dict[int, asyncio.Task[None]] = {}  # by node; each runs while a caller waits
        self._is_stopped = False

    async def start(self, file: VersionFile, term: int) -> None:
        """Read the stored versions. Without them, the data is of leaders up to `term`.

        CorruptCheckpoint, StorageError.
        """
        self._file = file
        stored = await self._node.run(file.read)
        self._versions = self._on_disk = unknown(term) if stored is None else stored

    async def stop(self) -> None:
        """Stop, and wake the waiting callers: they get NotController."""
        self._is_stopped = True
        self.wake()
        for poll in self._polls.values():
            poll.cancel()
        await asyncio.gather(*self._polls.values(), return_exceptions=True)

    @property
    def versions(self) -> Versions:
        """Versions of this node, including changes that are not on disk yet."""
        if not self._quorum.leads:
            return self._versions
        return self._versions._replace(complete=(self._quorum.state.term, self.changes))

    @property
    def stored(self) -> Version:
        """Version that is complete on disk."""
        return self._on_disk.complete

    @property
    def stored_changes(self) -> int:
        """Number of changes by the leader of this term that are on disk here; -1 if unknown."""
        term, changes = self.stored
        return changes if term == self._quorum.state.term else -1

    # Leading

    async def lead(self, term: int) -> None:
        """Store this node's data as the first version of its term. StorageError."""
        self._others.clear()
        self.changes = 0
        self._versions = Versions((term, MAX_LONG), (term, 0))
        await self.save()

    def resign(self) -> None:
        """Fix the version; called in the step before this node stops leading."""
        self._versions = self.versions
        self.wake()

    def changed(self) -> None:
        """Count a change of the leader that is on disk. A set of one node counts nothing, as no one asks."""
        if self._quorum.leads and self._quorum.others(self._node.node_id):
            self.changes += 1
            self._quorum.later(self._count())

    async def _count(self) -> None:
        try:
            await self.save()
        except KafkalogError as error:
            _LOG.error("a change of topics or settings was not counted: %s", error)
        self.wake()

    async def replicated(self, timeout_ms: float) -> None:
        """Wait until a majority of the set has all changes that this leader has made so far.

        NotReplicated after `timeout_ms`. NotController if this node does not lead, or has stopped leading.
        """
        term, changes = self._quorum.state.term, self.changes
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        deadline = loop.time() + timeout_ms / 1000
        timer = loop.call_at(deadline, news.set)  # a request may start outside a task, where `asyncio.timeout` fails
        self._waiting.add(news)
        try:
            while not self._is_replicated(term, changes):
                if loop.time() >= deadline:
                    raise NotReplicated("no majority of the replica set has the change yet: it may persist or be lost")
                self._start_polling()
                await news.wait()
                news.clear()
        finally:
            timer.cancel()
            self._waiting.discard(news)

    def _is_replicated(self, term: int, changes: int) -> bool:
        quorum = self._quorum
        if not quorum.leads or quorum.state.term != term or self._is_stopped:
            raise NotController("another node leads: the change may persist or be lost")
        if self.stored < (term, changes):
            return False
        have = {one for one, count in self._others.items() if count >= changes}
        assert quorum.replica_set is not None
        return quorum.replica_set.is_majority(have | {self._node.node_id})

    def wake(self) -> None:
        """Wake the waiting callers, which check again."""
        for news in self._waiting:
            news.set()

    def _start_polling(self) -> None:
        """Poll each other node that is not polled: a poll may have ended just before the caller began to wait."""
        for other in self._quorum.others(self._node.node_id):
            poll = self._polls.get(other)
            if poll is None or poll.done():
                self._polls[other] = asyncio.get_running_loop().create_task(self._poll(other))

    async def _poll(self, other: int) -> None:
        """Poll the version of a node while a caller waits, and notify the node if it lags."""
        notified_of = (-1, -1)
        while self._waiting and self._quorum.leads:
            term, wanted = self._quorum.state.term, self.stored_changes
            if self._others.get(other, -1) < wanted and notified_of < (term, wanted):
                await self._quorum.notify(other)
                notified_of = (term, wanted)
            count = await self._count_of(other, term)
            if count > self._others.get(other, -1) and self._quorum.state.term == term:
                self._others[other] = count
                self.wake()
            await asyncio.sleep(POLL_SECONDS)

    async def _count_of(self, other: int, term: int) -> int:
        try:
            answer = await self._quorum.poll.describe(other, ANSWER_SECONDS)
            reported_term, count = messages.read_end_of(answer, other)
        except (KafkalogError, OSError, TimeoutError, ValueError, AttributeError) as error:
            _LOG.debug("node %d did not report its version: %s", other, error)
            return -1
        return count if reported_term == term else -1

    def ends(self, ids: Iterable[int]) -> Mapping[int, int]:
        """Return the number of changes of this term that each node has, -1 if unknown.

        For the leader itself this includes changes that are not on disk yet; for others only those on disk.
        """
        me, leads = self._node.node_id, self._quorum.leads
        known = self._others if leads else {}
        return {one: known.get(one, -1) for one in ids} | {me: self.changes if leads else self.stored_changes}

    # Following

    async def begin(self, last: Version) -> None:
        """Store that the data here may be as new as `last`. StorageError."""
        self._versions = self._versions._replace(begun=max(last, self._versions.begun))
        await self.save()

    async def finish(self, versions: Versions) -> None:
        """Store that all of a version is here. StorageError.

        The caller must have checked in the same step that its leader is still followed. On return it is on disk.
        """
        self._versions = versions
        await self.save()

    async def save(self) -> None:
        """Store the versions, if they changed. On return, everything counted so far is on disk. StorageError."""
        async with self._writing:
            versions = self.versions
            if versions != self._on_disk:
                assert self._file is not None
                await self._node.run(self._file.write, versions)
                self._on_disk = versions

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Store nothing in the block."""
        async with self._writing:
            yield
