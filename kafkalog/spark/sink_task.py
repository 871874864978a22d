"""What a task of a write does: rows become batches of the partitions they are for, in a staged file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from kafkalog._core.arrow_encoder import ArrowEncoder, Parcel
from kafkalog._core.arrow_input import ArrowSource, BadArrow
from kafkalog._core.arrow_rows import RowPlan, next_rows
from kafkalog._core.scan import scan
from kafkalog.config import LogConfig
from kafkalog.creating import make_data_directory
from kafkalog.errors import (
    IllegalArgument,
    InvalidPartitions,
    InvalidTimestamp,
    InvalidTopic,
    KafkalogError,
    RecordTooLarge,
)
from kafkalog.records.packing import Compression, choose, pack
from kafkalog.records.validate import ValidationRules, check_batches
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
"""The size that batches are closed at, before compression."""
WAITING_BYTES: Final = 16 << 20
"""What all partitions of a task gather before finished batches are taken out."""
_KINDS: Final[dict[str, type[KafkalogError]]] = {
    "topic": InvalidTopic, "partition": InvalidPartitions, "timestamp": InvalidTimestamp, "size": RecordTooLarge,
}  # fmt: skip


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
    """The rows of one attempt of a task, staged and on disk; nothing is left of it where this raises.

    IllegalArgument, InvalidTopic, InvalidPartitions, InvalidTimestamp, RecordTooLarge, InvalidRecord name column and
    row of what cannot be written; StorageError, PartitionNotFound for a data directory that cannot be.
    """
    directory = os.path.realpath(make_data_directory(options.path, fs))
    writer = StageWriter(directory, job, batch_id, task, attempt, fs=fs)
    rows = _Rows(directory, options, task, writer, fs, clock)
    try:
        for batch in batches:
            if batch.num_rows:
                rows.add(batch)
        rows.finish()
        return StagedTask(writer.finish(), rows.topics())
    except BadArrow as error:
        writer.abandon()
        raise refusal(error) from None
    except BaseException:
        writer.abandon()
        raise


def check_columns(schema: pyarrow.Schema, topic: str | None) -> None:
    """Returns when rows of these columns can be written; IllegalArgument names the column and what is wanted."""
    import pyarrow

    try:
        plan = RowPlan(ArrowSource(pyarrow.RecordBatchReader.from_batches(schema, [])))
    except BadArrow as error:
        raise refusal(error) from None
    if topic is None and "topic" not in plan.columns:
        raise IllegalArgument("no topic is named", hint="give the option topic, or a column topic")


def refusal(error: BadArrow) -> KafkalogError:
    """The typed error for rows or columns that cannot be records."""
    return _KINDS.get(error.kind, IllegalArgument)(str(error), hint=error.hint)


class _Rows:
    """The rows of a task on their way into its staged file."""

    def __init__(
        self, directory: str, options: SinkOptions, task: int, writer: StageWriter, fs: FileSystem, clock: Clock
    ) -> None:
        self._directory = directory
        self._options = options
        self._writer = writer
        self._fs = fs
        self._clock = clock
        self._layouts: dict[str, TopicLayout] = {}
        self._codecs: dict[str, Compression] = {}
        self._encoder = ArrowEncoder(
            self._resolve, topic=options.topic, first_partition=task, waiting_bytes=WAITING_BYTES
        )
        self._has_times = False

    def add(self, batch: pyarrow.RecordBatch) -> None:
        """Takes the rows of one record batch."""
        source = ArrowSource(batch)
        plan = RowPlan(source)
        self._has_times = "timestamp" in plan.columns
        rows = next_rows(source, plan)
        at, now_ms = 0, self._clock.milliseconds()
        while rows is not None and at < len(rows):
            at = self._encoder.feed(rows, at, now_ms)
            if at < len(rows):
                self._stage()

    def finish(self) -> None:
        """Stages what is left."""
        self._encoder.seal()
        self._stage()

    def topics(self) -> dict[str, StagedTopic]:
        """The topics that were met, as they were found."""
        return {name: StagedTopic(self._partitions(found), found.rules) for name, found in self._layouts.items()}

    def _stage(self) -> None:
        for parcel in self._encoder.take():
            config = self._layouts[parcel.topic].config
            self._check(parcel, config)
            codec = self._codecs[parcel.topic]
            data: Any = parcel
            if codec:
                limit_bytes = min(config.max_message_bytes, config.segment_size)
                data = pack(parcel, codec, limit_bytes=limit_bytes)
            self._writer.add(TopicPartition(parcel.topic, parcel.partition), data)

    def _check(self, parcel: Parcel, config: LogConfig) -> None:
        """InvalidRecord, InvalidTimestamp for records that the topic's settings do not take."""
        if config.compact or self._has_times:
            try:
                check_batches(parcel, scan(parcel, check_crc=False), ValidationRules.of(config),
                              self._clock.milliseconds())  # fmt: skip
            except KafkalogError as error:
                error.path = error.path or os.path.join(self._directory, f"{parcel.topic}-{parcel.partition}")
                raise

    def _resolve(self, topic: str) -> tuple[int, int, int]:
        layout = self._layouts[topic] = read_layout(self._directory, topic, fs=self._fs)
        codec = self._codecs[topic] = choose(layout.config, self._options.compression)
        most = min(layout.config.max_message_bytes, layout.config.segment_size)
        return self._partitions(layout), min(BATCH_BYTES, most), 0 if codec else most

    def _partitions(self, layout: TopicLayout) -> int:
        return layout.partitions or self._options.partitions

