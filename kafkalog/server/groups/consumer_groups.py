"""The consumer groups of a coordinator (KIP-848): heartbeats, session and revocation timeouts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.groups import mixed, records
from kafkalog.server.groups.classic_group import ClassicGroup, State
from kafkalog.server.groups.consumer_group import LEFT, ConsumerGroup, ConsumerMember, MemberState
from kafkalog.server.groups.consumer_heartbeat import (
    Heartbeat,
    HeartbeatResult,
    Rules,
    VisibleTopics,
    delete,
    fence,
    heartbeat,
)
from kafkalog.server.groups.effects import MEMBER_TIMER, Effect
from kafkalog.server.groups.rebalance import begin, session
from kafkalog.server.settings.groups import group_setting
from kafkalog.util.safe_pattern import PatternError

if TYPE_CHECKING:
    from kafkalog.server.groups.classic_groups import ClassicGroups
    from kafkalog.server.groups.group_table import Group, GroupTable
    from kafkalog.server.node.node import Node

_LOG: Final = logging.getLogger(__name__)
POLICY: Final = "group.consumer.migration.policy"
_REVOKE_TIMER: Final = "revoke "
REJOIN_TIMER: Final = "rejoin "
CLASSIC_SYNC_TIMER: Final = "sync "
_TIMERS: Final = {
    MEMBER_TIMER: "session", _REVOKE_TIMER: "revocation", REJOIN_TIMER: "join", CLASSIC_SYNC_TIMER: "sync",
}  # fmt: skip
"""Prefixes of the names of a member's timers, with what they limit."""


class ConsumerGroups:
    """Operations of consumer groups; a group that changes its protocol goes to the classic ones."""

    def __init__(self, node: Node, table: GroupTable, classic: ClassicGroups) -> None:
        self._node = node
        self._table = table
        self._classic = classic

    async def heartbeat(
        self, group_id: str, event: Heartbeat, may_see: Callable[[str], bool] = lambda name: True
    ) -> HeartbeatResult:
        """Handle a heartbeat and return its result. Refused with the code for the client.

        `may_see` returns True for the topics that the member may describe; a pattern matches no others.
        """
        await self._table.require_ready(group_id)
        found = await self.match_patterns(group_id, event.regex)
        topics, rules = VisibleTopics(self._node.topics, may_see, found), self.rules()
        before = self._table.groups.get(group_id)
        group, first_records = self._consumer_group(group_id, before, event, topics, rules)
        done = heartbeat(group, event, topics, rules)
        self._table.check_room(done)
        if event.epoch == LEFT and self.may_downgrade(group, {event.member_id}):
            self.downgrade(group, {event.member_id})
            return done
        self._table.store(done._replace(records=(*first_records, *done.records)))
        if isinstance(before, ClassicGroup):
            self._table.timers.cancel(group_id)
            self._classic.end(before, ErrorCode.REBALANCE_IN_PROGRESS)
            self.watch_all(done.group)
        if done.replaced is not None:
            self.end_timers(group_id, done.replaced)
        self._watch(done, event, group.members.get(event.member_id))
        if done.records or first_records:
            await self._table.require_settled(group_id)
        return done

    def rules(self) -> Rules:
        """Return the settings of consumer groups, and the current time."""
        config = self._node.config
        return Rules(config["group.consumer.assignors"], config["group.consumer.max.size"], self._node.clock())

    def _consumer_group(
        self, group_id: str, group: Group | None, event: Heartbeat, topics: VisibleTopics, rules: Rules
    ) -> tuple[ConsumerGroup, tuple[records.Record, ...]]:
        """Return the group for a heartbeat, and the records that make it a consumer group. Refused if it is none."""
        if isinstance(group, ConsumerGroup):
            return group, ()
        if group is None:
            if event.epoch != 0:
                raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            return ConsumerGroup(group_id), ()
        if isinstance(group, ClassicGroup) and event.epoch == 0:
            if group.state is State.EMPTY:  # not one that waits for ids that it gave out
                return ConsumerGroup(group_id), (records.tombstone(records.CLASSIC_GROUP, group_id),)
            return mixed.upgraded(group, topics, self.id_of, rules, self._node.config[POLICY])
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")

    def id_of(self, name: str) -> UUID | None:
        """Return the id of a topic, or None if there is none of this name."""
        topic = self._node.topics.get(name)
        return None if topic is None else topic.id

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of a topic, or None if there is none of this id."""
        topic = self._node.topics.by_id(topic_id)
        return None if topic is None else topic.name

    def may_downgrade(self, group: ConsumerGroup, leaving: Collection[str]) -> bool:
        """Return True if the group becomes a classic one without these members."""
        config = self._node.config
        return mixed.may_downgrade(group, leaving, config[POLICY], config["group.max.size"])

    def downgrade(self, group: ConsumerGroup, leaving: Collection[str], *, rebalances: bool = True) -> None:
        """Make the group a classic one of the members that stay. Refused, without a change, if it cannot be written."""
        classic, written = mixed.downgraded(group, leaving, self.name_of, self._node.clock())
        self._table.write(group.id, written)
        self._table.timers.cancel(group.id)
        self._table.groups[group.id] = classic
        _LOG.info("group %s: %d classic members are left, and it is a classic group", group.id, len(classic.members))
        effects: list[Effect] = [session(classic, member_id) for member_id in classic.members]
        self._classic.run(classic, effects + begin(classic, self._classic.rules()) if rebalances else effects)

    async def match_patterns(self, group_id: str, pattern: str | None) -> dict[str, frozenset[str] | PatternError]:
        """Return the matching topics of each pattern of the group and of the new `pattern`."""
        found: dict[str, frozenset[str] | PatternError] = {}
        while True:
            group = self._table.groups.get(group_id)
            patterns = group.patterns() if isinstance(group, ConsumerGroup) else set()
            missing = (patterns | {pattern} if pattern else patterns) - found.keys()
            if not missing:
                return found
            found |= await self._node.topic_patterns.of(sorted(missing))  # the group may get another pattern meanwhile

    def _watch(self, done: HeartbeatResult, event: Heartbeat, before: ConsumerMember | None) -> None:
        if done.member is None:
            self.end_timers(done.group.id, event.member_id)
        else:
            self._watch_member(done.group.id, done.member, before)

    def _watch_member(self, group_id: str, member: ConsumerMember, before: ConsumerMember | None = None) -> None:
        self.watch_session(group_id, member)
        if member.is_classic:  # its heartbeats ask it to revoke
            return
        timer = _REVOKE_TIMER + member.id
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._table.timers.set(group_id, timer, None)
        elif before is None or before.revoking != member.revoking or not self._table.timers.has(group_id, timer):
            self._table.timers.set(group_id, timer, member.rebalance_timeout_ms)

    def watch_session(self, group_id: str, member: ConsumerMember) -> None:
        """Restart the timer of a member's session."""
        own = member.classic
        delay_ms = self._session_ms(group_id) if own is None else own.session_timeout_ms
        self._table.timers.set(group_id, MEMBER_TIMER + member.id, delay_ms)

    def _session_ms(self, group_id: str) -> int:
        return int(group_setting(self._node, group_id, "consumer.session.timeout.ms"))

    def end_timers(self, group_id: str, member_id: str) -> None:
        """Stop all timers of a member."""
        for prefix in _TIMERS:
            self._table.timers.set(group_id, prefix + member_id, None)

    def watch_all(self, group: ConsumerGroup) -> None:
        """Start the timers of a loaded group."""
        for member in group.members.values():
            self._watch_member(group.id, member)

    def on_timer(self, group: ConsumerGroup, name: str) -> None:
        """Remove a member whose session timed out, or that did not revoke, join again or ask for partitions in time."""
        prefix = next((one for one in _TIMERS if name.startswith(one)), name)
        member_id = name.removeprefix(prefix)  # only once: a member's id may be "revoke m"
        if prefix in _TIMERS and member_id in group.members:
            _LOG.info("group %s: removing member %s: its %s timed out", group.id, member_id, _TIMERS[prefix])
            self._fence(group, member_id)

    def _fence(self, group: ConsumerGroup, member_id: str) -> int:
        try:
            if self.may_downgrade(group, {member_id}):
                self.downgrade(group, {member_id})
                return 0
            topics = VisibleTopics(self._node.topics, lambda name: True, {})
            self._table.store(fence(group, member_id, topics))
        except Refused as error:
            # retry after another session timeout
            self._table.timers.set(group.id, MEMBER_TIMER + member_id, self._session_ms(group.id))
            return error.code
        self.end_timers(group.id, member_id)
        return 0

    def leave_as_classic(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> int:
        """Handle LeaveGroup for a consumer group: a classic member leaves, or an admin removes any member.

        Return the error code.
        """
        if instance_id is not None:
            holder_id = group.instances.get(instance_id, "")
            if holder_id and member_id not in ("", holder_id):
                return ErrorCode.FENCED_INSTANCE_ID
            member_id = holder_id
        if member_id not in group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return self._fence(group, member_id)

    def forget(self, group: ConsumerGroup) -> None:
        """Delete a group without members, so that a classic one can replace it; its offsets stay.

        Raises the append's errors.
        """
        self._table.remove(group.id, delete(group))
