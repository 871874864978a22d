"""Staging of a task for a data directory: batches in one file, and their topics as the task saw them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog.landing.commit import StagedTask, StagedTopic
from kafkalog.landing.staging import ONLY_BATCH, Job, StageWriter
from kafkalog.landing.targets import StagedFor
from kafkalog.landing.topic_layout import TopicLayout, read_layout
from kafkalog.records.packing import Compression, choose
from kafkalog.records.placer import Placed, TopicTarget
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS, FileSystem

if TYPE_CHECKING:
    from typing_extensions import Buffer


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
    """The staged file of an attempt at a task: a context manager that deletes it unless it was finished."""

    def __init__(
        self, landing: Landing, number: int, *, batch_id: int = ONLY_BATCH, attempt: int = 0, fs: FileSystem = OS
    ) -> None:
        self._landing = landing
        self._fs = fs
        self._writer = StageWriter(landing.directory, landing.job, batch_id, number, attempt, fs=fs)
        self._layouts: dict[str, TopicLayout] = {}
        self._topic_partitions: set[TopicPartition] = set()
        self._done: StagedTask | None = None

    def topic(self, name: str) -> StagedFor:
        """Return the topic as it is or will be created; raise InvalidTopic and the other errors of `read_layout`."""
        layout = self._layouts.get(name)
        if layout is None:
            layout = self._layouts[name] = read_layout(self._landing.directory, name, fs=self._fs)
        config = layout.config
        return StagedFor(self.partitions_of(name), config, choose(config, self._landing.compression))

    def partitions_of(self, name: str) -> int:
        """Return the number of partitions that the topic has or will get."""
        landing = self._landing
        return self._layouts[name].partitions or landing.by_topic.get(name, landing.partitions)

    def target(self, name: str) -> TopicTarget:
        """Return the topic as a target for new records; errors as for `topic`."""
        topic = self.topic(name)
        return TopicTarget(topic.partitions, topic.config, topic.compression)

    def add(self, where: TopicPartition, batches: Buffer, records: int | None = None) -> None:
        """Stage v2 batches after the partition's others; `topic` was called before for their topic. StorageError."""
        self._topic_partitions.add(where)
        self._writer.add(where, batches, records)

    def add_placed(self, placed: Iterable[Placed]) -> None:
        """Stage the batches of a placer, whose targets are topics of this stage."""
        for one in placed:
            self.add(TopicPartition(one.topic, one.partition), one.batches, one.records)

    @property
    def topic_partitions(self) -> frozenset[TopicPartition]:
        """Partitions with batches."""
        return frozenset(self._topic_partitions)

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
