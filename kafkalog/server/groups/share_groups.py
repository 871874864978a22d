"""The share groups of a coordinator (KIP-932): heartbeats, session timeouts, deletion, and states by offset."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode, Refused, refuse
from kafkalog.server.groups import share_heartbeat as heartbeats
from kafkalog.server.groups.consumer_group import LEFT
from kafkalog.server.groups.effects import MEMBER_TIMER
from kafkalog.server.groups.group_log import group_error_code
from kafkalog.server.groups.share_group import FIRST_EPOCH, SharedTopic, ShareGroup
from kafkalog.server.groups.share_heartbeat import ShareHeartbeat, ShareResult, ShareRules
from kafkalog.server.settings.groups import group_setting
from kafkalog.server.share.state import UNKNOWN_START, ShareKey

if TYPE_CHECKING:
    from kafkalog.server.groups.group_table import GroupTable
    from kafkalog.server.node.node import Node
    from kafkalog.server.node.topics import Topic

_LOG: Final = logging.getLogger(__name__)


class ShareGroups:
    """Operations of share groups; the states of their partitions are those of `node.shares`."""

    def __init__(self, node: Node, table: GroupTable) -> None:
        self._node = node
        self._table = table

    async def heartbeat(self, group_id: str, event: ShareHeartbeat) -> ShareResult:
        """Handle a heartbeat and return its result. Refused with the code for the client."""
        await self._table.require_ready(group_id)
        if event.epoch == LEFT and group_id not in self._table.groups:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        group = self.group(group_id, is_new=event.epoch == 0)
        if event.epoch == LEFT:
            return await self._keep(heartbeats.leave(group, event), event.member_id)
        rules = ShareRules(self._node.config["group.share.max.size"], self._node.clock())
        member = heartbeats.subscribed(heartbeats.check_member(group, event, rules), event)
        await self._initialize(group, group.subscribed_topics() | member.topics)
        group = self.group(group_id, is_new=event.epoch == 0)  # another member may have changed it meanwhile
        topics = self._shared(group.subscribed_topics() | member.topics)
        done = heartbeats.share_heartbeat(group, event, topics, rules)
        self._table.check_room(done)
        return await self._keep(done, event.member_id)

    def group(self, group_id: str, *, is_new: bool = False) -> ShareGroup:
        """Return a share group, or a new one if `is_new` and there is none. Refused if none, or of another kind."""
        group = self._table.groups.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        if group is not None:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        if not is_new:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        return ShareGroup(group_id, epoch=FIRST_EPOCH)

    def _shared(self, names: Iterable[str]) -> dict[UUID, SharedTopic]:
        """Return those of these topics that exist, with all of their partitions."""
        found = (self._node.topics.get(name) for name in names)
        return {one.id: SharedTopic(one.name, frozenset(range(one.partitions))) for one in found if one is not None}

    async def _initialize(self, group: ShareGroup, names: frozenset[str]) -> None:
        """Store states for partitions of these topics that have none, before anyone is assigned them."""
        await self._node.shares.log.loaded()
        if not self._missing(group, names):
            return
        async with self._node.shares.initializing:
            group = self.group(group.id, is_new=True)  # another member may have changed it meanwhile
            missing = self._missing(group, names)
            starts = {
                ShareKey(group.id, topic_id, number): UNKNOWN_START
                for topic_id, topic in missing.items() for number in sorted(topic.partitions)
            }  # fmt: skip
            if starts:
                await self._store_states(starts, (group.epoch or FIRST_EPOCH) + 1)
                group = self.group(group.id, is_new=True)
                self._table.store(heartbeats.initialized(group, missing))

    def _missing(self, group: ShareGroup, names: frozenset[str]) -> dict[UUID, SharedTopic]:
        log = self._node.shares.log
        return heartbeats.missing_states(
            group, self._shared(names), lambda topic_id, number: log.has_lost(ShareKey(group.id, topic_id, number))
        )

    async def _store_states(self, starts: Mapping[ShareKey, int], state_epoch: int) -> None:
        try:
            error = await self._node.shares.initialize(starts, state_epoch)
        except (KafkalogError, OSError) as failure:
            error = group_error_code(failure)
        refuse(error)

    async def _keep(self, done: ShareResult, member_id: str) -> ShareResult:
        """Store the group; watch the sender, or end its session if it left; wait until the records are replicated."""
        self._table.store(done)
        if done.member is None:
            self._end_session(done.group.id, member_id)
        else:
            self._watch_session(done.group.id, member_id)
        if done.records:
            await self._table.require_settled(done.group.id)
        return done

    def _watch_session(self, group_id: str, member_id: str) -> None:
        delay_ms = group_setting(self._node, group_id, "share.session.timeout.ms")
        self._table.timers.set(group_id, MEMBER_TIMER + member_id, int(delay_ms))

    def _end_session(self, group_id: str, member_id: str) -> None:
        self._table.timers.set(group_id, MEMBER_TIMER + member_id, None)
        self._node.shares.member_gone(group_id, member_id)

    def watch_all(self, group: ShareGroup) -> None:
        """Start the timers of a loaded group."""
        for member_id in group.members:
            self._watch_session(group.id, member_id)

    def on_timer(self, group: ShareGroup, name: str) -> None:
        """Remove a member whose session timed out."""
        member_id = name.removeprefix(MEMBER_TIMER)
        if member_id not in group.members:
            return
        _LOG.info("group %s: removing member %s: its session timed out", group.id, member_id)
        try:
            self._table.store(heartbeats.left(group, member_id))
        except Refused:
            self._watch_session(group.id, member_id)  # retry after another session timeout
        else:
            self._end_session(group.id, member_id)

    # States

    async def empty_group(self, group_id: str, *, is_new: bool = False) -> ShareGroup:
        """Return a share group without members; one that does not exist if `is_new`. Refused."""
        await self._table.require_ready(group_id)
        if not is_new and group_id not in self._table.groups:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        group = self.group(group_id, is_new=is_new)
        if not group.is_empty:
            refuse(ErrorCode.NON_EMPTY_GROUP)
        return group

    async def alter_offsets(self, group_id: str, offsets: Mapping[tuple[Topic, int], int]) -> None:
        """Let a group without members, which may be new, begin at these offsets. Refused."""
        async with self._node.shares.initializing:  # a member that joins would store new states over these
            await self._alter_offsets(group_id, offsets)

    async def _alter_offsets(self, group_id: str, offsets: Mapping[tuple[Topic, int], int]) -> None:
        group = await self.empty_group(group_id, is_new=True)
        starts = {ShareKey(group_id, topic.id, number): offset for (topic, number), offset in offsets.items()}
        if not starts:
            return
        await self._store_states(starts, (group.epoch or FIRST_EPOCH) + 1)
        group = await self.empty_group(group_id, is_new=True)
        added: dict[UUID, SharedTopic] = {}
        for topic, number in offsets:
            known = added.get(topic.id, SharedTopic(topic.name, frozenset()))
            added[topic.id] = known._replace(partitions=known.partitions | {number})
        # without a record of its own, a group that never had a member would be gone after a restart
        self._table.store(heartbeats.initialized(group, added, begins=group.epoch == FIRST_EPOCH))
        await self._table.require_settled(group_id)

    async def delete_offsets(self, group_id: str, topic_ids: frozenset[UUID]) -> None:
        """Delete the states of topics of a group without members. Refused."""
        group = await self.empty_group(group_id)
        self._table.store(heartbeats.without_topics(group, topic_ids))
        await self._delete_states(group, topic_ids)
        await self._table.require_settled(group_id)

    async def _delete_states(self, group: ShareGroup, topic_ids: frozenset[UUID]) -> None:
        """Delete states that the group no longer has. If this is interrupted, they are overwritten when it has them."""
        keys = [
            ShareKey(group.id, topic_id, number)
            for topic_id in topic_ids & group.topics.keys() for number in group.topics[topic_id].partitions
        ]  # fmt: skip
        try:
            error = await self._node.shares.delete(keys)
        except (KafkalogError, OSError) as failure:
            error = group_error_code(failure)
        refuse(error)

    async def delete(self, group: ShareGroup) -> int:
        """Delete a group without members, with its states. Return the error code."""
        if not group.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        try:
            self._table.remove(group.id, heartbeats.tombstones(group))
        except (KafkalogError, OSError) as failure:
            _LOG.error("group %s cannot be deleted: %s", group.id, failure)
            return group_error_code(failure)
        try:
            await self._delete_states(group, frozenset(group.topics))
        except Refused as refusal:
            return refusal.code
        return await self._table.log.settled(group.id)

    def forget_topic(self, topic: Topic) -> None:
        """Remove a deleted topic from all share groups; its states are deleted by `shares`."""
        for group in list(self._table.groups.values()):
            if isinstance(group, ShareGroup) and topic.id in group.topics:
                try:
                    self._table.store(heartbeats.without_topics(group, frozenset({topic.id})))
                except Refused as error:
                    _LOG.error("topic %s cannot be removed from share group %s: %s", topic.name, group.id, error)
