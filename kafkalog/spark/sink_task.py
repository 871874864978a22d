"""Task of a write: turns rows into batches of their partitions, in a staged file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kafkalog._core.arrow.input import ArrowSource, BadArrow
from kafkalog._core.arrow.rows import RowPlan
from kafkalog.dirs.create import make_data_directory
from kafkalog.errors import IllegalArgument
from kafkalog.records.placer import Placed, Placer, TopicTarget, arrow_error
from kafkalog.spark.commit import StagedTask, StagedTopic
from kafkalog.spark.sink_options import SinkOptions
from kafkalog.spark.staging import Job, StageWriter
from kafkalog.spark.topic_layout import TopicLayout, read_layout
from kafkalog.types import TopicPartition
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem

if TYPE_CHECKING:
    import pyarrow

BATCH_BYTES: Final = 128 << 10
"""Uncompressed size at which batches are closed."""
WAITING_BYTES: Final = 16 << 20
"""Bytes that all partitions of a task collect before finished batches are taken out."""
_MOST_FIRST: Final = 2**31 - 1


def stage_rows(
    batches: Iterable[pyarrow.RecordBatch],
    options: SinkOptions,
    job: Job,
    batch_id: int,
    task: int,
    attempt: int,
    *,
    fs: FileSystem = OS,
    clock: Clock = SYSTEM_CLOCK,
) -> StagedTask:
    """Stage and sync the rows of one attempt of a task; an error leaves no file.

    Raises the errors of `Placer` for rows, InvalidTopic for an invalid name; StorageError, PartitionNotFound for a data
    directory that cannot exist.
    """
    directory = os.path.realpath(make_data_directory(options.path, fs))
    writer = StageWriter(directory, job, batch_id, task, attempt, fs=fs)
    topics = _Topics(directory, options, fs)
    placer = Placer(
        topics.target, topic=options.topic, batch_bytes=BATCH_BYTES, waiting_bytes=WAITING_BYTES,
        first_partition=(task + batch_id) & _MOST_FIRST, now_ms=clock.milliseconds,
    )  # fmt: skip
    try:
        for batch in batches:
            if batch.num_rows:
                _stage(writer, placer.add(batch))
        _stage(writer, placer.finish())
        return StagedTask(writer.finish(), topics.found())
    except BaseException:
        writer.abandon()
        raise


def _stage(writer: StageWriter, ready: Iterable[Placed]) -> None:
    for one in ready:
        writer.add(TopicPartition(one.topic, one.partition), one.batches, one.records)


def check_columns(schema: pyarrow.Schema, topic: str | None) -> None:
    """Raise IllegalArgument, naming the column and the requirement, unless rows of these columns can be written."""
    import pyarrow

    try:
        source = ArrowSource(pyarrow.RecordBatchReader.from_batches(schema, []))
        plan = RowPlan(source, {} if topic is None else {"topic": None})
    except BadArrow as error:
        raise arrow_error(error) from None
    if topic is None and "topic" not in plan.columns:
        raise IllegalArgument("no topic is named", hint="give the option topic, or a column topic")


class _Topics:
    """Topics in a task's rows, each as it was when it was first met."""

    def __init__(self, directory: str, options: SinkOptions, fs: FileSystem) -> None:
        self._directory = directory
        self._options = options
        self._fs = fs
        self._layouts: dict[str, TopicLayout] = {}

    def target(self, topic: str) -> TopicTarget:
        """Return the target of a topic's rows; errors as for `read_layout`."""
        layout = self._layouts[topic] = read_layout(self._directory, topic, fs=self._fs)
        return TopicTarget.of(layout.config, self._partitions(layout), self._options.compression)

    def found(self) -> dict[str, StagedTopic]:
        """Return the topics that were met, for the commit."""
        return {name: StagedTopic(self._partitions(layout), layout.rules) for name, layout in self._layouts.items()}

    def _partitions(self, layout: TopicLayout) -> int:
        return layout.partitions or self._options.partitions
