"""The sink's Spark interface: tasks stage, the driver's commit appends. `commit` documents the guarantees."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kafkalog.errors import IllegalArgument, IllegalState
from kafkalog.landing.commit import Committer, StagedTask
from kafkalog.landing.staging import Job
from kafkalog.spark.sink_task import stage_rows

if TYPE_CHECKING:
    import pyarrow

    from kafkalog.spark.sink_options import SinkOptions

_BATCH: Final = 0
"""Batch number of a job with only one batch."""
_QUERY_PROPERTY: Final = "sql.streaming.queryId"
_BATCH_PROPERTY: Final = "streaming.sql.batchId"


@dataclass
class Staged(WriterCommitMessage):
    """Output of one attempt of a task, with its job and batch."""

    job: Job
    batch_id: int
    task: StagedTask


def refuse_overwrite() -> IllegalArgument:
    """Return the error for a batch write that is not an append, which Spark's Kafka sink also rejects."""
    return IllegalArgument(
        "save mode overwrite is not allowed for kafkalog, which only appends to logs",
        hint="use mode('append'); to replace a topic's records, delete it first (`kafkalog topics delete --apply`)",
    )


def _committer(options: SinkOptions) -> Committer:
    return Committer(options.path, lock_wait_ms=options.lock_wait_ms, staging_age_ms=options.staging_age_ms)


def _tasks(messages: Sequence[WriterCommitMessage | None]) -> list[StagedTask]:
    """Return what the tasks staged, in their order; raise IllegalState if one of them sent no message."""
    tasks = []
    for number, message in enumerate(messages):
        if not isinstance(message, Staged):
            raise IllegalState(f"task {number} did not report what it staged", hint="run the write again")
        tasks.append(message.task)
    return tasks


class BatchSink(DataSourceArrowWriter):
    """A batch write: one job, by its `jobId` or a random id."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.job = Job.batch(options.job_id or str(uuid.uuid4()))

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        context = TaskContext.get()
        assert context is not None
        task, attempt = context.partitionId(), context.taskAttemptId()
        return Staged(self.job, _BATCH, stage_rows(iterator, self.options, self.job, _BATCH, task, attempt))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append what the tasks staged; skip a `jobId` that landed before."""
        keep = self.options.job_id is not None
        _committer(self.options).commit(self.job, _BATCH, _tasks(messages), keep=keep)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what the job staged, unless it is decided."""
        _committer(self.options).abort(self.job, _BATCH)


class StreamSink(DataSourceStreamArrowWriter):
    """A streaming write: batches by query and number, which tasks find in their context."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task of a batch."""
        context = TaskContext.get()
        assert context is not None
        query, number = context.getLocalProperty(_QUERY_PROPERTY), context.getLocalProperty(_BATCH_PROPERTY)
        if query is None or number is None:
            raise IllegalState(
                "Spark did not give the task its query and batch",
                hint="this version of PySpark is not supported: pip install 'kafkalog[spark]' installs one that is",
            )
        job, batch_id = Job.query(query), int(number)
        task, attempt = context.partitionId(), context.taskAttemptId()
        return Staged(job, batch_id, stage_rows(iterator, self.options, job, batch_id, task, attempt))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Append what the tasks of a batch staged; skip a batch that landed before."""
        tasks = _tasks(messages)
        job = _job_of(messages, batchId)
        if job is not None:
            _committer(self.options).commit(job, batchId, tasks)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete what a batch staged, unless it is decided; without a message the query is unknown and files expire."""
        job = _job_of(messages, batchId)
        if job is not None:
            _committer(self.options).abort(job, batchId)


def _job_of(messages: Sequence[WriterCommitMessage | None], batch_id: int) -> Job | None:
    """Return the query of the batch; None without a message. Raises IllegalState if tasks disagree."""
    batches = {(message.job, message.batch_id) for message in messages if isinstance(message, Staged)}
    if not batches:
        return None
    (job, number), *others = batches
    if others or number != batch_id:
        raise IllegalState(f"tasks staged batch {number} of {job}, but batch {batch_id} is committed")
    return job
