"""The job `ingest`: files of text, CSV, JSON lines and Parquet to topics, once for each job id.

Tasks turn lines into batches in their own processes; Spark reads rows and passes them to tasks as Arrow batches. Tasks
stage their output, and the driver's commit appends it in their order.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.dirs.create import make_data_directory
from kafkalog.errors import IllegalArgument, InvalidPartitions, KafkalogError
from kafkalog.landing.commit import Committed, Committer, StagedTask
from kafkalog.landing.ledger import read_ledger
from kafkalog.landing.staging import ONLY_BATCH, Job
from kafkalog.landing.task_stage import Landing
from kafkalog.manager.topics import check_partitions
from kafkalog.records.packing import PLAIN, parse_compression
from kafkalog.spark.executors import check_executors
from kafkalog.spark.failures import failed
from kafkalog.spark.jobs.frames import stage_frame
from kafkalog.spark.jobs.row_columns import FORMATS, RowColumns, format_of, records_of, rows_of
from kafkalog.spark.jobs.text_lines import (
    BATCH_BYTES,
    SPLIT_BYTES,
    TextOptions,
    check_text,
    files_of,
    stage_lines,
    text_tasks,
)
from kafkalog.spark.progress import Tell
from kafkalog.spark.row_schema import arrow_of
from kafkalog.spark.sink_options import SinkOptions
from kafkalog.spark.sink_task import check_columns
from kafkalog.spark.tasks import results, run_tasks
from kafkalog.storage.names import validate_topic
from kafkalog.tools.directories import Path, path_list

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_COLUMNS = RowColumns()
MAX_PARTITIONS: Final = 100_000


class IngestReport(NamedTuple):
    """Records that one run appended and their files; `landed` is False if the job's records were there before."""

    records: int
    files: int
    landed: bool
    job_id: str


def ingest(
    spark: SparkSession,
    sources: Path | Iterable[Path],
    data: Path,
    topic: str | None = None,
    *,
    format: str | None = None,
    columns: RowColumns = NO_COLUMNS,
    header: bool = True,
    separator: str = ",",
    delimiter: bytes = b"\n",
    key_delimiter: bytes | None = None,
    partitions: int = 1,
    compression: str | None = None,
    nulls: bool = False,
    job_id: str | None = None,
    batch_bytes: int = BATCH_BYTES,
    split_bytes: int = SPLIT_BYTES,
    tell: Tell | None = None,
) -> IngestReport:
    """Append the lines or rows of files as records to a topic of the data directory `data`.

    The format is text, csv, json (lines) or parquet; by default the file names select it. `columns` names the columns
    of key, value, timestamp (times, ms since 1970, ISO-8601), topic and partition; without a value column, the value is
    the line, or the row as JSON. Text, and JSON lines without columns, are written byte for byte without parsing: a
    line is split at the first `key_delimiter` into key and value. For CSV, `header` means that the first line has the
    names (else `_c0`, `_c1`, ...), and `separator` is the text between columns. Records without a timestamp get the
    time of the job. A null value is rejected unless `nulls` accepts it as Kafka's delete. An empty field of CSV is
    null, and with quotes an empty value.

    Lines keep the order of the given files (of a directory: by name); all formats keep the order within each file. In a
    topic of one partition that is the order of offsets. In several, keyed records go to murmur2(key) mod partitions,
    others stay on one partition for a while. A missing topic is created with `partitions`. `batch_bytes` is the size at
    which a batch of lines closes, `split_bytes` the size of a task.

    With a `job_id` the records land once, however often the job is run; without one each run appends. A run that dies
    leaves nothing, or what the next write to the directory completes.

    Raises IllegalArgument, InvalidTopic, FormatError (a compressed or empty input, one that shrinks), StorageError
    (missing files, a full disk), RecordTooLarge, InvalidTimestamp, InvalidRecord, UnknownTopicOrPartition, each naming
    the problem; DirectoryLocked; JobFailed with Spark's text for malformed CSV, JSON and Parquet.
    """
    files = files_of([os.path.abspath(path) for path in required_paths(sources)])
    kind = format_of(files) if format is None else format
    _check(kind, topic, columns, key_delimiter)
    if kind == "text" or (kind == "json" and not columns.named):
        assert topic is not None
        options = TextOptions(topic, delimiter, key_delimiter, batch_bytes)
        check_text(options, split_bytes)
        landing = landing_for(data, partitions, compression, job_id)
        tasks = text_tasks(files, options, landing, split_bytes)

        def stage() -> list[StagedTask]:
            return results(run_tasks(spark, stage_lines, tasks, "ingest", tell))

    else:
        landing = landing_for(data, partitions, compression, job_id)
        sink = SinkOptions(landing.directory, topic, partitions, landing.compression or PLAIN, job_id)

        def stage() -> list[StagedTask]:
            rows = rows_of(spark, files, kind, columns, header=header, separator=separator)
            frame = records_of(rows, columns)
            check_columns(arrow_of(frame.schema), topic)
            return stage_frame(frame, sink, landing.job, tell, nulls=nulls)

    done = land(spark, landing, files, stage, keep=job_id is not None)
    return IngestReport(done.records, len(files), done.landed, landing.job.id)


def _check(kind: str, topic: str | None, columns: RowColumns, key_delimiter: bytes | None) -> None:
    """Raise IllegalArgument for arguments that do not fit together."""
    if kind not in FORMATS:
        raise IllegalArgument(f"format is {kind!r}", hint=f"give {', '.join(FORMATS)}")
    if kind == "text" and columns.named:
        raise IllegalArgument(
            f"text has no column {columns.named[0]!r}", hint="name the format csv, json or parquet, or a key delimiter"
        )
    if key_delimiter is not None and (kind != "text" and (kind != "json" or columns.named)):
        raise IllegalArgument(f"a key delimiter is for text, not {kind}", hint="name the column that is the key")
    if topic is None and columns.topic is None:
        raise IllegalArgument("no topic is named", hint="name the topic, or the column that has it")
    if topic is not None:
        validate_topic(topic)
        if columns.topic is not None:
            raise IllegalArgument("a topic and a topic column are both named", hint="omit one of them")


def land(
    spark: SparkSession, landing: Landing, files: list[str], stage: Callable[[], list[StagedTask]], *, keep: bool
) -> Committed:
    """Commit what `stage` returns; on failure delete what was staged and is not decided.

    If `keep` is true and the job landed before, no work is done.
    """
    committer = Committer(landing.directory)
    if keep and read_ledger(landing.directory).landed(landing.job, ONLY_BATCH):
        return Committed(False, 0)
    check_executors(spark, [landing.directory, *files])
    try:
        return committer.commit(landing.job, ONLY_BATCH, _staged(stage), keep=keep)
    except BaseException:
        committer.abort(landing.job, ONLY_BATCH)
        raise


def _staged(stage: Callable[[], list[StagedTask]]) -> list[StagedTask]:
    try:
        return stage()
    except KafkalogError:
        raise
    except Exception as error:
        raise failed(error, "the job failed") from error


def required_paths(paths: Path | Iterable[Path]) -> list[str]:
    """Return the paths as a list; raise IllegalArgument for an empty one."""
    found = path_list(paths)
    if not found:
        raise IllegalArgument("no file is named", hint="name files, or directories of them")
    return found


def landing_for(data: Path, partitions: int, compression: str | None, job_id: str | None) -> Landing:
    """Return the landing of a job; a data directory of which only the last part is missing is created."""
    codec = None if compression is None else parse_compression(compression)
    job = Job.batch(uuid.uuid4().hex if job_id is None else job_id)
    check_partitions(partitions)
    if partitions > MAX_PARTITIONS:
        raise InvalidPartitions(f"{partitions} partitions are given, but a job creates at most {MAX_PARTITIONS}")
    directory = os.path.realpath(make_data_directory(os.path.realpath(data)))
    return Landing(directory, job, partitions, codec)
