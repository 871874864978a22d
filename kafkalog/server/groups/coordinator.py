"""The group coordinator of a node: all groups with their timers and pending requests.

It runs on the event loop. The changes of a request are written to `__consumer_offsets` before the request is answered.
At the start, threads of the pool read that topic, one partition after the other; a group is available as soon as its
partition has been read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups import rebalance
from kafkalog.server.groups.classic_group import ClassicGroup
from kafkalog.server.groups.classic_member import held_bytes
from kafkalog.server.groups.consumer_group import ConsumerGroup
from kafkalog.server.groups.effects import JOIN_TIMER, MEMBER_TIMER, SYNC_TIMER, Reply, Waiter
from kafkalog.server.groups.group_base import Group
from kafkalog.server.groups.group_log import OFFSETS_TOPIC, group_error_code
from kafkalog.server.groups.mixed_part import MixedPart
from kafkalog.server.groups.offset_part import OffsetPart
from kafkalog.server.groups.other_group import OtherGroup
from kafkalog.server.groups.share_group import ShareGroup
from kafkalog.server.groups.share_part import SharePart
from kafkalog.server.groups.values import Joined, Joining, KeptPosition, Synced, Syncing
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.groups.replay import Replay
    from kafkalog.server.node.node import Node
    from kafkalog.server.node.topics import Topic

_LOG: Final = logging.getLogger(__name__)


class GroupOverview(NamedTuple):
    """A group in a list: its state by the name reported to clients, and its committed offsets."""

    group_id: str
    protocol_type: str
    group_type: str  # "classic", "consumer", "share" or "streams"
    state: str
    members: int
    offsets: dict[TopicPartition, int]


class GroupCoordinator(OffsetPart, MixedPart, SharePart):
    """The groups of a node. Created by `make`; usable between `start` and `stop`."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._loading: asyncio.Task[None] | None = None

    # Start and stop

    async def start(self) -> None:
        """Start loading the groups in the background."""
        self._node.topics.on_change(self._on_topic)
        topic = self._node.topics.get(OFFSETS_TOPIC)
        positions = () if self._node.is_read_only else self._node.kept_positions
        if topic is not None or positions:
            count = 0 if topic is None else topic.partitions
            self._unloaded = set(range(count))
            self._loading = asyncio.get_running_loop().create_task(self._load(count, positions))
        self._expire_later()

    async def stop(self) -> None:
        """Cancel timers and tasks; answer pending requests with NOT_COORDINATOR."""
        self._node.topics.off_change(self._on_topic)
        self.timers.cancel_all()
        if self._expiry is not None:
            self._expiry.cancel()
        for task in (self._loading, self._expiring, *self.settling):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._disband_all()

    def _disband_all(self) -> None:
        """Answer the pending requests of all groups with NOT_COORDINATOR."""
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                effects = rebalance.disband(group, ErrorCode.NOT_COORDINATOR, self._node.clock())
                self._run(group, [effect for effect in effects if isinstance(effect, Reply)])

    async def loaded(self) -> None:
        """Wait until all of `__consumer_offsets` has been read."""
        if self._loading is not None:
            await asyncio.shield(self._loading)

    async def _load(self, partitions: int, positions: Sequence[KeptPosition]) -> None:
        from kafkalog.server.groups.replay import replay_log  # not needed to start in a new directory

        for partition in range(partitions):
            try:
                log = self._node.replicas.partition(OFFSETS_TOPIC, partition).log
                self._add_replayed(await self._node.run(replay_log, log))
            except Exception as error:  # the groups of the other partitions remain usable
                cause = None if isinstance(error, KafkalogError | OSError) else error
                _LOG.error("the groups of %s-%d cannot be read: %s", OFFSETS_TOPIC, partition, error, exc_info=cause)
                self._failed.add(partition)
            self._unloaded.discard(partition)
        try:
            await self.import_positions(positions)
        except (KafkalogError, OSError) as error:
            _LOG.error("cannot import the positions of named readers: %s", error)

    def _add_replayed(self, replay: Replay) -> None:
        now_ms = self._node.clock()
        unreadable = replay.drop_unreadable()
        if unreadable:
            names = ", ".join(ascii(group_id[:80]) for group_id in sorted(unreadable)[:10])
            _LOG.error("%d groups have unreadable records and are not served: %s", len(unreadable), names)
            self._unreadable |= unreadable
        self.offsets.update(replay.offsets)
        for group_id, fields in replay.classic.items():
            group = self.groups[group_id] = ClassicGroup.of_fields(group_id, fields, now_ms)
            self._run(group, [rebalance.session(group, member_id) for member_id in group.members])
        for group_id, consumers in replay.consumer.items():
            self.groups[group_id] = consumers
            self.memory.put(group_id, consumers.held_bytes)
            self.watch_all(consumers)
        self._add_others(replay.kept_for_broker())
        for group_id in replay.offsets.groups():
            self.groups.setdefault(group_id, ClassicGroup(group_id, now_ms))

    def _add_others(self, others: Mapping[str, OtherGroup]) -> None:
        self.groups.update(others)
        shared = [group for group in others.values() if isinstance(group, ShareGroup)]
        for group in shared:
            self.memory.put(group.id, group.held_bytes)
            self.watch_share_members(group)
        if len(others) > len(shared):
            _LOG.info("%d streams groups of a broker are kept but not served", len(others) - len(shared))

    @property
    def is_loading(self) -> bool:
        """True while partitions of `__consumer_offsets` are still to be read."""
        return bool(self._unloaded)

    # The classic protocol

    async def join(self, group_id: str, event: Joining) -> Joined:
        """Handle JoinGroup; return once the next generation has begun, which may take long."""
        config = self._node.config
        error = await self.ready(group_id)
        lowest, highest = config["group.min.session.timeout.ms"], config["group.max.session.timeout.ms"]
        if not error and not lowest <= event.session_timeout_ms <= highest:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if error:
            return Joined(error, event.member_id)
        group = self.groups.get(group_id)
        if group is None and event.member_id:
            return Joined(ErrorCode.UNKNOWN_MEMBER_ID, event.member_id)
        if isinstance(group, OtherGroup):
            return Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        if isinstance(group, ConsumerGroup):
            if not group.is_empty:
                return await self.join_mixed(group_id, event)
            if not event.protocol_type or not event.protocols:
                return Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, event.member_id)
            self.forget_consumer(group)
            group = None
        if group is None:
            group = ClassicGroup(group_id, self._node.clock())
        refused = self._refusal(group, event)
        if refused:
            return Joined(refused, event.member_id)
        waiter: Waiter = asyncio.get_running_loop().create_future()
        effects = rebalance.join(group, event, waiter, self.classic_rules())
        if group.members or group.pending or self.offsets.has(group_id):
            self.groups[group_id] = group
        self._run(group, effects)
        joined = await waiter
        assert isinstance(joined, Joined)
        return joined

    def _refusal(self, group: ClassicGroup, event: Joining) -> int:
        """Return 0 if there is memory for the member, else an error code; reject a member too large for a record."""
        if max((len(data) for _, data in event.protocols), default=0) > self.log.most_bytes(group.id):
            return ErrorCode.UNKNOWN_SERVER_ERROR  # the error that writing such a record would give all members
        known = group.members.get(event.member_id)
        more = held_bytes(event.protocols) - (0 if known is None else known.held_bytes)
        return 0 if self.memory.has_room(more) else ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def sync(self, group_id: str, event: Syncing) -> Synced:
        """Handle SyncGroup; return once the leader has sent the assignments."""
        error = await self.ready(group_id)
        if error:
            # a rebalance in progress is lost while loading: the member rejoins
            return Synced(ErrorCode.REBALANCE_IN_PROGRESS if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error)
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return self.sync_mixed(group, event)
        if not isinstance(group, ClassicGroup):
            return Synced(ErrorCode.UNKNOWN_MEMBER_ID)
        if not self.memory.has_room(sum(map(len, event.assignments.values())) - group.assignment_bytes):
            return Synced(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._run(group, rebalance.sync(group, event, waiter, self.classic_rules()))
        synced = await waiter
        assert isinstance(synced, Synced)
        return synced

    async def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> int:
        """Handle a heartbeat and return its error code."""
        error = await self.ready(group_id)
        if error:
            return 0 if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return self.heartbeat_mixed(group, member_id, instance_id, generation)
        if not isinstance(group, ClassicGroup):
            return ErrorCode.UNKNOWN_MEMBER_ID
        code, effects = rebalance.heartbeat(group, member_id, instance_id, generation)
        self._run(group, effects)
        return code

    async def leave(self, group_id: str, members: Sequence[tuple[str, str | None]]) -> tuple[int, list[int]]:
        """Remove `members`, each (id, instance id). Return the error code of the request and one for each member."""
        error = await self.ready(group_id)
        if error:
            return error, []
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            if isinstance(group, ConsumerGroup):
                return 0, [self._leave(group_id, *member) for member in members]
            return 0, [int(ErrorCode.UNKNOWN_MEMBER_ID)] * len(members)
        codes = [self._leave(group_id, *member) for member in members]
        self._drop_unused(group)
        return 0, codes

    def _leave(self, group_id: str, member_id: str, instance_id: str | None) -> int:
        """Remove a member; the group may have changed its protocol with the one before."""
        group = self.groups[group_id]
        if isinstance(group, ConsumerGroup):
            return int(self.leave_as_classic(group, member_id, instance_id))
        assert isinstance(group, ClassicGroup)
        code, effects = rebalance.leave(group, member_id, instance_id, self.classic_rules())
        self._run(group, effects)
        return int(code)

    def _drop_unused(self, group: ClassicGroup) -> None:
        """Remove a group that never had a generation and has no members, pending ids or offsets."""
        is_unused = group.is_empty and not group.pending and not group.generation
        if is_unused and not self.offsets.has(group.id) and self.groups.get(group.id) is group:
            self.timers.cancel(group.id)
            del self.groups[group.id]

    def _on_timer(self, group_id: str, name: str) -> None:
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            self.on_consumer_timer(group, name)
        elif isinstance(group, ShareGroup):
            self.on_share_timer(group, name)
        elif isinstance(group, ClassicGroup):
            rules = self.classic_rules()
            if name == JOIN_TIMER:
                self._run(group, rebalance.on_join_timer(group, rules))
            elif name == SYNC_TIMER:
                self._run(group, rebalance.on_sync_timer(group, rules))
            else:
                member_id = name.removeprefix(MEMBER_TIMER)
                if member_id in group.members:
                    _LOG.info("group %s: the session of member %s timed out", group_id, member_id)
                self._run(group, rebalance.on_session_end(group, member_id, rules))
                self._drop_unused(group)

    # All groups

    def overview(self, *, has_offsets: bool = True) -> list[GroupOverview]:
        """Return all groups, by name. Without offsets this is fast even for many groups."""
        return [self.overview_of(self.groups[group_id], has_offsets) for group_id in sorted(self.groups)]

    def overview_of(self, group: Group, has_offsets: bool = True) -> GroupOverview:
        """Return the overview of one group."""
        known = self.offsets.all_of(group.id) if has_offsets else {}
        offsets = {TopicPartition(*place): one.offset for place, one in known.items()}
        if isinstance(group, ClassicGroup):
            return GroupOverview(
                group.id, group.protocol_type or "", "classic", str(group.state), len(group.members), offsets
            )
        kind = str(group.kind) if isinstance(group, OtherGroup) else "consumer"
        return GroupOverview(group.id, kind, kind, str(group.state), len(group.members), offsets)

    async def delete(self, group_id: str) -> int:
        """Delete a group and return the error code.

        NON_EMPTY_GROUP for a group with members or pending ids, and for streams groups.
        """
        error = await self.ready(group_id, is_written=False)
        if error:
            return error
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if isinstance(group, ShareGroup):
            return await self.delete_share_group(group)
        if isinstance(group, OtherGroup) or not group.is_empty or (isinstance(group, ClassicGroup) and group.pending):
            return ErrorCode.NON_EMPTY_GROUP
        try:
            self.forget(group)
        except (KafkalogError, OSError) as failure:
            _LOG.error("group %s cannot be deleted: %s", group_id, failure)
            return group_error_code(failure)
        return 0 if self._node.topics.get(OFFSETS_TOPIC) is None else await self.log.settled(group_id)

    def _on_topic(self, before: Topic | None, after: Topic | None) -> None:
        """React to a topic that was created, changed or deleted."""
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                group.has_current_topics = False
        if before is not None and after is None:
            if before.name == OFFSETS_TOPIC:
                self._forget_all()
            else:
                self.forget_topic(before.name)
                self.forget_shared_topic(before)

    def _forget_all(self) -> None:
        """Remove all groups after `__consumer_offsets` was deleted, as a restart would."""
        _LOG.warning("%s was deleted, along with all %d groups", OFFSETS_TOPIC, len(self.groups))
        self.timers.cancel_all()
        self._disband_all()
        self.groups.clear()
        self.offsets.clear()
        self.memory.clear()
        self._failed.clear()
        self._unreadable.clear()


def make(node: Node) -> GroupCoordinator:
    """Return the group coordinator of a node."""
    return GroupCoordinator(node)
