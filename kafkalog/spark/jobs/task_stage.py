"""Staging of a job's task for a data directory: batches in one file, and their topics as the task saw them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog.exchange.targets import StagedFor, no_time
from kafkalog.records.packing import Compression, choose
from kafkalog.spark.commit import StagedTask, StagedTopic
from kafkalog.spark.staging import ONLY_BATCH, Job, StageWriter
from kafkalog.spark.topic_layout import TopicLayout, read_layout
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Landing", "StagedFor", "TaskStage", "no_time"]

@dataclass(frozen=True, slots=True)
class Landing:
    """Destination of a job's records: a data directory, with the settings of new topics and batches of `job`.

    `partitions` is the number for a new topic, except those with a number in `by_topic`. `compression` applies to
    batches of topics that allow it.
    """

    directory: str
    job: Job
    partitions: int
    compression: Compression | None
    by_topic: Mapping[str, int] = field(default_factory=dict)


class TaskStage:
    """The staged file of one task: a context manager that deletes it unless it was finished."""

    def __init__(self, landing: Landing, number: int, *, writer: Callable[..., StageWriter] = StageWriter) -> None:
        self._landing = landing
        self._writer = writer(landing.directory, landing.job, ONLY_BATCH, number, 0)
        self._layouts: dict[str, TopicLayout] = {}
        self._wheres: set[TopicPartition] = set()
        self._done: StagedTask | None = None

    def topic(self, name: str) -> StagedFor:
        """Return the topic as it is or will be created; raise InvalidTopic and the other errors of `read_layout`."""
        layout = self._layouts.get(name)
        if layout is None:
            layout = self._layouts[name] = read_layout(self._landing.directory, name)
        config = layout.config
        return StagedFor(self.partitions_of(name), config, choose(config, self._landing.compression))

    def partitions_of(self, name: str) -> int:
        """Return the number of partitions that the topic has or will get."""
        landing = self._landing
        return self._layouts[name].partitions or landing.by_topic.get(name, landing.partitions)

    def add(self, where: TopicPartition, batches: Buffer) -> None:
        """Stage v2 batches after the partition's others; `topic` was called before for their topic. StorageError."""
        self._wheres.add(where)
        self._writer.add(where, batches)

    @property
    def wheres(self) -> frozenset[TopicPartition]:
        """Partitions with batches."""
        return frozenset(self._wheres)

    def finish(self) -> StagedTask:
        """Finish and sync the file; return what to report to the commit. Raises StorageError."""
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
