"""The job `ingest`: files of text, CSV, JSON lines and Parquet to topics, once for each job id.

Text goes from the file into batches in the tasks' own processes. Rows of the other formats are read by Spark, and go
through the sink `kafkalog`. Tasks stage, and the driver's commit appends what they staged in their order.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import IllegalArgument
from kafkalog.records.packing import parse_compression
from kafkalog.spark.commit import Committer
from kafkalog.spark.executors import check_executors
from kafkalog.spark.jobs.task_stage import ONLY_BATCH, Landing, check_partitions_wanted
from kafkalog.spark.jobs.text_lines import SPLIT_BYTES, TextOptions, check_text, files_of, stage_lines, text_tasks
from kafkalog.spark.progress import Tell
from kafkalog.spark.staging import Job
from kafkalog.spark.tasks import results, run_tasks
from kafkalog.storage.names import validate_topic
from kafkalog.util.fileio import OS, make_directories

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["IngestReport", "ingest_text"]

Path = str | os.PathLike[str]


class IngestReport(NamedTuple):
    """What one run appended, from how many files; `landed` is False where the job's records were there before."""

    records: int
    files: int
    landed: bool
    job_id: str


def ingest_text(
    spark: SparkSession,
    sources: Path | Iterable[Path],
    data: Path,
    topic: str,
    *,
    partitions: int = 1,
    compression: str | None = None,
    delimiter: bytes = b"\n",
    key_delimiter: bytes | None = None,
    batch_bytes: int = TextOptions("t").batch_bytes,
    split_bytes: int = SPLIT_BYTES,
    job_id: str | None = None,
    tell: Tell | None = None,
) -> IngestReport:
    """Appends each line of text files as a record to a topic of the data directory `data`.

    Lines come in the order of the files as they are given (of a directory: by name), and in that of each file: in a
    topic of one partition that is the order of offsets. In several, keyed lines go to murmur2(key) mod partitions,
    those without a key stay on one partition for a batch. A line is split at the first `key_delimiter` into key and
    value. A topic that is missing is made with `partitions`; `batch_bytes` is the size at which a batch closes.

    With a `job_id` the records land once, however often the job is run; without one each run appends. A run that dies
    leaves nothing, or what the next write to the directory completes. StorageError for files that cannot be read and a
    full disk, FormatError for compressed files and a file that shrinks, RecordTooLarge, DirectoryLocked, JobFailed.
    """
    options = TextOptions(validate_topic(topic), delimiter, key_delimiter, batch_bytes)
    check_text(options)
    if split_bytes < 1:
        raise IllegalArgument(f"split_bytes is {split_bytes}", hint="give 1 or more")
    files = files_of([os.path.abspath(path) for path in several(sources)])
    landing = landing_for(data, partitions, compression, job_id)
    tasks = text_tasks(files, options, landing, split_bytes)
    committer = Committer(landing.directory)
    try:
        check_executors(spark, [landing.directory, *files])
        staged = results(run_tasks(spark, stage_lines, tasks, "ingest", tell))
    except BaseException:
        committer.abort(landing.job, ONLY_BATCH)
        raise
    done = committer.commit(landing.job, ONLY_BATCH, staged, keep=job_id is not None)
    return IngestReport(done.records, len(files), done.landed, landing.job.id)


def several(paths: Path | Iterable[Path]) -> list[str]:
    """The paths as a list; IllegalArgument for none."""
    found = [os.fspath(paths)] if isinstance(paths, (str, os.PathLike)) else [os.fspath(path) for path in paths]
    if not found:
        raise IllegalArgument("no file is named", hint="name files, or directories of them")
    return found


def landing_for(data: Path, partitions: int, compression: str | None, job_id: str | None) -> Landing:
    """Where a job's records go; the data directory is made where it is missing."""
    asked = None if compression is None else parse_compression(compression)
    job = Job.batch(uuid.uuid4().hex if job_id is None else job_id)
    directory = os.path.realpath(data)
    check_partitions_wanted(partitions)
    make_directories(OS, directory)
    return Landing(directory, job, partitions, asked)
