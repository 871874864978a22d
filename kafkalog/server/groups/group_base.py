"""Base of the coordinator's parts: the groups, their timers, and carrying out effects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups import records
from kafkalog.server.groups.classic_group import ClassicGroup
from kafkalog.server.groups.consumer_group import ConsumerGroup
from kafkalog.server.groups.effects import Effect, Reply, Wake, Write
from kafkalog.server.groups.group_log import OFFSETS_TOPIC, GroupLog, group_error_code
from kafkalog.server.groups.memory_limit import MemoryLimit
from kafkalog.server.groups.offsets import GroupOffsets
from kafkalog.server.groups.other_group import OtherGroup
from kafkalog.server.groups.rebalance import Rules
from kafkalog.server.groups.timers import GroupTimers

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

_LOG: Final = logging.getLogger(__name__)
ServedGroup = ClassicGroup | ConsumerGroup
Group = ServedGroup | OtherGroup


class GroupBase:
    """The loaded groups of a node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.groups: dict[str, Group] = {}
        self.offsets = GroupOffsets()
        self.memory = MemoryLimit(node.config["kafkalog.groups.members.max.bytes"])
        self.log = GroupLog(node)
        self.timers = GroupTimers(node, self._on_timer)
        self._unloaded: set[int] = set()  # partitions that are still to be read
        self._failed: set[int] = set()  # partitions that could not be read
        self._unreadable: set[str] = set()  # groups with records that cannot be read
        self._expiry: asyncio.TimerHandle | None = None
        self._expiring: asyncio.Task[int] | None = None
        self.settling: set[asyncio.Task[None]] = set()  # waits for the replication of groups' records

    async def ready(self, group_id: str, *, is_written: bool = True) -> int:
        """Return 0 if the group is available, else the error code for the client, which retries.

        With `is_written`, create `__consumer_offsets` if it is missing. StorageError if it cannot be created.
        """
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if self._node.topics.get(OFFSETS_TOPIC) is None:
            if not is_written:
                return 0
            await self._node.topics.ensure_internal(OFFSETS_TOPIC)
        partition = self.log.partition_for(group_id)
        if partition in self._unloaded:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        is_known = partition not in self._failed and group_id not in self._unreadable
        return 0 if is_known else ErrorCode.NOT_COORDINATOR

    def partition_for(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` for a group's records."""
        return self.log.partition_for(group_id)

    def classic_rules(self) -> Rules:
        """Return the settings of classic groups, and the current time."""
        config = self._node.config
        return Rules(config["group.initial.rebalance.delay.ms"], config["group.max.size"], self._node.clock())

    def _run(self, group: ClassicGroup, effects: Iterable[Effect]) -> None:
        """Carry out effects, and those that result from them."""
        queue = list(effects)
        while queue:
            effect = queue.pop(0)
            if isinstance(effect, Reply):
                if not effect.waiter.done():  # the client may have disconnected
                    effect.waiter.set_result(effect.answer)
            elif isinstance(effect, Wake):
                self.timers.set(group.id, effect.name, effect.delay_ms)
            else:
                try:
                    self.log.append(group.id, [records.group_record(group.id, effect.fields)])
                    code = 0
                    _LOG.info("group %s: generation %d, %d members", group.id, group.generation, len(group.members))
                except (KafkalogError, OSError) as error:
                    _LOG.error("group %s cannot be written: %s", group.id, error)
                    code = group_error_code(error)
                if code or self.log.is_alone(group.id):
                    queue = [*effect.then(code), *queue]
                else:
                    self._settle_later(group, effect)
        self.memory.put(group.id, group.held_bytes)

    def _settle_later(self, group: ClassicGroup, effect: Write) -> None:
        """Carry out the effects after a record once it is replicated."""
        async def settle() -> None:
            code = await self.log.settled(group.id)
            if self.groups.get(group.id) is group:
                self._run(group, effect.then(code))

        task = asyncio.get_running_loop().create_task(settle())
        self.settling.add(task)
        task.add_done_callback(self.settling.discard)

    def _on_timer(self, group_id: str, name: str) -> None:
        raise NotImplementedError
