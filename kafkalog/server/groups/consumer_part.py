"""The consumer group part of the coordinator (KIP-848): heartbeats, session and revocation timeouts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups import records
from kafkalog.server.groups.classic_group import ClassicGroup
from kafkalog.server.groups.consumer_group import ConsumerGroup, ConsumerMember, MemberState
from kafkalog.server.groups.consumer_heartbeat import (
    Heartbeat,
    HeartbeatResult,
    Refused,
    Rules,
    VisibleTopics,
    delete,
    fence,
    heartbeat,
)
from kafkalog.server.groups.effects import MEMBER_TIMER
from kafkalog.server.groups.group_base import GroupBase
from kafkalog.server.groups.group_log import group_error_code
from kafkalog.server.groups.other_group import OtherGroup
from kafkalog.server.settings.groups import group_setting
from kafkalog.util.safe_pattern import PatternError

_LOG: Final = logging.getLogger(__name__)
_REVOKE_TIMER: Final = "revoke "


class ConsumerPart(GroupBase):
    """Consumer group operations, mixed into `GroupCoordinator`."""

    async def consumer_heartbeat(
        self, group_id: str, event: Heartbeat, may_see: Callable[[str], bool] = lambda name: True
    ) -> HeartbeatResult:
        """Handle a heartbeat and return its result. Refused with the code for the client.

        `may_see` returns True for the topics that the member may describe; a pattern matches no others.
        """
        error = await self.ready(group_id)
        if error:
            raise Refused(error, ErrorCode(error).message or "")
        found = await self._match_patterns(group_id, event.regex)
        group = self.groups.get(group_id)
        tombstones: tuple[records.Record, ...] = ()
        if isinstance(group, ClassicGroup) and event.epoch == 0 and group.is_empty and not group.pending:
            tombstones = (records.tombstone(records.CLASSIC_GROUP, group_id),)
            group = None
        elif isinstance(group, ClassicGroup | OtherGroup):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        if group is None:
            if event.epoch != 0:
                raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            group = ConsumerGroup(group_id)
        config = self._node.config
        rules = Rules(config["group.consumer.assignors"], config["group.consumer.max.size"], self._node.clock())
        done = heartbeat(group, event, VisibleTopics(self._node.topics, may_see, found), rules)
        before = group.members.get(event.member_id)
        if not self.memory.has_room(done.group.held_bytes - self.memory.of(group_id)):
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The memory limit for group members is reached.")
        self._store(done._replace(records=(*tombstones, *done.records)))
        if done.replaced is not None:
            self._end_timers(group_id, done.replaced)
        self._watch(done, event, before)
        error = await self.log.settled(group_id) if done.records or tombstones else 0
        if error:
            raise Refused(ErrorCode(error), ErrorCode(error).message or "")
        return done

    async def _match_patterns(
        self, group_id: str, pattern: str | None
    ) -> dict[str, frozenset[str] | PatternError]:
        """Return the matching topics of each pattern of the group and of the new `pattern`."""
        found: dict[str, frozenset[str] | PatternError] = {}
        while True:
            group = self.groups.get(group_id)
            patterns = group.patterns() if isinstance(group, ConsumerGroup) else set()
            missing = (patterns | {pattern} if pattern else patterns) - found.keys()
            if not missing:
                return found
            found |= await self._node.topic_patterns.of(sorted(missing))  # the group may get another pattern meanwhile

    def _store(self, done: HeartbeatResult) -> None:
        """Write the records, then store the group. Refused, without a change, if they cannot be written."""
        group_id = done.group.id
        if done.records:
            try:
                self.log.append(group_id, done.records)
            except (KafkalogError, OSError) as error:
                _LOG.error("group %s cannot be written: %s", group_id, error)
                code = ErrorCode(group_error_code(error))
                raise Refused(code, code.message or str(error)) from error
        self.groups[group_id] = done.group
        self.memory.put(group_id, done.group.held_bytes)

    def _watch(self, done: HeartbeatResult, event: Heartbeat, before: ConsumerMember | None) -> None:
        if done.member is None:
            self._end_timers(done.group.id, event.member_id)
        else:
            self._watch_member(done.group.id, done.member, before)

    def _watch_member(self, group_id: str, member: ConsumerMember, before: ConsumerMember | None = None) -> None:
        self.timers.set(group_id, MEMBER_TIMER + member.id, self._session_ms(group_id))
        timer = _REVOKE_TIMER + member.id
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            self.timers.set(group_id, timer, None)
        elif before is None or before.revoking != member.revoking or not self.timers.has(group_id, timer):
            self.timers.set(group_id, timer, member.rebalance_timeout_ms)

    def _session_ms(self, group_id: str) -> int:
        return int(group_setting(self._node, group_id, "consumer.session.timeout.ms"))

    def _end_timers(self, group_id: str, member_id: str) -> None:
        for prefix in (MEMBER_TIMER, _REVOKE_TIMER):
            self.timers.set(group_id, prefix + member_id, None)

    def watch_all(self, group: ConsumerGroup) -> None:
        """Start the timers of a loaded group."""
        for member in group.members.values():
            self._watch_member(group.id, member)

    def on_consumer_timer(self, group: ConsumerGroup, name: str) -> None:
        """Remove a member whose session timed out or that did not revoke its partitions in time."""
        prefix = _REVOKE_TIMER if name.startswith(_REVOKE_TIMER) else MEMBER_TIMER
        member_id = name.removeprefix(prefix)  # only once: a member's id may be "revoke m"
        if name.startswith(prefix) and member_id in group.members:
            reason = "revocation" if prefix == _REVOKE_TIMER else "session"
            _LOG.info("group %s: removing member %s: its %s timed out", group.id, member_id, reason)
            self._fence(group, member_id)

    def _fence(self, group: ConsumerGroup, member_id: str) -> int:
        try:
            self._store(fence(group, member_id))
        except Refused as error:
            # retry after another session timeout
            self.timers.set(group.id, MEMBER_TIMER + member_id, self._session_ms(group.id))
            return error.code
        self._end_timers(group.id, member_id)
        return 0

    def leave_as_classic(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> int:
        """Handle LeaveGroup for a consumer group: an admin removes a member by its id or its instance id.

        Return the error code.
        """
        if instance_id is not None and not member_id:
            member_id = group.instances.get(instance_id, "")
        member = group.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if instance_id is not None and member.instance_id != instance_id:
            return ErrorCode.FENCED_INSTANCE_ID
        return self._fence(group, member_id)

    def forget_consumer(self, group: ConsumerGroup) -> None:
        """Delete a group without members, so that a classic one can replace it; its offsets stay.

        Raises the append's errors.
        """
        self.log.append_many(group.id, delete(group))
        self.timers.cancel(group.id)
        self.memory.put(group.id, 0)
        del self.groups[group.id]
