"""The interface of targets, and the facts about a partition that a runner passes to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kafkalog.copy.facts import SourcePartition, SourceTopic
from kafkalog.copy.mapping import OffsetMap
from kafkalog.copy.report import CopiedPartition, NotKept
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.copy.backup_target import BackupTarget
    from kafkalog.copy.cluster_target import ClusterTarget
    from kafkalog.copy.directory_target import DirectoryTarget
    from kafkalog.copy.sources import Source

    Target: TypeAlias = "BackupTarget | ClusterTarget | DirectoryTarget"
    """The destination of a copy. Every call may be repeated after a kill, with the same result."""

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
