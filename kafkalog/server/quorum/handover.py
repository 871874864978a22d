"""Planned handover of leadership to a chosen node, without losing an acknowledged record.

Clients continue while the leader waits until the successor is close. Then the leader stops appending, waits until the
successor has all of its records, and answers the request. In the vote that follows no one is ahead. Requests that
arrive meanwhile wait, and then get the new leader. If the successor is too slow, the leader continues in its own term.
If the vote fails after it stepped down, it asks for the votes itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from kafkalog.errors import ApiError, FencedLeaderEpoch, KafkalogError
from kafkalog.server.node.changing import Changing
from kafkalog.server.quorum.errors import NotController
from kafkalog.server.quorum.file import NO_NODE
from kafkalog.server.replica.partition import Partition

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

_LOG: Final = logging.getLogger(__name__)
TIMEOUT: Final = "kafkalog.handover.timeout.ms"
CLOSE_LAG_MS: Final = 1000
"""Lag of the successor at which appends stop: it then catches up soon."""
HOLD_SECONDS: Final = 5.0
"""Limit for holding appends while the successor fetches the last records, and again while its vote is pending."""
RETURN_SECONDS: Final = 1.0
TRIES: Final = 30
"""Number of times that a leader which stepped down asks for the votes itself, every RETURN_SECONDS."""
_POLL_SECONDS: Final = 0.01


class NotCaughtUp(ApiError):
    """The successor does not have the leader's records in time, so the leader continues."""

    code = 80
    retriable = True


class HandOver:
    """The leader's side of a handover. The event loop owns it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.on_change: Callable[[], object] = lambda: None
        """Called when the leader starts and when it stops waiting for its successor."""

    def start(self) -> None:
        """Reject changes from now on while this node hands over."""
        for one in self._changing:
            one.check_change = self._check_change

    async def stop(self) -> None:
        """Stop waiting for the successor's vote and release the held appends."""
        await self._cancel_task()
        self._release()

    async def hand_over(self, term: int, leader: int, successor: int) -> None:
        """Wait until the successor has all records of this leader, which then appends nothing until the vote.

        FencedLeaderEpoch if this node does not lead in the term. NotCaughtUp if the successor is too slow.
        """
        async with self._turn:
            self._check(term, leader, successor)
            within_s = self._node.config[TIMEOUT] / 1000
            _LOG.info("handing over to node %d, which has %g s to catch up", successor, within_s)
            if not await self._until(lambda: self._behind(successor, CLOSE_LAG_MS) is None, within_s):
                raise self._not_caught_up(successor, CLOSE_LAG_MS)
            self._check(term, leader, successor)
            await self._cancel_task()
            self._hold()
            is_given = False
            try:
                await self._changes_settled(min(within_s, HOLD_SECONDS))
                if not await self._until(lambda: self._has_all(successor), min(within_s, HOLD_SECONDS)):
                    raise self._not_caught_up(successor, 0)
                self._check(term, leader, successor)
                is_given = True
            finally:
                if not is_given:
                    self._release()
            _LOG.info("node %d has all records: appends wait for its vote", successor)
            self._task = asyncio.get_running_loop().create_task(self._wait_for_vote(term))

    def _check(self, term: int, leader: int, successor: int) -> None:
        quorum = self._node.quorum
        if not quorum.leads or (quorum.state.term, self._node.node_id) != (term, leader):
            raise FencedLeaderEpoch(f"node {self._node.node_id} does not lead in term {term}")
        if successor not in quorum.others(self._node.node_id):
            raise FencedLeaderEpoch(f"node {successor} is not another node of the set")

    @property
    def _changing(self) -> tuple[Changing, ...]:
        node = self._node
        return node.topics, node.dynamic, node.features, node.credentials.file

    def _check_change(self) -> None:
        if self._node.quorum.is_handing_over:
            raise NotController("another node is about to lead the replica set")

    async def _changes_settled(self, seconds: float) -> None:
        """Wait until changes of topics and settings that are in progress have finished. NotCaughtUp.

        The successor asks for all of them once it has the records.
        """
        waiting = [asyncio.ensure_future(one.settled()) for one in self._changing]
        _, late = await asyncio.wait(waiting, timeout=seconds)
        for one in late:
            one.cancel()
        if late:
            raise NotCaughtUp("a change of topics or settings did not finish in time")
        await self._node.quorum.metadata.save()  # the successor takes the version that is on disk

    def _partitions(self) -> Iterator[Partition]:
        for key in tuple(self._node.store.logs):
            try:
                yield self._node.replicas.find(key)
            except KafkalogError as error:
                _LOG.info("%s is not handed over: %s", key, error)

    def _behind(self, successor: int, lag_ms: int) -> Partition | None:
        """Return a partition with records that the successor lacks, and lacked for longer than `lag_ms`, or None."""
        now_ms = self._node.monotonic_ms()
        for partition in self._partitions():
            end = partition.log.log_end_offset
            state = partition.followers.get(successor)
            if end == 0 or (state is not None and state.log_end.message_offset >= end):
                continue
            if state is None or not lag_ms or not state.is_caught_up(end, now_ms, lag_ms):
                return partition
        return None

    def _has_all(self, successor: int) -> bool:
        return not self._node.replicas.pool_appends and self._behind(successor, 0) is None

    def _not_caught_up(self, successor: int, lag_ms: int) -> KafkalogError:
        found = self._behind(successor, lag_ms)
        if not self._node.quorum.leads:
            return FencedLeaderEpoch("another node leads now")
        _LOG.warning("node %d did not catch up, so this node stays the leader: %s", successor, found)
        where = "an append" if found is None else str(found.topic_partition)
        return NotCaughtUp(f"node {successor} did not catch up with {where}")

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not condition():
            if loop.time() >= deadline or not self._node.quorum.leads:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    def _hold(self) -> None:
        self._node.replicas.hold_writes()
        self._node.quorum.is_handing_over = True
        self.on_change()

    def _release(self) -> None:
        self._node.quorum.is_handing_over = False
        self.on_change()
        self._node.replicas.release_writes()

    # After the handover

    async def _cancel_task(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _wait_for_vote(self, term: int) -> None:
        quorum = self._node.quorum
        loop = asyncio.get_running_loop()
        deadline = loop.time() + HOLD_SECONDS
        try:
            while (quorum.leads or quorum.leader == NO_NODE) and loop.time() < deadline:
                await asyncio.sleep(_POLL_SECONDS)
        finally:
            self._release()  # waiting requests get the next leader
        if quorum.leads:
            _LOG.warning("the successor did not ask for votes: this node stays the leader in term %d", term)
            return
        await quorum.regain(RETURN_SECONDS, TRIES)
