"""A Spark DataFrame whose rows tasks stage, with their results collected by the driver."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from kafkalog.errors import IllegalArgument, KafkalogError
from kafkalog.landing.commit import StagedTask
from kafkalog.landing.staging import ONLY_BATCH, Job
from kafkalog.spark.failures import failed
from kafkalog.spark.progress import Tell, watched
from kafkalog.spark.sink_options import SinkOptions
from kafkalog.spark.sink_task import stage_rows
from kafkalog.spark.tasks import Raised, results

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame


def stage_frame(
    frame: DataFrame, options: SinkOptions, job: Job, tell: Tell | None, *, nulls: bool
) -> list[StagedTask]:
    """Stage the rows of `frame` and return the tasks' results in the order of its partitions; columns are the sink's.

    A null value raises IllegalArgument unless `nulls`. The first KafkalogError of a task is raised; JobFailed for rows
    that Spark cannot read.
    """
    spark = frame.sparkSession
    try:
        with watched(spark, "ingest", tell):
            stage = partial(_stage, options=options, job=job, nulls=nulls)
            rows = frame.mapInArrow(stage, "task int, staged binary").collect()
    except KafkalogError:
        raise
    except Exception as error:
        raise failed(error, "the job 'ingest' failed") from error
    return results(pickle.loads(row["staged"]) for row in sorted(rows, key=lambda row: int(row["task"])))


def _stage(
    batches: Iterable[pyarrow.RecordBatch], *, options: SinkOptions, job: Job, nulls: bool
) -> Iterator[pyarrow.RecordBatch]:
    """Run a task: yield one row with what it staged, or with its error."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    number, attempt = (0, 0) if context is None else (context.partitionId(), context.taskAttemptId())
    result: StagedTask | Raised
    try:
        result = stage_rows(batches if nulls else _without_nulls(batches), options, job, ONLY_BATCH, number, attempt)
    except KafkalogError as error:
        result = Raised(error)
    yield pa.record_batch({"task": pa.array([number], pa.int32()), "staged": pa.array([pickle.dumps(result)])})


def _without_nulls(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Yield the batches; raise IllegalArgument at the first one with a null value."""
    for batch in batches:
        if batch.column("value").null_count:
            raise IllegalArgument(
                "a row has a missing or null value",
                hint="check the column name, or allow nulls, which are Kafka's deletes",
            )
        yield batch
