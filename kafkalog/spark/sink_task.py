"""Task of a write: turns rows into batches of their partitions, in a staged file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkalog._core.arrow.input import ArrowSource, BadArrow
from kafkalog._core.arrow.rows import RowPlan
from kafkalog.dirs.create import make_data_directory
from kafkalog.errors import IllegalArgument
from kafkalog.landing import rows
from kafkalog.landing.commit import StagedTask
from kafkalog.landing.staging import Job
from kafkalog.landing.task_stage import Landing
from kafkalog.records.placer import arrow_error
from kafkalog.spark.sink_options import SinkOptions
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem

if TYPE_CHECKING:
    import pyarrow


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
    landing = Landing(directory, job, options.partitions, options.compression)
    return rows.stage_rows(batches, landing, options.topic, batch_id, task, attempt, fs=fs, clock=clock)


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

