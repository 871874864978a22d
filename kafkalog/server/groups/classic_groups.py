"""The classic groups of a coordinator: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, and carrying out effects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups import rebalance, records
from kafkalog.server.groups.classic_group import ClassicGroup
from kafkalog.server.groups.classic_member import held_bytes
from kafkalog.server.groups.effects import JOIN_TIMER, MEMBER_TIMER, SYNC_TIMER, Effect, Reply, Waiter, Wake, Write
from kafkalog.server.groups.group_log import group_error_code
from kafkalog.server.groups.values import Joined, Joining, Synced, Syncing

if TYPE_CHECKING:
    from kafkalog.server.groups.group_table import GroupTable
    from kafkalog.server.node.node import Node

_LOG: Final = logging.getLogger(__name__)


class ClassicGroups:
    """Operations of classic groups; `settling` are the waits for the replication of their records."""

    def __init__(self, node: Node, table: GroupTable) -> None:
        self._node = node
        self._table = table
        self.settling: set[asyncio.Task[None]] = set()

    def rules(self) -> rebalance.Rules:
        """Return the settings of classic groups, and the current time."""
        config = self._node.config
        return rebalance.Rules(config["group.initial.rebalance.delay.ms"], config["group.max.size"], self._node.clock())

    # Requests

    async def join(self, group_id: str, group: ClassicGroup | None, event: Joining) -> Joined:
        """Handle JoinGroup, which may make a new group; return once the next generation has begun."""
        if group is None:
            group = ClassicGroup(group_id, self._node.clock())
        refused = self._refusal(group, event)
        if refused:
            return Joined(refused, event.member_id)
        waiter: Waiter = asyncio.get_running_loop().create_future()
        effects = rebalance.join(group, event, waiter, self.rules())
        if group.members or group.pending or self._table.offsets.has(group_id):
            self._table.groups[group_id] = group
        self.run(group, effects)
        joined = await waiter
        assert isinstance(joined, Joined)
        return joined

    def _refusal(self, group: ClassicGroup, event: Joining) -> int:
        """Return 0 if there is memory for the member, else an error code; reject a member too large for a record."""
        try:
            most_bytes = self._table.log.most_bytes(group.id)
        except KafkalogError as error:  # the disk of the group's records is offline
            return group_error_code(error)
        if max((len(data) for _, data in event.protocols), default=0) > most_bytes:
            return ErrorCode.UNKNOWN_SERVER_ERROR  # the error that writing such a record would give all members
        known = group.members.get(event.member_id)
        names = event.member_id or event.new_id, event.client_id, event.instance_id
        more = held_bytes(event.protocols, *names) - (0 if known is None else known.held_bytes)
        return 0 if self._table.memory.has_room(more) else ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def sync(self, group: ClassicGroup, event: Syncing) -> Synced:
        """Handle SyncGroup; return once the leader has sent the assignments."""
        if not self._table.memory.has_room(sum(map(len, event.assignments.values())) - group.assignment_bytes):
            return Synced(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self.run(group, rebalance.sync(group, event, waiter, self.rules()))
        synced = await waiter
        assert isinstance(synced, Synced)
        return synced

    def heartbeat(self, group: ClassicGroup, member_id: str, instance_id: str | None, generation: int) -> int:
        """Handle a heartbeat and return its error code."""
        code, effects = rebalance.heartbeat(group, member_id, instance_id, generation)
        self.run(group, effects)
        return code

    def leave(self, group: ClassicGroup, members: Iterable[tuple[str, str | None]]) -> list[int]:
        """Remove members and return an error code for each."""
        codes, effects = rebalance.leave(group, members, self.rules())
        self.run(group, effects)
        self.drop_unused(group)
        return [int(code) for code in codes]

    def drop_unused(self, group: ClassicGroup) -> None:
        """Remove a group that never had a generation and has no members, pending ids or offsets."""
        is_unused = group.is_empty and not group.pending and not group.generation
        if is_unused and not self._table.offsets.has(group.id) and self._table.groups.get(group.id) is group:
            self._table.timers.cancel(group.id)
            del self._table.groups[group.id]

    def watch_all(self, group: ClassicGroup) -> None:
        """Start the timers of a loaded group."""
        self.run(group, [rebalance.session(group, member_id) for member_id in group.members])

    def on_timer(self, group: ClassicGroup, name: str) -> None:
        """End a phase of a rebalance, or the session of a member."""
        if name == JOIN_TIMER:
            self.run(group, rebalance.on_join_timer(group, self.rules()))
        elif name == SYNC_TIMER:
            self.run(group, rebalance.on_sync_timer(group, self.rules()))
        else:
            member_id = name.removeprefix(MEMBER_TIMER)
            if member_id in group.members:
                _LOG.info("group %s: the session of member %s timed out", group.id, member_id)
            self.run(group, rebalance.on_session_end(group, member_id, self.rules()))
            self.drop_unused(group)

    def end(self, group: ClassicGroup, code: ErrorCode) -> None:
        """Answer the pending requests of a group that is no longer served here, or no longer as a classic one."""
        _answer_all(rebalance.disband(group, code, self._node.clock()))

    # Effects

    def run(self, group: ClassicGroup, effects: Iterable[Effect]) -> None:
        """Carry out effects, and those that result from them."""
        queue = list(effects)
        while queue:
            effect = queue.pop(0)
            if isinstance(effect, Reply):
                _answer(effect)
            elif isinstance(effect, Wake):
                self._table.timers.set(group.id, effect.name, effect.delay_ms)
            else:
                code = self._write(group, effect)
                if code or self._table.log.is_alone(group.id):
                    queue = [*effect.then(code), *queue]
                else:
                    self._settle_later(group, effect)
        self._table.memory.put(group.id, group.held_bytes)

    def _write(self, group: ClassicGroup, effect: Write) -> int:
        try:
            self._table.log.append(group.id, [records.group_record(group.id, effect.fields)])
        except (KafkalogError, OSError) as error:
            _LOG.error("group %s cannot be written: %s", group.id, error)
            return group_error_code(error)
        _LOG.info("group %s: generation %d, %d members", group.id, group.generation, len(group.members))
        return 0

    def _settle_later(self, group: ClassicGroup, effect: Write) -> None:
        """Carry out the effects after a record once it is replicated.

        A group that has ended meanwhile, or whose coordinator stops, only answers the requests that wait for it.
        """
        async def settle() -> None:
            try:
                code = await self._table.log.settled(group.id)
            except asyncio.CancelledError:
                _answer_all(effect.then(ErrorCode.NOT_COORDINATOR))
                raise
            if self._table.groups.get(group.id) is group:
                self.run(group, effect.then(code))
            else:
                _answer_all(effect.then(code or ErrorCode.REBALANCE_IN_PROGRESS))

        task = asyncio.get_running_loop().create_task(settle())
        self.settling.add(task)
        task.add_done_callback(self.settling.discard)


def _answer_all(effects: Iterable[Effect]) -> None:
    for effect in effects:
        if isinstance(effect, Reply):
            _answer(effect)


def _answer(reply: Reply) -> None:
    if not reply.waiter.done():  # the client may have disconnected
        reply.waiter.set_result(reply.answer)
