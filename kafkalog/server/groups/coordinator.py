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
from kafkalog.server.groups.classic_group import ClassicGroup
from kafkalog.server.groups.classic_groups import ClassicGroups
from kafkalog.server.groups.commits import OffsetCommits
from kafkalog.server.groups.consumer_group import ConsumerGroup
from kafkalog.server.groups.consumer_groups import ConsumerGroups
from kafkalog.server.groups.expiry import OffsetExpiry
from kafkalog.server.groups.group_log import OFFSETS_TOPIC, group_error_code
from kafkalog.server.groups.group_table import Group, GroupTable
from kafkalog.server.groups.mixed_groups import MixedGroups
from kafkalog.server.groups.other_group import OtherGroup
from kafkalog.server.groups.share_group import ShareGroup
from kafkalog.server.groups.share_groups import ShareGroups
from kafkalog.server.groups.values import Joined, Joining, KeptPosition, Synced, Syncing
from kafkalog.types import TopicPartition
from kafkalog.util.shielded import shielded

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


class GroupCoordinator:
    """The groups of a node. Usable between `start` and `stop`.

    `table` has the groups, each kind of which has its operations: `classic`, `consumer`, `share`, and `mixed` for the
    classic members of consumer groups. A request of the classic protocol finds out here which of them it is for.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.table = GroupTable(node, self._on_timer)
        self.groups = self.table.groups
        self.offsets = self.table.offsets
        self.classic = ClassicGroups(node, self.table)
        self.consumer = ConsumerGroups(node, self.table, self.classic)
        self.mixed = MixedGroups(node, self.table, self.consumer)
        self.share = ShareGroups(node, self.table)
        self.commits = OffsetCommits(node, self.table, self.classic)
        self.expiry = OffsetExpiry(node, self.table, self.commits)
        self._loading: asyncio.Task[None] | None = None

    # Start and stop

    async def start(self) -> None:
        """Start loading the groups in the background."""
        self._node.topics.on_change(self._on_topic)
        topic = self._node.topics.get(OFFSETS_TOPIC)
        positions = () if self._node.is_read_only else self._node.kept_positions
        if topic is not None or positions:
            count = 0 if topic is None else topic.partitions
            self.table.unloaded.update(range(count))
            self._loading = asyncio.get_running_loop().create_task(self._load(count, positions))
        self.expiry.start()

    async def stop(self) -> None:
        """Cancel timers and tasks; answer pending requests with NOT_COORDINATOR."""
        self.table.log.is_closed = True
        self._node.topics.off_change(self._on_topic)
        self.table.timers.close()
        await self.expiry.stop()
        for task in (self._loading, *self.classic.settling):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._end_classic_groups()

    def _end_classic_groups(self) -> None:
        """Answer the pending requests of all classic groups with NOT_COORDINATOR."""
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                self.classic.end(group, ErrorCode.NOT_COORDINATOR)

    async def loaded(self) -> None:
        """Wait until all of `__consumer_offsets` has been read."""
        if self._loading is not None:
            await shielded(self._loading)

    async def _load(self, partitions: int, positions: Sequence[KeptPosition]) -> None:
        from kafkalog.server.groups.replay import replay_log  # not needed to start in a new directory

        unloaded = self.table.unloaded
        for partition in range(partitions):
            try:
                log = self._node.replicas.partition(OFFSETS_TOPIC, partition).log
                replay = await self._node.run(replay_log, log)
                if partition in unloaded:  # the topic was not deleted meanwhile
                    self._add_replayed(replay)
            except Exception as error:  # the groups of the other partitions remain usable
                if partition in unloaded:
                    cause = None if isinstance(error, KafkalogError | OSError) else error
                    message = "the groups of %s-%d cannot be read: %s"
                    _LOG.error(message, OFFSETS_TOPIC, partition, error, exc_info=cause)
                    self.table.failed.add(partition)
            unloaded.discard(partition)
        try:
            await self.commits.import_positions(positions)
        except (KafkalogError, OSError) as error:
            _LOG.error("cannot import the positions of named readers: %s", error)

    def _add_replayed(self, replay: Replay) -> None:
        now_ms = self._node.clock()
        unreadable = replay.drop_unreadable()
        if unreadable:
            names = ", ".join(ascii(group_id[:80]) for group_id in sorted(unreadable)[:10])
            _LOG.error("%d groups have unreadable records and are not served: %s", len(unreadable), names)
            self.table.unreadable |= unreadable
        self.offsets.update(replay.offsets)
        for group_id, fields in replay.classic.items():
            group = self.groups[group_id] = ClassicGroup.of_fields(group_id, fields, now_ms)
            self.classic.watch_all(group)
        for group_id, consumers in replay.consumer.items():
            self.groups[group_id] = consumers
            self.table.memory.put(group_id, consumers.held_bytes)
            self.consumer.watch_all(consumers)
        self._add_others(replay.kept_for_broker())
        for group_id in replay.offsets.groups():
            self.groups.setdefault(group_id, ClassicGroup(group_id, now_ms))

    def _add_others(self, others: Mapping[str, OtherGroup]) -> None:
        self.groups.update(others)
        shared = [group for group in others.values() if isinstance(group, ShareGroup)]
        for group in shared:
            self.table.memory.put(group.id, group.held_bytes)
            self.share.watch_all(group)
        if len(others) > len(shared):
            _LOG.info("%d streams groups of a broker are kept but not served", len(others) - len(shared))

    @property
    def is_loading(self) -> bool:
        """True while partitions of `__consumer_offsets` are still to be read."""
        return bool(self.table.unloaded)

    def partition_for(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` for a group's records."""
        return self.table.log.partition_for(group_id)

    # The classic protocol

    async def join(self, group_id: str, event: Joining) -> Joined:
        """Handle JoinGroup; return once the next generation has begun, which may take long."""
        config = self._node.config
        error = await self.table.ready(group_id)
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
                return await self.mixed.join(group_id, event)
            if not event.protocol_type or not event.protocols:
                return Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, event.member_id)
            if event.member_id:  # a former member: the group stays as it is
                return Joined(ErrorCode.UNKNOWN_MEMBER_ID, event.member_id)
            try:
                self.consumer.forget(group)
            except (KafkalogError, OSError) as failure:
                _LOG.error("group %s cannot become a classic group: %s", group_id, failure)
                return Joined(group_error_code(failure), event.member_id)
            group = None
            if self.offsets.has(group_id):  # even a client that is refused leaves a group with its offsets
                group = self.groups[group_id] = ClassicGroup(group_id, self._node.clock())
        return await self.classic.join(group_id, group, event)

    async def sync(self, group_id: str, event: Syncing) -> Synced:
        """Handle SyncGroup; return once the leader has sent the assignments."""
        error = await self.table.ready(group_id)
        if error:
            # a rebalance in progress is lost while loading: the member rejoins
            return Synced(ErrorCode.REBALANCE_IN_PROGRESS if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error)
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return self.mixed.sync(group, event)
        if not isinstance(group, ClassicGroup):
            return Synced(ErrorCode.UNKNOWN_MEMBER_ID)
        return await self.classic.sync(group, event)

    async def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> int:
        """Handle a heartbeat and return its error code."""
        error = await self.table.ready(group_id)
        if error:
            return 0 if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return self.mixed.heartbeat(group, member_id, instance_id, generation)
        if not isinstance(group, ClassicGroup):
            return ErrorCode.UNKNOWN_MEMBER_ID
        return self.classic.heartbeat(group, member_id, instance_id, generation)

    async def leave(self, group_id: str, members: Sequence[tuple[str, str | None]]) -> tuple[int, list[int]]:
        """Remove `members`, each (id, instance id). Return the error code of the request and one for each member."""
        error = await self.table.ready(group_id)
        if error:
            return error, []
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return 0, [self._leave(group_id, *member) for member in members]
        if isinstance(group, ClassicGroup):
            return 0, self.classic.leave(group, members)
        return 0, [int(ErrorCode.UNKNOWN_MEMBER_ID)] * len(members)

    def _leave(self, group_id: str, member_id: str, instance_id: str | None) -> int:
        """Remove a member; the group may have changed its protocol with the one before."""
        group = self.groups[group_id]
        if isinstance(group, ConsumerGroup):
            return int(self.consumer.leave_as_classic(group, member_id, instance_id))
        assert isinstance(group, ClassicGroup)
        return self.classic.leave(group, [(member_id, instance_id)])[0]

    def _on_timer(self, group_id: str, name: str) -> None:
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            self.consumer.on_timer(group, name)
        elif isinstance(group, ShareGroup):
            self.share.on_timer(group, name)
        elif isinstance(group, ClassicGroup):
            self.classic.on_timer(group, name)

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

        NON_EMPTY_GROUP for a group with members, and for streams groups.
        """
        error = await self.table.ready(group_id, is_written=False, needs_id=False)
        if error:
            return error
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if isinstance(group, ShareGroup):
            return await self.share.delete(group)
        if isinstance(group, OtherGroup) or not group.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        try:
            self.commits.forget(group)
        except (KafkalogError, OSError) as failure:
            _LOG.error("group %s cannot be deleted: %s", group_id, failure)
            return group_error_code(failure)
        return 0 if self._node.topics.get(OFFSETS_TOPIC) is None else await self.table.log.settled(group_id)

    def _on_topic(self, before: Topic | None, after: Topic | None) -> None:
        """React to a topic that was created, changed or deleted."""
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                group.has_current_topics = False
        if before is not None and after is None:
            if before.name == OFFSETS_TOPIC:
                self._forget_all()
            else:
                self.commits.forget_topic(before.name)
                self.share.forget_topic(before)

    def _forget_all(self) -> None:
        """Remove all groups after `__consumer_offsets` was deleted, as a restart would."""
        _LOG.warning("%s was deleted, along with all %d groups", OFFSETS_TOPIC, len(self.groups))
        self.table.timers.cancel_all()
        self._end_classic_groups()
        self.table.clear()
