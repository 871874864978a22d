"""The share coordinator's log: stored states of share partitions, each in one partition of `__share_group_state`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kafkalog._core.batch.encode import encode_ready
from kafkalog.errors import KafkalogError, NotLeaderOrFollower
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups.group_log import client_code, group_error_code
from kafkalog.server.groups.records import Record
from kafkalog.server.node.topics import SHARE_GROUP_STATE
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.share.state import (
    Change,
    Placed,
    ShareKey,
    ShareState,
    StateReplay,
    changed,
    read_states,
    snapshot_record,
    tombstone,
    update_record,
)
from kafkalog.types import TopicPartition
from kafkalog.util.java_hash import partition_of
from kafkalog.util.shielded import shielded

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

_LOG: Final = logging.getLogger(__name__)


class ShareStateLog:
    """The known states and their records. Only for the event loop's thread.

    A change takes effect once its record is in the log. A state whose last record cannot be read is not served: a
    later version may have completed deliveries in it. Once it `is_closed` nothing is appended, as in `GroupLog`.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._states: dict[ShareKey, Placed] = {}
        self._unreadable: set[ShareKey] = set()
        self._failed: set[int] = set()
        self._loading: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pruning: asyncio.Task[None] | None = None
        self._number = 0
        self.is_closed = False

    # Start and stop

    def start(self) -> None:
        """Start reading the topic in the background."""
        if self._node.topics.get(SHARE_GROUP_STATE) is not None:
            self._loading = asyncio.get_running_loop().create_task(self._load())
        if not self._node.is_read_only:
            self._prune_later()

    async def stop(self) -> None:
        """Cancel reading and pruning; nothing is written afterwards."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._loading, self._pruning):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def loaded(self) -> None:
        """Wait until the topic has been read."""
        if self._loading is not None:
            await shielded(self._loading)

    async def _load(self) -> None:
        topic, states = self._node.topics.get(SHARE_GROUP_STATE), self._states
        for partition in range(0 if topic is None else topic.partitions):
            try:
                log = self._node.replicas.partition(SHARE_GROUP_STATE, partition).log
                replay = await self._node.run(read_states, log)
                if self._states is not states:  # the topic was deleted meanwhile
                    return
                self._add(partition, replay)
            except Exception as error:  # the states of the other partitions are still served
                if self._states is not states:
                    return
                cause = None if isinstance(error, KafkalogError | OSError) else error
                message = "the states of %s-%d cannot be read: %s"
                _LOG.error(message, SHARE_GROUP_STATE, partition, error, exc_info=cause)
                self._failed.add(partition)

    def _add(self, partition: int, replay: StateReplay) -> None:
        for problem in replay.problems:
            _LOG.error("a record of %s-%d cannot be read: %s", SHARE_GROUP_STATE, partition, problem)
        self._states |= replay.states
        self._unreadable |= replay.unreadable

    # Reading

    async def ready(self, key: ShareKey) -> int:
        """Wait for the load, create the topic if it is missing, and return 0 or the error code for the client."""
        await self.loaded()
        if self._node.topics.get(SHARE_GROUP_STATE) is None:
            await self._node.topics.ensure_internal(SHARE_GROUP_STATE)
        return 0 if self._is_readable(key) else int(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _is_readable(self, key: ShareKey) -> bool:
        return key not in self._unreadable and self._place(key).partition not in self._failed

    def get(self, key: ShareKey) -> ShareState | None:
        """Return the state, None if there is none."""
        found = self._states.get(key)
        return None if found is None else found.state

    def placed(self, key: ShareKey) -> Placed | None:
        """Return the state with its number, None if there is none."""
        return self._states.get(key)

    def has_lost(self, key: ShareKey) -> bool:
        """Return True if the log, which has been loaded, was read without a state of this key."""
        return key not in self._states and self._is_readable(key)

    def keys(self, is_wanted: Callable[[ShareKey], bool]) -> list[ShareKey]:
        """Return the keys of the states for which `is_wanted` returns True."""
        return [key for key in self._states if is_wanted(key)]

    # Writing; each raises the append's errors

    def initialize(self, key: ShareKey, state_epoch: int, start: int) -> None:
        """Store a new state that begins at `start`, in place of the present one."""
        now_ms = self._node.clock()
        before = self._states.get(key)
        epoch = 0 if before is None else before.state.snapshot_epoch + 1
        self._snapshot(key, ShareState(epoch, state_epoch, 0, start, -1, now_ms, now_ms), self._next_number())

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def write(self, key: ShareKey, change: Change) -> None:
        """Store a change of a known state: an update, or a snapshot after many updates."""
        before = self._states[key]
        after = changed(before.state, change)
        most = self._node.config["share.coordinator.snapshot.update.records.per.snapshot"]
        if before.updates >= most:
            after = after._replace(snapshot_epoch=after.snapshot_epoch + 1, written_ms=self._node.clock())
            self._snapshot(key, after, before.number)
            return
        self._append(key, update_record(key, after.snapshot_epoch, change))
        self._states[key] = Placed(after, before.offset, before.updates + 1, before.number)

    def write_numbered(self, key: ShareKey, number: int, change: Change) -> int:
        """Store a change of the state that has this number. Return 0, or an error code with nothing done.

        After an error the state has another number: later changes build on the one that failed.
        """
        placed = self._states.get(key)
        if placed is None or placed.number != number:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER  # as a broker calls a fenced state to its clients
        try:
            self.write(key, change)
        except (KafkalogError, OSError) as error:
            _LOG.error("the state of share partition %s cannot be written: %s", key, error)
            self._states[key] = placed._replace(number=self._next_number())
            return group_error_code(error)
        return 0

    def delete(self, keys: Iterable[ShareKey]) -> None:
        """Delete states."""
        for key in list(keys):
            self._append(key, tombstone(key))
            self._states.pop(key, None)

    def clear(self) -> None:
        """Forget all states after the topic was deleted."""
        self._states = {}
        self._unreadable.clear()
        self._failed.clear()

    async def settled(self, keys: Iterable[ShareKey]) -> int:
        """Wait until the records of these states are replicated. Return 0 or the error code for the client."""
        places: set[TopicPartition] = set()
        turns = CooperativeYield()
        for key in keys:
            places.add(self._place(key))
            await turns.row()
        return int(client_code(await self._node.replicas.settled(places))) if places else 0

    def _snapshot(self, key: ShareKey, state: ShareState, number: int) -> None:
        offset = self._append(key, snapshot_record(key, state))
        self._states[key] = Placed(state, offset, 0, number)

    def _append(self, key: ShareKey, record: Record) -> int:
        if self.is_closed:
            raise NotLeaderOrFollower("the coordinator of the share group has stopped")
        batch = encode_ready([record], timestamp=self._node.clock())
        assert batch is not None
        return int(self._node.replicas.append_now(self._place(key), batch, "coordinator"))

    def _place(self, key: ShareKey) -> TopicPartition:
        topic = self._node.topics.get(SHARE_GROUP_STATE)
        count = self._node.topics.internal_partitions(SHARE_GROUP_STATE) if topic is None else topic.partitions
        return TopicPartition(SHARE_GROUP_STATE, partition_of(str(key), count))

    # Pruning

    def _prune_later(self) -> None:
        period_ms = self._node.config["share.coordinator.state.topic.prune.interval.ms"]
        self._timer = self._node.later(period_ms, self._prune_periodically)

    def _prune_periodically(self) -> None:
        self._pruning = asyncio.get_running_loop().create_task(self.prune())
        self._prune_later()

    async def prune(self) -> None:
        """Delete the records that no state needs.

        A state that is old, and behind which much was written, is stored again first: it would hold back all others.
        """
        topic, states = self._node.topics.get(SHARE_GROUP_STATE), self._states
        if topic is None:
            return
        await self.loaded()
        keys_of: dict[TopicPartition, list[ShareKey]] = {}
        ends = self._ends(topic.partitions)  # what other states are stored from now on lies behind
        turns = CooperativeYield()
        for key in tuple(states):
            await turns.row()
            keys_of.setdefault(self._place(key), []).append(key)
        unreadable = {self._place(key) for key in self._unreadable}
        for place, keys in keys_of.items():
            if self._states is not states:  # the topic was deleted meanwhile
                return
            if place in ends and place not in unreadable:
                try:
                    await self._prune_partition(place, keys, ends[place])
                except (KafkalogError, OSError) as error:
                    _LOG.error("old records of %s cannot be deleted: %s", place, error)

    def _ends(self, partitions: int) -> dict[TopicPartition, int]:
        ends = {}
        for number in range(partitions):
            place = TopicPartition(SHARE_GROUP_STATE, number)
            with suppress(KafkalogError):  # it is offline
                ends[place] = self._node.replicas.find(place).log.log_end_offset
        return ends

    async def _prune_partition(self, place: TopicPartition, keys: list[ShareKey], first: int) -> None:
        partition = self._node.replicas.find(place)
        now_ms = self._node.clock()
        old_ms = now_ms - self._node.config["share.coordinator.cold.partition.snapshot.interval.ms"]
        for key in [key for key in keys if key in self._states]:
            state, offset, _, number = self._states[key]
            if state.written_ms < old_ms and offset + 2 * len(keys) < partition.log.log_end_offset:
                state = state._replace(snapshot_epoch=state.snapshot_epoch + 1, written_ms=now_ms)
                self._snapshot(key, state, number)
            first = min(first, self._states[key].offset)
        if first > partition.log.log_start_offset:
            await self._node.run(partition.delete_records, min(first, partition.log.high_watermark))
