"""The interface of targets, and the facts about a partition that a runner passes to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from kafkalog.copy.facts import SourcePartition, SourceTopic, TargetTopic, TargetTraits
from kafkalog.copy.mapping import OffsetMap
from kafkalog.copy.plan import TopicPlan
from kafkalog.copy.report import CopiedPartition, NotKept
from kafkalog.copy.sources import Source
from kafkalog.types import TopicPartition

GroupOffsets = Mapping[str, Mapping[TopicPartition, int]]
"""Offsets to commit, by group and partition, as the target counts them."""


class PartitionJob(NamedTuple):
    """A partition to copy: its topic, its facts, the source, and the options.

    `lowest_group_offset` is the lowest offset that a group has committed; None if no group has one. `progress` is
    called with the bytes written. After `is_stopped()` the copy ends with the current batch.
    """

    key: TopicPartition
    topic: SourceTopic
    facts: SourcePartition
    source: Source
    offsets: str
    isolation: str
    lowest_group_offset: int | None
    progress: Callable[[int], object]
    is_stopped: Callable[[], bool] = lambda: False


class Copied(NamedTuple):
    """Result of a partition: its report, its offsets in the target, and unexpected losses.

    `map` is None if every offset is the same; the map has no offsets below `unmapped`.
    """

    report: CopiedPartition
    map: OffsetMap | None
    not_kept: tuple[NotKept, ...] = ()
    unmapped: int | None = None

    def translate(self, offset: int) -> int | None:
        """Return a group's offset in the target, at most its end; None if it is unknown."""
        if self.map is None:
            return min(offset, self.report.end)
        if self.unmapped is not None and offset < self.unmapped:
            return None
        return self.map.translate(offset)


class Target(Protocol):
    """The destination of a copy. Every call may be repeated after a kill, with the same result."""

    traits: TargetTraits

    async def existing(self, names: Sequence[str]) -> dict[str, TargetTopic]:
        """Return those of the topics that exist."""

    async def check(self, plan: TopicPlan) -> None:
        """Raise the error that `create` would, without a change."""

    async def create(self, plan: TopicPlan) -> None:
        """Create the topic, or the rest of its partitions."""

    async def copy(self, job: PartitionJob) -> Copied:
        """Copy the records of a partition that the target lacks; on return they are durable."""

    async def commit(self, offsets: GroupOffsets) -> dict[str, str]:
        """Commit groups' offsets unless these are ahead already; return the skipped groups with their reasons."""

    async def committed(self, group: str, keys: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets that a group has in the target, by partition."""

    async def finish(self) -> None:
        """Make what was copied and committed visible, if that takes a separate step."""

    async def close(self) -> None:
        """Release files, locks and connections."""
