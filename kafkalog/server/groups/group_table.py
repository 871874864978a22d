"""The groups of a coordinator with what is kept for them: offsets, log, timers, memory, and which can be served."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode, Refused, refuse
from kafkalog.server.groups.classic_group import ClassicGroup
from kafkalog.server.groups.consumer_group import ConsumerGroup
from kafkalog.server.groups.group_log import OFFSETS_TOPIC, GroupLog, group_error_code
from kafkalog.server.groups.memory_limit import MemoryLimit
from kafkalog.server.groups.offsets import GroupOffsets
from kafkalog.server.groups.other_group import OtherGroup
from kafkalog.server.groups.timers import GroupTimers

if TYPE_CHECKING:
    from kafkalog.server.groups.consumer_heartbeat import HeartbeatResult
    from kafkalog.server.groups.records import Record
    from kafkalog.server.groups.share_heartbeat import ShareResult
    from kafkalog.server.node.node import Node

_LOG: Final = logging.getLogger(__name__)
ServedGroup = ClassicGroup | ConsumerGroup
Group = ServedGroup | OtherGroup


class GroupTable:
    """The loaded groups of a node; `unloaded` are the partitions of the log that are still to be read."""

    def __init__(self, node: Node, on_timer: Callable[[str, str], object]) -> None:
        self._node = node
        self.groups: dict[str, Group] = {}
        self.offsets = GroupOffsets()
        self.memory = MemoryLimit(node.config["kafkalog.groups.members.max.bytes"])
        self.log = GroupLog(node)
        self.timers = GroupTimers(node, on_timer)
        self.unloaded: set[int] = set()
        self.failed: set[int] = set()  # partitions that could not be read
        self.unreadable: set[str] = set()  # groups with records that cannot be read

    async def ready(self, group_id: str, *, is_written: bool = True, needs_id: bool = True) -> int:
        """Return 0 if the group is available, else the error code for the client, which retries.

        With `is_written`, create `__consumer_offsets` if it is missing. StorageError if it cannot be created. Without
        `needs_id` the empty group id is one as any other: it may have offsets, but no members.
        """
        if needs_id and not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if self._node.topics.get(OFFSETS_TOPIC) is None:
            if not is_written:
                return 0
            await self._node.topics.ensure_internal(OFFSETS_TOPIC)
        if self.log.is_closed:  # a member would get a generation, or wait for others without an end
            return ErrorCode.NOT_COORDINATOR
        if self.is_unloaded(group_id):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        is_known = self.log.partition_for(group_id) not in self.failed and group_id not in self.unreadable
        return 0 if is_known else ErrorCode.NOT_COORDINATOR

    async def require_ready(self, group_id: str) -> None:
        """Raise Refused unless the group is available. Raises as `ready`."""
        refuse(await self.ready(group_id))

    async def require_settled(self, group_id: str) -> None:
        """Wait until the group's records are replicated. Raise Refused if they cannot be."""
        refuse(await self.log.settled(group_id))

    def check_room(self, done: HeartbeatResult | ShareResult) -> None:
        """Raise Refused if there is no memory for a changed group."""
        if not self.memory.has_room(done.group.held_bytes - self.memory.of(done.group.id)):
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The memory limit for group members is reached.")

    def write(self, group_id: str, records: Sequence[Record]) -> None:
        """Write a group's records. Raise Refused if they cannot be written."""
        try:
            self.log.append(group_id, records)
        except (KafkalogError, OSError) as error:
            _LOG.error("group %s cannot be written: %s", group_id, error)
            code = ErrorCode(group_error_code(error))
            raise Refused(code, code.message or str(error)) from error

    def store(self, done: HeartbeatResult | ShareResult) -> None:
        """Write the records of a change, then store the group. Refused, without a change, if they cannot be written."""
        if done.records:
            self.write(done.group.id, done.records)
        self.groups[done.group.id] = done.group
        self.memory.put(done.group.id, done.group.held_bytes)

    def is_unloaded(self, group_id: str) -> bool:
        """Return True if the records of the group are still to be read."""
        return self.log.partition_for(group_id) in self.unloaded

    def remove(self, group_id: str, tombstones: Iterable[Record]) -> None:
        """Write the tombstones of a group without members, then remove it; its offsets stay.

        Raises the append's errors.
        """
        self.log.append_many(group_id, list(tombstones))
        self.timers.cancel(group_id)
        self.memory.put(group_id, 0)
        self.groups.pop(group_id, None)

    def clear(self) -> None:
        """Remove all groups, also those that are still to be read."""
        self.groups.clear()
        self.offsets.clear()
        self.memory.clear()
        self.unloaded.clear()
        self.failed.clear()
        self.unreadable.clear()
