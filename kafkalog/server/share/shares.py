"""The share partitions of a node: fetches and acknowledgements over several of them, and members' sessions.

It runs on the event loop, on the node that leads the partitions. The records of a change are in `__share_group_state`
before its request is answered. With several workers each has the share partitions of its own partitions, and the main
process the states (`workers/share_states.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode, code_of
from kafkalog.server.node.topics import SHARE_GROUP_STATE
from kafkalog.server.replica.purgatory import DelayedOperation
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.share.partition import Fetched, SharePartition
from kafkalog.server.share.releasing import Releases
from kafkalog.server.share.sessions import Place, ShareSession, ShareSessions
from kafkalog.server.share.state import ShareKey
from kafkalog.server.share.state_log import ShareStateLog
from kafkalog.server.share.window import AcknowledgedRange, RecordState
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.server.node.topics import Topic

_LOG: Final = logging.getLogger(__name__)
_PAUSE_S: Final = 0.01


class FetchLimits(NamedTuple):
    """Limits of a share fetch over all partitions."""

    max_wait_ms: int
    max_bytes: int
    max_records: int
    batch_size: int
    is_exact: bool


Outcome = tuple[int, str | None]
"""Error code and message, None for the code's default message."""


class Shares:
    """The share partitions of a node. Usable between `start` and `stop`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.log = ShareStateLog(node) if node.owner is None else node.owner.share_states(node)
        self.sessions = ShareSessions(node.config["group.share.max.share.sessions"])
        self.initializing = asyncio.Lock()
        """Held while states are stored for new partitions of a group, so that none is stored twice."""
        self._partitions: dict[ShareKey, SharePartition] = {}
        self.releases = Releases()

    async def start(self) -> None:
        """Start reading the stored states in the background."""
        self._node.topics.on_change(self._on_topic)
        self.log.start()

    async def stop(self) -> None:
        """Stop all timers. Records that members have in flight are available after the next start."""
        self._node.topics.off_change(self._on_topic)
        await self.releases.stop()
        for one in self._partitions.values():
            one.close()
        self._partitions.clear()
        await self.log.stop()

    async def _partition(self, group_id: str, place: Place) -> SharePartition | int:
        """Return the loaded share partition, or the error code for the client."""
        topic = self._node.topics.by_id(place[0])
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not 0 <= place[1] < topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        key = ShareKey(group_id, *place)
        found = self._partitions.get(key)
        if found is None:
            key_of_log = TopicPartition(topic.name, place[1])
            found = SharePartition(self._node, self.log, key, key_of_log, partial(self._wake, key_of_log))
        try:
            error = await found.load()
        except (KafkalogError, OSError) as failure:
            error = code_of(failure)
        if error:
            return error
        if self.log.is_closed:  # its timers would try to write again and again
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if key not in self._partitions:  # another request may have loaded it as well
            self._partitions[key] = found
            found.resume_letters()
        return self._partitions[key]

    def _wake(self, place: TopicPartition) -> None:
        self._node.replicas.waiting.fetch.check_and_complete(place)

    # Fetching

    async def fetch(
        self, session: ShareSession, places: Sequence[Place], limits: FetchLimits
    ) -> dict[Place, Fetched]:
        """Acquire records, waiting for some as long as the limits say. Return the partitions' results in order.

        Nothing is acquired once the session has ended, even if its member has another one by now.
        """
        key = group_id, member = session.key
        await self.releases.finished(key)

        def is_open() -> bool:
            return self.sessions.get(key) is session

        until_ms = self._node.monotonic_ms() + limits.max_wait_ms
        found: dict[Place, Fetched] = {}
        readable: dict[Place, SharePartition] = {}
        pause_s = 0.0
        turns = CooperativeYield()
        for place in places:
            await turns.row()
            one = await self._partition(group_id, place)
            if isinstance(one, SharePartition):
                readable[place] = one
            else:
                found[place] = Fetched(int(one))
        while True:
            found |= await self._fetch_now(member, readable, limits, is_open)
            left_ms = until_ms - self._node.monotonic_ms()
            wants_some = min(limits.max_records, limits.max_bytes, left_ms) > 0 and is_open()
            if not wants_some or not readable or any(one.error_code or one.rows for one in found.values()):
                return found
            if not await self._change(tuple(readable.values()), until_ms, is_open):
                await asyncio.sleep(pause_s)  # records came during the read, or they cannot be read if it goes on so
                pause_s = _PAUSE_S

    async def _change(
        self, partitions: Sequence[SharePartition], until_ms: int, is_open: Callable[[], bool]
    ) -> bool:  # fmt: skip
        """Wait until a partition may have records or an error, the session has ended, or it is time.

        Return False if there was nothing to wait for.
        """
        waiting = self._node.replicas.waiting.fetch
        has_waited = False
        while is_open() and (left_ms := until_ms - self._node.monotonic_ms()) > 0:
            changed = asyncio.Event()
            operation = DelayedShareFetch(left_ms, changed.set)
            waiting.try_complete_else_watch(operation, [one.place for one in partitions])
            try:  # a change of a partition that has been looked at ends the wait, too
                if await _have_records(partitions):
                    break
                await changed.wait()
                has_waited = True
            finally:
                waiting.cancel(operation)
        return has_waited

    async def _fetch_now(
        self, member: str, readable: Mapping[Place, SharePartition], limits: FetchLimits, is_open: Callable[[], bool]
    ) -> dict[Place, Fetched]:
        found: dict[Place, Fetched] = {}
        records, size = limits.max_records, limits.max_bytes
        turns = CooperativeYield()
        for place, one in readable.items():
            await turns.row()
            if records <= 0 or size <= 0:
                break
            try:
                found[place] = await one.fetch(
                    member, size, records, limits.batch_size, is_exact=limits.is_exact, is_open=is_open
                )
            except (KafkalogError, OSError) as error:
                found[place] = Fetched(code_of(error))
            records -= found[place].offsets
            size -= 0 if (sent := found[place].records) is None else sent.size
        return found

    # Completing

    async def acknowledge(
        self, session: ShareSession, wanted: Mapping[Place, Sequence[AcknowledgedRange]]
    ) -> dict[Place, Outcome]:
        """Apply acknowledgements of a session, each partition independently, and return the outcomes.

        The loop serves others between partitions: each is looked up and changed at once, and those whose locks ended
        meanwhile are refused as if the request had come later. So are all of a session that ended meanwhile: its member
        may have the same records again, in another one.
        """
        group_id, member = session.key
        found: dict[Place, Outcome] = {}
        changed: dict[Place, SharePartition] = {}
        turns = CooperativeYield()
        for place, ranges in wanted.items():
            await turns.row()
            one = self._partitions.get(ShareKey(group_id, *place))
            if one is None:
                found[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
            elif self.sessions.get(session.key) is not session:
                found[place] = ErrorCode.INVALID_RECORD_STATE, "The share session has ended."
            else:
                found[place] = one.acknowledge(member, ranges)
                if not found[place][0]:
                    changed[place] = one
        for place, one in changed.items():  # wait until it is stored and replicated; an error replaces success
            await turns.row()
            if code := await self.log.settled([one.key]) or one.failure:
                found[place] = code, None
        return found

    async def close_session(self, session: ShareSession) -> None:
        """End a session and release its member's records, unless the member has another session by now."""
        key = session.key
        if self.sessions.get(key) is session:
            self.member_left(*key)
        await self.releases.finished(key)
        await self.log.settled([one for one in self._partitions if one.group_id == key[0]])

    def member_gone(self, group_id: str, member: str) -> None:
        """End the sessions of a member that left its group or timed out, those with workers soon."""
        self.member_left(group_id, member)
        if self._node.workers is not None:
            self._node.workers.shares.member_gone(group_id, member)

    def member_left(self, group_id: str, member: str) -> None:
        """End the session of a member in this process. The last of many releases come later."""
        self.sessions.close((group_id, member))
        mine = [one for key, one in self._partitions.items() if key.group_id == group_id]
        self.releases.start((group_id, member), mine)

    def disconnected(self, connection: int) -> None:
        """End the sessions of a closed connection."""
        for key in self.sessions.of_connection(connection):
            self.member_left(*key)

    # States

    def forget(self, is_gone: Callable[[ShareKey], bool]) -> None:
        """Drop the share partitions for which `is_gone` returns True: the next fetch loads their state again."""
        for key in [key for key in self._partitions if is_gone(key)]:
            self._partitions.pop(key).close()

    def failed(self, key: ShareKey, code: int) -> None:
        """Drop a share partition of which a change that took effect was not stored. The next fetch loads its state."""
        if key in self._partitions:
            self._partitions[key].failure = code
            self._partitions.pop(key).close()

    async def initialize(self, starts: Mapping[ShareKey, int], state_epoch: int) -> int:
        """Store new states that begin at these offsets. Return 0 or the error code. Raises the append's errors."""
        await self._bury(starts)
        before = [key for key in starts if self.log.get(key) is not None]
        turns = CooperativeYield()
        for key, start in starts.items():
            await turns.row()
            error = await self.log.ready(key)
            if error:
                return error
            self.log.initialize(key, state_epoch, start)
            if key in self._partitions:  # at once: a release or a timer would write its former state over the new one
                self._partitions.pop(key).close()
        await self._forget_elsewhere(before)
        return await self.log.settled(starts)

    async def _bury(self, keys: Iterable[ShareKey]) -> None:
        """Let the dead letters be written that only these states know of: they are about to be replaced."""
        await self.log.loaded()
        wanted = [key for key in keys if (state := self.log.get(key)) is not None
                  and any(one.state == RecordState.ARCHIVING for one in state.batches)]  # fmt: skip
        await self.letters_written(wanted)
        if wanted and self._node.workers is not None:
            await self._node.workers.shares.letters_written(wanted)

    async def letters_written(self, keys: Iterable[ShareKey]) -> None:
        """Load these share partitions, if they lie here, and wait until their dead letters are written."""
        for key in keys:
            one = await self._partition(key.group_id, (key.topic_id, key.partition))
            if isinstance(one, SharePartition):
                await one.letters_written()

    async def _forget_elsewhere(self, keys: Collection[ShareKey]) -> None:
        """Wait until workers have dropped the share partitions of states that were replaced or deleted."""
        if keys and self._node.workers is not None:
            await self._node.workers.shares.forget(keys)

    async def delete(self, keys: Iterable[ShareKey]) -> int:
        """Delete states. Return 0 or the error code. Raises the append's errors."""
        gone = frozenset(keys)
        await self._bury(gone)
        self.forget(lambda key: key in gone)
        known = self.log.keys(lambda key: key in gone)
        self.log.delete(known)
        await self._forget_elsewhere(known)
        return await self.log.settled(known)

    def _on_topic(self, before: Topic | None, after: Topic | None) -> None:
        if before is None or after is not None:
            return
        topic_id = before.id
        if before.name == SHARE_GROUP_STATE:
            self.forget(lambda key: True)
            self.log.clear()
            if self._node.workers is not None:
                self._node.workers.shares.forget_all()
            return
        self.forget(lambda key: key.topic_id == topic_id)
        try:
            self.log.delete(self.log.keys(lambda key: key.topic_id == topic_id))
        except (KafkalogError, OSError) as error:
            _LOG.error("the states of share groups in topic %s cannot be deleted: %s", before.name, error)


async def _have_records(partitions: Iterable[SharePartition]) -> bool:
    """Return True if one of these partitions may have records, or an error that the next read finds."""
    turns = CooperativeYield()
    for one in partitions:
        try:
            if await one.has_records():
                return True
        except KafkalogError:
            return True
        await turns.row()
    return False


class DelayedShareFetch(DelayedOperation):
    """A share fetch that waits for a change of any of its partitions, from the time when it is put under their keys.

    The fetch itself finds out if there are records, in turns with other work: its partitions may be very many.
    """

    __slots__ = ("_is_watched", "_respond")

    def __init__(self, delay_ms: int, respond: Callable[[], object]) -> None:
        super().__init__(delay_ms)
        self._is_watched = False
        self._respond = respond

    def try_complete(self) -> bool:
        if self._is_watched:
            return self.force_complete()
        self._is_watched = True
        return False

    def on_complete(self) -> None:
        self._respond()
