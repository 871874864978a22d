"""Requests of classic members of consumer groups (KIP-848), by a coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.groups import mixed
from kafkalog.server.groups.consumer_group import ConsumerGroup
from kafkalog.server.groups.consumer_groups import CLASSIC_SYNC_TIMER, POLICY, REJOIN_TIMER, ConsumerGroups
from kafkalog.server.groups.consumer_heartbeat import HeartbeatResult, VisibleTopics
from kafkalog.server.groups.values import Joined, Joining, Synced, Syncing, new_member_id

if TYPE_CHECKING:
    from kafkalog.server.groups.group_table import GroupTable
    from kafkalog.server.node.node import Node


class MixedGroups:
    """JoinGroup, SyncGroup and Heartbeat of the classic members of consumer groups."""

    def __init__(self, node: Node, table: GroupTable, consumer: ConsumerGroups) -> None:
        self._node = node
        self._table = table
        self._consumer = consumer

    async def join(self, group_id: str, event: Joining) -> Joined:
        """Handle JoinGroup for a consumer group with members. The answer does not wait for the other members."""
        found = await self._consumer.match_patterns(group_id, None)
        group = self._table.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):  # it has become a classic group meanwhile
            return Joined(ErrorCode.REBALANCE_IN_PROGRESS, event.member_id)
        config = self._node.config
        refused = mixed.join_refusal(group, event, config[POLICY], config["group.consumer.max.size"])
        if refused:
            return Joined(refused, "")
        member_id = event.member_id or new_member_id()
        if event.is_id_required and not event.member_id and event.instance_id is None:
            return Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        topics = VisibleTopics(self._node.topics, lambda name: True, found)
        try:
            done = mixed.join(group, event, member_id, topics, self._consumer.id_of, self._consumer.rules())
            self._table.check_room(done)
            self._table.store(done)
            self._joined(done, event)
            if done.records:
                await self._table.require_settled(group_id)
        except Refused as error:
            return Joined(error.code, "")
        return Joined(0, member_id, done.epoch, event.protocol_type, event.protocols[0][0])

    def _joined(self, done: HeartbeatResult, event: Joining) -> None:
        """Restart the member's timers. The group is a classic one if it replaced the last other member."""
        group, member = done.group, done.member
        assert member is not None
        if done.replaced is not None:
            self._consumer.end_timers(group.id, done.replaced)
            if self._consumer.may_downgrade(group, ()):
                self._consumer.downgrade(group, (), rebalances=False)
                return
        self._consumer.watch_session(group.id, member)
        self._table.timers.set(group.id, REJOIN_TIMER + member.id, None)
        self._table.timers.set(group.id, CLASSIC_SYNC_TIMER + member.id, event.rebalance_timeout_ms)

    def sync(self, group: ConsumerGroup, event: Syncing) -> Synced:
        """Handle SyncGroup: return the partitions that the member has at present."""
        synced = mixed.sync(group, event, self._consumer.name_of)
        member = group.members.get(event.member_id)
        if member is not None and not synced.error_code:
            self._table.timers.set(group.id, CLASSIC_SYNC_TIMER + member.id, None)
            self._consumer.watch_session(group.id, member)
        elif member is not None and synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._expect_join(group.id, member.id, member.rebalance_timeout_ms)
        return synced

    def heartbeat(self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> int:
        """Handle a heartbeat of a classic member: it learns from the error code that it has to join again."""
        error = mixed.check_member(group, member_id, instance_id, generation)
        if error:
            return error
        member = group.members[member_id]
        self._consumer.watch_session(group.id, member)
        if not mixed.must_rejoin(group, member):
            return 0
        self._expect_join(group.id, member_id, member.rebalance_timeout_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def _expect_join(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Start the timer until which the member has to join again, unless it runs."""
        if not self._table.timers.has(group_id, REJOIN_TIMER + member_id):
            self._table.timers.set(group_id, REJOIN_TIMER + member_id, timeout_ms)
