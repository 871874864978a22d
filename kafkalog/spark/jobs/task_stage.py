"""What a task of a job stages for a data directory: batches in one file, and their topics as it saw them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafkalog.config import LogConfig
from kafkalog.records.packing import Compression, choose
from kafkalog.records.placer import TopicTarget
from kafkalog.spark.commit import StagedTask, StagedTopic
from kafkalog.spark.staging import ONLY_BATCH, Job, StageWriter
from kafkalog.spark.topic_layout import TopicLayout, read_layout
from kafkalog.types import TopicPartition

__all__ = ["Landing", "StagedFor", "TaskStage", "no_time"]

ANY_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Landing:
    """Where a job's records go: a data directory, as batches of `job`; what new topics and batches are like.

    `partitions` is how many a topic gets that is not there, but for those that `by_topic` has numbers for;
    `compression` is what batches get where a topic lets it.
    """

    directory: str
    job: Job
    partitions: int
    compression: Compression | None
    by_topic: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StagedFor:
    """A topic as records are made for it: its partitions, its settings, its batches' codec."""

    partitions: int
    config: LogConfig
    compression: Compression

    def as_written(self) -> TopicTarget:
        """What rows go by that were records before: any time, since the rules on times are for new records."""
        config = self.config.replace(message_timestamp_after_max_ms=ANY_MS, message_timestamp_before_max_ms=ANY_MS)
        return TopicTarget(self.partitions, config, self.compression)

    def as_copied(self) -> TopicTarget:
        """What rows of one partition go by that keep their offsets: as for a follower, only a segment bounds them."""
        size = self.config.segment_size
        config = LogConfig(max_message_bytes=size, message_timestamp_after_max_ms=ANY_MS).replace(segment_bytes=size)
        return TopicTarget(1, config, self.compression)


class TaskStage:
    """The staged file of one task: a context manager that removes it unless it was finished."""

    def __init__(self, landing: Landing, number: int, *, writer: Callable[..., StageWriter] = StageWriter) -> None:
        self._landing = landing
        self._writer = writer(landing.directory, landing.job, ONLY_BATCH, number, 0)
        self._layouts: dict[str, TopicLayout] = {}
        self._wheres: set[TopicPartition] = set()
        self._done: StagedTask | None = None

    def topic(self, name: str) -> StagedFor:
        """The topic as it is, or as it will be made; InvalidTopic and what else `read_layout` raises."""
        layout = self._layouts.get(name)
        if layout is None:
            layout = self._layouts[name] = read_layout(self._landing.directory, name)
        config = layout.config
        return StagedFor(self.partitions_of(name), config, choose(config, self._landing.compression))

    def partitions_of(self, name: str) -> int:
        """How many partitions the topic has, or is to get."""
        landing = self._landing
        return self._layouts[name].partitions or landing.by_topic.get(name, landing.partitions)

    def add(self, where: TopicPartition, batches: Any) -> None:
        """Stages v2 batches behind those that the partition has; its topic was asked for before. StorageError."""
        self._wheres.add(where)
        self._writer.add(where, batches)

    @property
    def wheres(self) -> frozenset[TopicPartition]:
        """The partitions that have batches."""
        return frozenset(self._wheres)

    def finish(self) -> StagedTask:
        """What to tell the commit; the file is on disk. StorageError."""
        file = self._writer.finish()
        topics: Mapping[str, StagedTopic] = {
            name: StagedTopic(self.partitions_of(name), layout.rules) for name, layout in self._layouts.items()
        }
        self._done = StagedTask(file, topics)
        return self._done

    def __enter__(self) -> TaskStage:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._done is None:
            self._writer.abandon()


def no_time() -> int:
    """What stands for a record's time where it has none: it stays so."""
    return -1
