"""What a task of a job stages for a data directory: batches in one file, and their topics as it saw them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafkalog.exchange.targets import StagedFor, no_time
from kafkalog.records.packing import Compression, choose
from kafkalog.spark.commit import StagedTask, StagedTopic
from kafkalog.spark.staging import ONLY_BATCH, Job, StageWriter
from kafkalog.spark.topic_layout import TopicLayout, read_layout
from kafkalog.types import TopicPartition

__all__ = ["Landing", "StagedFor", "TaskStage", "no_time"]

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
