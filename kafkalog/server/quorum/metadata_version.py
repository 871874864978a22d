"""How new a node's topics, settings, users, ACLs and quotas are, and whether a majority of its set has them.

The leader counts each change, and a follower takes the leader's version with what belongs to it:

- It asks for the version before it asks for the rest: all that the version counts is in what it gets (`complete`).
- It asks again at the end, for what the leader has counted and may not have on disk yet: nothing newer is in what it
  got. That is kept before anything of it is made here (`begun`).
- A change is counted by the leader when it is done, in the same step in which others can see it, and is told of when
  the count is on disk.
- What the leader itself has may be newer than what it counted last, once it has stopped: its `begun` is open.

So a candidate with a version that is not below a voter's `begun` knew each topic that the voter has, and what it lacks
of them was deleted. One below a voter's `complete` lacks what may have been answered for. `quorum/decisions.py` has
both rules, and `tests/server/quorum/metadata_model.py` tries them in any order of steps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kafkalog.config_keys import MAX_LONG
from kafkalog.errors import ApiError, KafkalogError
from kafkalog.server.quorum import messages
from kafkalog.server.quorum.errors import NotController
from kafkalog.server.quorum.version_file import Version, VersionFile, Versions, unknown
from kafkalog.server.quorum.watch import ANSWER_SECONDS

if TYPE_CHECKING:
    from kafkalog.server.node import Node
    from kafkalog.server.quorum.quorum import Quorum

_LOG: Final = logging.getLogger(__name__)
LOOK_SECONDS: Final = 0.02
"""While somebody waits for a majority, the others are asked so often what they have."""


class NotReplicated(ApiError):
    """No majority of the replica set has a change in time: it may stay, and may be lost."""

    code = 7
    retriable = True


class MetadataVersion:
    """The versions of a node of a set. All of it belongs to the loop."""

    def __init__(self, node: Node, quorum: Quorum) -> None:
        self.changes = 0
        """How often this node has changed something since it leads."""
        self._node = node
        self._quorum = quorum
        self._file: VersionFile | None = None
        self._versions = Versions()
        self._on_disk = Versions()
        self._writing = asyncio.Lock()
        self._others: dict[int, int] = {}  # the leader's: how many of its changes the others have
        self._waiting: set[asyncio.Event] = set()
        self._looking: asyncio.Task[None] | None = None
        self._is_over = False

    async def start(self, file: VersionFile, term: int) -> None:
        """Reads what is kept; without it, what is here is of leaders up to this term. CorruptCheckpoint,
        StorageError."""
        self._file = file
        kept = await self._node.run(file.read)
        self._versions = self._on_disk = unknown(term) if kept is None else kept

    async def stop(self) -> None:
        """Who waits is told that it is not known."""
        self._is_over = True
        self.wake()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    @property
    def versions(self) -> Versions:
        """What this node has, also where the disk does not know it yet."""
        if not self._quorum.leads:
            return self._versions
        return self._versions._replace(complete=(self._quorum.state.term, self.changes))

    @property
    def kept(self) -> Version:
        """What it has on disk, all of it."""
        return self._on_disk.complete

    @property
    def kept_changes(self) -> int:
        """How many changes of the leader of this term are here and on disk; -1 where that is not known."""
        term, changes = self.kept
        return changes if term == self._quorum.state.term else -1

    # Leading

    async def lead(self, term: int) -> None:
        """Return when what this node has is kept as the first version of its term. StorageError."""
        self._others.clear()
        self.changes = 0
        self._versions = Versions((term, MAX_LONG), (term, 0))
        await self._keep()

    def resign(self) -> None:
        """Called in the step before this node leads no more."""
        self._versions = self.versions
        self.wake()

    def changed(self) -> None:
        """The leader has changed something, and it is on disk. A set of one counts nothing: nobody asks."""
        if self._quorum.leads and self._quorum.others(self._node.node_id):
            self.changes += 1
            self._quorum.later(self._count())

    async def _count(self) -> None:
        try:
            await self._keep()
        except KafkalogError as error:
            _LOG.error("a change of topics or settings is not counted: %s", error)
        self.wake()

    async def counted(self) -> None:
        """Return when the disk has all that was counted until now. StorageError."""
        await self._keep()

    async def replicated(self, timeout_ms: float) -> None:
        """Return when a majority of the set has all that this leader changed until now.

        NotReplicated after so long, NotController where it does not lead (any more).
        """
        term, changes = self._quorum.state.term, self.changes
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        deadline = loop.time() + timeout_ms / 1000
        timer = loop.call_at(deadline, news.set)  # a request is begun outside of a task: no `asyncio.timeout`
        self._waiting.add(news)
        try:
            while not self._is_replicated(term, changes):
                if loop.time() >= deadline:
                    raise NotReplicated("no majority of the replica set has the change yet: it may stay, or not")
                self._look()
                await news.wait()
                news.clear()
        finally:
            timer.cancel()
            self._waiting.discard(news)

    def _is_replicated(self, term: int, changes: int) -> bool:
        quorum = self._quorum
        if not quorum.leads or quorum.state.term != term or self._is_over:
            raise NotController("another node leads: whether the change stays is not known")
        if self.kept < (term, changes):
            return False
        have = {one for one, count in self._others.items() if count >= changes}
        assert quorum.replica_set is not None
        return quorum.replica_set.is_majority(have | {self._node.node_id})

    def wake(self) -> None:
        """Let those look again who wait."""
        for news in self._waiting:
            news.set()

    def _look(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look_on())

    async def _look_on(self) -> None:
        """Ask all others what they have, as long as somebody waits; one that lags is told that there is news."""
        others = self._quorum.others(self._node.node_id)
        term = self._quorum.state.term
        await asyncio.gather(*(self._look_at(other, term) for other in others))

    async def _look_at(self, other: int, term: int) -> None:
        told = -1
        while self._waiting and self._quorum.leads and self._quorum.state.term == term:
            wanted = self.kept_changes
            if self._others.get(other, -1) < wanted and told < wanted:
                await self._quorum.tell(other)
                told = wanted
            count = await self._asked(other, term)
            if count > self._others.get(other, -1):
                self._others[other] = count
                self.wake()
            await asyncio.sleep(LOOK_SECONDS)

    async def _asked(self, other: int, term: int) -> int:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await self._quorum.peers.ask(other, messages.DESCRIBE_QUORUM, messages.describe_request())
            told, count = messages.read_end_of(answer, other)
        except (KafkalogError, OSError, TimeoutError, ValueError, AttributeError) as error:
            _LOG.debug("node %d does not say what it has: %s", other, error)
            return -1
        return count if told == term else -1

    def ends(self, ids: Iterable[int]) -> Mapping[int, int]:
        """How many changes of this term each node has as far as it is known here, -1 where it is not; of the leader
        itself also what is not on disk yet, of others only what is."""
        me, leads = self._node.node_id, self._quorum.leads
        known = self._others if leads else {}
        return {one: known.get(one, -1) for one in ids} | {me: self.changes if leads else self.kept_changes}

    # Following

    async def begin(self, last: Version) -> None:
        """Return when it is kept that what is here may be as new as this. StorageError."""
        self._versions = self._versions._replace(begun=max(last, self._versions.begun))
        await self._keep()

    async def finish(self, versions: Versions) -> None:
        """All of a version is here. Whoever calls has seen in the same step that its leader is still followed; on
        return it is on disk. StorageError."""
        self._versions = versions
        await self._keep()

    async def _keep(self) -> None:
        async with self._writing:
            versions = self.versions
            if versions != self._on_disk:
                assert self._file is not None
                await self._node.run(self._file.write, versions)
                self._on_disk = versions
