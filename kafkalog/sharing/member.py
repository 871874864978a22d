"""A member of a share group that works on one topic: heartbeats, fetches, acknowledgements."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from kafkalog.copy.cluster_client import check
from kafkalog.errors import (
    ApiError,
    CorruptRecord,
    InvalidRecordState,
    InvalidRequest,
    KafkalogError,
    LogClosed,
    UnknownTopicOrPartition,
    from_code,
)
from kafkalog.queue.worker import GAP, REJECT, RELEASE, Acquired, Lease
from kafkalog.server.client.errors import PeerError, PeerUnreachable
from kafkalog.server.error_codes import ErrorCode
from kafkalog.sharing.fetched import Fetched, Range, ranges_of, read_fetched
from kafkalog.sharing.links import SHARE_GROUP_HEARTBEAT, SharedTopic
from kafkalog.sharing.session import NodeSession
from kafkalog.types import TopicPartition
from kafkalog.util.shielded import shielded

if TYPE_CHECKING:
    from kafkalog.sharing.links import Link, Links

_LOG: Final = logging.getLogger(__name__)
_LEAVE: Final = -1
_PAUSE_S: Final = 0.05
_LEAVE_S: Final = 5.0
_ENDED: Final = frozenset({
    ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH, ErrorCode.SHARE_SESSION_LIMIT_REACHED,
})  # fmt: skip
_MOVED: Final = frozenset({
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.LEADER_NOT_AVAILABLE,
})  # fmt: skip
_ABOUT_COORDINATORS: Final = frozenset({
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
})  # fmt: skip
_FENCED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class Member:
    """One member. Only for the event loop's thread; requests follow one another.

    It works on the partitions that the group assigns it, on all of them if `takes_all`, or on one `partition`.
    `slice_s` is the longest wait of one fetch, which holds back acknowledgements.
    """

    def __init__(
        self, links: Links, group: str, topic: str, *, takes_all: bool = False, partition: int | None = None,
        slice_s: float = 0.25,
    ) -> None:  # fmt: skip
        self.id = str(uuid4())
        self._links = links
        self._group = group
        self._takes_all = takes_all
        self._partition = partition
        self._slice_s = slice_s
        self._name = topic
        self._topic: SharedTopic | None = None
        self._epoch = 0
        self._interval_s = 5.0
        self._assigned: frozenset[int] = frozenset()
        self._has_assignment = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None
        self._failure: KafkalogError | None = None
        self._turn = asyncio.Lock()  # one request of the sessions at a time
        self._sessions: dict[int, NodeSession] = {}
        self._ready: deque[Acquired] = deque()  # acquired beyond the limit, by a broker that does not keep it
        self._first = 0
        self._logged: str | None = None  # the failure of the last fetch, which is not logged again
        self._tasks: set[asyncio.Task[None]] = set()

    # Membership

    async def find(self) -> None:
        """Find the topic. UnknownTopicOrPartition, PeerError; IllegalState, StorageError for a part of a topic."""
        self._topic = await self._links.topic(self._name)

    async def join(self) -> None:
        """Join the group, once the topic is found. PeerError, errors of the coordinator."""
        await self.beat()
        self._beating = asyncio.get_running_loop().create_task(self._beat_on())

    async def leave(self) -> None:
        """End the sessions, which releases what is acquired, and leave the group. PeerError; TimeoutError, soon.

        Without an answer the locks expire, and the group notices that no heartbeat comes.
        """
        self._failure = LogClosed(f"queue {self._group} is closed")  # for calls of other threads that wait
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        async with asyncio.timeout(_LEAVE_S):
            async with self._turn:
                for node_id, session in self._sessions.items():
                    if session.is_begun:
                        with suppress(KafkalogError):  # the other nodes and the group are to know of it all the same
                            await session.close(await self._links.to_node(node_id))
            self._epoch = _LEAVE
            await self._links.ask_coordinator(self._group, self._heartbeat)
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _beat_on(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.beat()
            except KafkalogError as error:
                _LOG.warning("queue %s of topic %s: no heartbeat: %s", self._group, self._name, error)
                if not may_pass(error):
                    self._failure = error
                    return

    async def beat(self) -> None:
        """Send a heartbeat, and take the assignment of its answer. Errors as for `join`."""
        answer = await self._links.ask_coordinator(self._group, self._heartbeat)
        if answer.error_code in _FENCED:  # it was away for too long: what it had is others' now
            self._epoch = 0
            for session in self._sessions.values():
                session.end()
            answer = await self._links.ask_coordinator(self._group, self._heartbeat)
        if answer.error_code:
            raise from_code(answer.error_code, f"queue {self._group}: {answer.error_message or 'the group refuses it'}")
        self._epoch = answer.member_epoch
        self._interval_s = max(answer.heartbeat_interval, 100) / 1000
        if answer.assignment is not None:
            assert self._topic is not None
            rows = [one for one in answer.assignment.topic_partitions if one.topic_id == self._topic.id]
            self._assigned = frozenset(number for one in rows for number in one.partitions)
            if self._assigned:
                self._has_assignment.set()
        leaders = () if self._topic is None else self._topic.leaders
        if any(one >= len(leaders) or leaders[one] < 0 for one in self._assigned):  # it has grown, or there was none
            await self.find()

    async def _heartbeat(self, link: Link) -> Any:
        tree = {
            "group_id": self._group, "member_id": self.id, "member_epoch": self._epoch, "rack_id": None,
            "subscribed_topic_names": None if self._epoch else [self._name],
        }  # fmt: skip
        answer = await link.request(SHARE_GROUP_HEARTBEAT, tree)
        if answer.error_code not in _FENCED:
            check(answer.error_code, f"queue {self._group}", answer.error_message)
        return answer

    # Acquiring

    async def acquire(self, max_records: int, timeout_s: float | None) -> list[Acquired]:
        """Return at most `max_records` acquired records; wait up to `timeout_s` (None: forever) for the first one.

        If the call is cancelled, a fetch in progress goes on to its end, and what it acquires is released.
        """
        loop = asyncio.get_running_loop()
        end_s = None if timeout_s is None else loop.time() + timeout_s
        while True:
            if self._failure is not None:
                raise self._failure
            left_s = self._slice_s if end_s is None else min(self._slice_s, max(0.0, end_s - loop.time()))
            is_over = end_s is not None and loop.time() >= end_s
            try:
                found = await self._acquired(max_records, left_s)
            except PeerError as error:
                if is_over or not error.retriable:
                    raise
                found = []
                try:
                    async with asyncio.timeout_at(end_s):
                        await asyncio.sleep(_PAUSE_S)
                        await self.find()
                except TimeoutError:
                    raise error from None
            if found or is_over:
                return found

    async def _acquired(self, max_records: int, wait_s: float) -> list[Acquired]:
        while self._ready and self._is_lost(self._ready[0].lease):
            self._ready.popleft()
        if not self._ready:
            filling = self.begin(self._fill(max_records, wait_s))
            try:
                await shielded(filling)
            except asyncio.CancelledError:
                self.begin(self._release_ready(filling))
                raise
        return [self._ready.popleft() for _ in range(min(max_records, len(self._ready)))]

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine without its caller; `leave` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)
        return task

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # of a fetch that no one waits for

    async def _release_ready(self, filling: asyncio.Task[None]) -> None:
        """Release what a fetch acquires whose caller has gone."""
        await asyncio.gather(filling, return_exceptions=True)
        left = [one.lease for one in self._ready]
        self._ready.clear()
        await self.acknowledge(RELEASE, left)

    async def give_back(self, acquired: Iterable[Acquired]) -> None:
        """Release records that did not reach the caller of `acquire`."""
        await self.acknowledge(RELEASE, [one.lease for one in acquired])

    async def _fill(self, max_records: int, wait_s: float) -> None:
        """Fetch from the nodes in turn until one has records."""
        if not (self._assigned or self._takes_all):
            self._has_assignment.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._has_assignment.wait(), wait_s)
        places = self._by_leader()
        if not places and (self._assigned or self._takes_all):
            raise PeerUnreachable(f"no partition of topic {self._name} has a leader now")
        self._first += 1
        for index in range(len(places)):
            node_id, partitions = places[(index + self._first) % len(places)]
            self._ready += await self._fetch(node_id, partitions, max_records, wait_s / len(places))
            if self._ready:
                break

    def _is_lost(self, lease: Lease) -> bool:
        session = self._sessions.get(lease.node_id)
        return session is None or session.generation != lease.generation

    def _by_leader(self) -> list[tuple[int, list[int]]]:
        """Return the partitions of each node that leads some."""
        assert self._topic is not None
        found: dict[int, list[int]] = {}
        for number, leader in enumerate(self._topic.leaders):
            is_mine = self._takes_all or number in self._assigned
            if is_mine and leader >= 0 and self._partition in (None, number):
                found.setdefault(leader, []).append(number)
        return list(found.items())

    async def _fetch(
        self, node_id: int, partitions: list[int], max_records: int, wait_s: float
    ) -> list[Acquired]:
        """Return acquired records; none only if there are none, and not because all acquired offsets lack records."""
        while True:
            found = await self._fetch_once(node_id, partitions, max_records, wait_s)
            if found is not None:
                return found

    async def _fetch_once(
        self, node_id: int, partitions: list[int], max_records: int, wait_s: float
    ) -> list[Acquired] | None:
        """Return acquired records; None if the next fetch may have some at once."""
        assert self._topic is not None
        session = self._sessions.setdefault(node_id, NodeSession(self._group, self.id))
        async with self._turn:
            if self._failure is not None:  # the queue was closed meanwhile
                raise self._failure
            was_begun = session.is_begun
            link = await self._links.to_node(node_id)
            answer = await session.fetch(link, self._topic.id, partitions, max_records, int(wait_s * 1000))
            if answer.error_code:
                if answer.error_code in _ENDED:  # the next fetch begins another session
                    await asyncio.sleep(_PAUSE_S)
                    if was_begun:
                        return None
                    raise PeerError(answer.error_message or ErrorCode(answer.error_code).message or "", peer=link.peer)
                raise from_code(answer.error_code, f"{link.peer}: {answer.error_message or 'a fetch was refused'}")
            rows = [row for topic in answer.responses for row in topic.partitions]
            found = {row.partition_index: read_fetched(bytes(row.records or b""), row.acquired_records) for row in rows}
            acquired = [one for number, read in found.items() for one in self._leased(node_id, session, number, read)]
            await self._finish(session, link, GAP, {one: read.gaps for one, read in found.items()})
            await self._finish(session, link, REJECT, {one: read.damaged for one, read in found.items()})
            await self._finish(session, link, RELEASE, {one: read.unread for one, read in found.items()})
        failure = await self._failure_of(rows, found)
        if failure is not None and not acquired:
            raise failure
        self._log_once(failure)  # what other partitions gave must not be lost; the next fetch fails again
        return None if not acquired and any(read.gaps or read.damaged for read in found.values()) else acquired

    async def _failure_of(self, rows: Iterable[Any], found: Mapping[int, Fetched]) -> KafkalogError | None:
        """Return the first error of a fetch's partitions; find the topic if some have moved."""
        failure = None
        if any(row.error_code in _MOVED for row in rows):
            await asyncio.sleep(_PAUSE_S)
            try:
                await self.find()
            except KafkalogError as error:
                failure = error
        for row in rows:
            if failure is None and row.error_code and row.error_code not in _MOVED:
                place = TopicPartition(self._name, row.partition_index)
                failure = from_code(row.error_code, f"{place}: {row.error_message or 'a fetch was refused'}")
        for number, read in found.items():
            if failure is None and read.unread:
                message = f"{TopicPartition(self._name, number)}: no batch can be read from here on"
                failure = CorruptRecord(message, offset=read.unread[0][0], position=read.stopped_at)
        return failure

    def _log_once(self, failure: KafkalogError | None) -> None:
        text = None if failure is None else str(failure)
        if text is not None and text != self._logged:
            _LOG.error("queue %s of topic %s: %s", self._group, self._name, text)
        self._logged = text

    def _leased(self, node_id: int, session: NodeSession, number: int, read: Fetched) -> Iterable[Acquired]:
        place = TopicPartition(self._name, number)
        for record, deliveries in read.records:
            lease = Lease(node_id, session.generation, number, record.offset)
            yield Acquired(record, place, deliveries, lease)

    async def _finish(
        self, session: NodeSession, link: Link, kind: int, ranges: Mapping[int, list[Range]]
    ) -> None:
        """Complete offsets that no worker gets. If that fails, they come again when their locks expire."""
        given = {number: rows for number, rows in ranges.items() if rows}
        if given and session.is_begun:
            assert self._topic is not None
            await session.acknowledge(link, self._topic.id, kind, given)

    # Acknowledging

    async def acknowledge(self, kind: int, leases: Iterable[Lease]) -> dict[Lease, KafkalogError]:
        """Acknowledge acquired records. Return the errors of those for which it failed.

        InvalidRecordState for one that the member no longer has; PeerError.
        """
        by_node: dict[int, dict[int, list[Lease]]] = {}
        for lease in sorted(set(leases)):
            by_node.setdefault(lease.node_id, {}).setdefault(lease.partition, []).append(lease)
        failures: dict[Lease, KafkalogError] = {}
        left = list(by_node.items())
        while left:
            node_id, places = left.pop()
            async with self._turn:
                try:
                    refused = await self._acknowledge(node_id, kind, places)
                except KafkalogError as error:
                    refused = dict.fromkeys(places, error)
            for number, failure in refused.items():
                mine = places[number]
                middle = len(mine) // 2
                if middle and isinstance(failure, InvalidRecordState | InvalidRequest):
                    left += ((node_id, {number: part}) for part in (mine[:middle], mine[middle:]))
                else:
                    failures |= dict.fromkeys(mine, failure)
        return failures

    async def _acknowledge(
        self, node_id: int, kind: int, places: Mapping[int, list[Lease]]
    ) -> dict[int, KafkalogError]:
        """Acknowledge records in partitions of a node: in each partition all of them, or none with its error."""
        session = self._sessions.get(node_id)
        what = f"queue {self._group}, topic {self._name}"
        if session is None or any(self._is_lost(one) for part in places.values() for one in part):
            raise _lost(what)
        assert self._topic is not None
        link = await self._links.to_node(node_id)
        ranges = {number: ranges_of(one.offset for one in part) for number, part in places.items()}
        answer = await session.acknowledge(link, self._topic.id, kind, ranges)
        if answer.error_code in _ENDED:
            raise _lost(what)
        if answer.error_code:
            raise from_code(answer.error_code, f"{what}: {answer.error_message or ''}")
        rows = [row for topic in answer.responses for row in topic.partitions if row.error_code]
        return {
            row.partition_index: from_code(
                row.error_code, f"{what}, partition {row.partition_index}: {row.error_message or 'it was refused'}"
            )
            for row in rows if row.partition_index in places
        }  # fmt: skip


def may_pass(error: KafkalogError) -> bool:
    """Return True if a later heartbeat may succeed."""
    if isinstance(error, PeerError) or error.code in _ABOUT_COORDINATORS:
        return True
    return isinstance(error, ApiError) and error.retriable and not isinstance(error, UnknownTopicOrPartition)


def _lost(what: str) -> InvalidRecordState:
    return InvalidRecordState(
        f"{what}: records are no longer this worker's: its session has ended",
        hint="they are delivered again; finish or renew them in time",
    )
