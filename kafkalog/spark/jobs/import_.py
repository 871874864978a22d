"""The job `import`: writes Parquet files or JSON lines, from `export`, `consume -J` or of the same form, to logs.

Rows with a place (topic, partition, offset) are written in the order of their offsets, one task for each partition.
They keep their offsets if all of their partitions are empty; otherwise they are appended, as rows without offsets are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import IllegalArgument
from kafkalog.exchange.offset_batches import batches_with_offsets
from kafkalog.exchange.row_files import RECORD_COLUMNS, ParquetFacts, ordered_rows, survey, unordered_rows
from kafkalog.landing.commit import Committed, Committer, StagedTask
from kafkalog.landing.import_plan import KeptTarget, has_plans
from kafkalog.landing.kept_offsets import is_empty
from kafkalog.landing.ledger import read_ledger
from kafkalog.landing.staging import ONLY_BATCH
from kafkalog.landing.targets import no_time, place_all
from kafkalog.landing.task_stage import Landing, TaskStage
from kafkalog.landing.topic_layout import read_layout
from kafkalog.records.placer import Placer, TopicTarget
from kafkalog.spark.executors import check_executors
from kafkalog.spark.jobs.ingest import landing_for, required_paths
from kafkalog.spark.jobs.json_lines import json_tables
from kafkalog.spark.jobs.row_columns import format_of
from kafkalog.spark.jobs.text_lines import SPLIT_BYTES, TextOptions, TextTask, files_of, text_tasks
from kafkalog.spark.progress import Tell
from kafkalog.spark.tasks import results, run_tasks
from kafkalog.storage.names import validate_topic
from kafkalog.tools.directories import Path
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

OFFSETS: Final = ("auto", "keep", "new")


class ImportReport(NamedTuple):
    """Result of one run: `kept` is True if offsets are the files'; `landed` is False for a job that was done before."""

    records: int
    files: int
    partitions: int
    kept: bool
    landed: bool
    job_id: str


@dataclass(frozen=True, slots=True)
class PartitionTask:
    """The rows of one partition in all files; with `keep` they keep their offsets."""

    number: int
    where: TopicPartition
    files: tuple[ParquetFacts, ...]
    keep: bool
    landing: Landing


@dataclass(frozen=True, slots=True)
class FileTask:
    """All rows of a file, placed by their partitions or keys."""

    number: int
    facts: ParquetFacts
    landing: Landing


class Staged(NamedTuple):
    """Result of a task for the commit, with its partitions, its records, and the offsets [first, end) it kept."""

    task: StagedTask
    topic_partitions: frozenset[TopicPartition]
    records: int
    first: int
    end: int


def import_(
    spark: SparkSession,
    sources: Path | Iterable[Path],
    data: Path,
    topic: str | None = None,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    offsets: str = "auto",
    partitions: int = 1,
    compression: str | None = None,
    job_id: str | None = None,
    tell: Tell | None = None,
) -> ImportReport:
    """Write the records of Parquet files (such as an export's directory) or JSON lines to the data directory `data`.

    `columns` maps the parts (value, key, headers, timestamp, timestampType, topic, partition, offset) to the names of
    Parquet columns that differ. The topic is `topic`, else the column's, else that of a directory `topic=NAME`. Keys,
    values, headers and timestamps are restored exactly, including nulls and timestamps of -1; a topic's rules on
    timestamps do not apply to them. Rows with topic, partition and offset are written in the order of offsets. With
    `offsets` "auto" they keep them if all of their partitions are empty; "keep" requires that, "new" appends. Kept
    offsets have the files' gaps and timestamp types; appended records get the type of their topic. JSON lines are
    appended, in the order of the files.

    With a `job_id` the records land once, however often the job is run. A killed run leaves nothing, or what the next
    import or write to the directory completes. `partitions` is the least number of partitions of a new topic.

    Raises IllegalArgument for a missing column or one of a wrong type, a duplicate offset, or a non-empty partition
    that was to keep offsets; FormatError for files that are not Parquet and lines that are not records; IllegalState if
    another process wrote to the directory meanwhile; StorageError, DirectoryLocked, RecordTooLarge, JobFailed.
    """
    if offsets not in OFFSETS:
        raise IllegalArgument(f"offsets is {offsets!r}", hint=f"give {', '.join(OFFSETS)}")
    names = _names(columns or {})
    if topic is not None:
        validate_topic(topic)
    files = files_of([os.path.abspath(path) for path in required_paths(sources)])
    kind = format_of(files) if format is None else format
    if kind not in ("parquet", "json"):
        raise IllegalArgument(f"format is {kind!r}", hint="give parquet or json; `ingest` reads text and CSV")
    landing = landing_for(data, partitions, compression, job_id)
    committer = Committer(landing.directory)
    if has_plans(landing.directory):
        committer.roll_forward()
    if job_id is not None and read_ledger(landing.directory).landed(landing.job, ONLY_BATCH):
        return ImportReport(0, len(files), 0, False, False, landing.job.id)
    check_executors(spark, [landing.directory, *files])
    try:
        plan = _staged(spark, kind, files, names, topic, offsets, landing, tell)
        landed, records = _landed(committer, landing, plan, keep=job_id is not None)
    except BaseException:
        committer.abort(landing.job, ONLY_BATCH)
        raise
    partitions = len(frozenset[TopicPartition]().union(*(one.topic_partitions for one in plan.staged)))
    return ImportReport(records, len(files), partitions, plan.keep, landed, landing.job.id)


class Plan(NamedTuple):
    """Results of the tasks, the partitions in the rows, the partitions of their topics, and if offsets are kept."""

    staged: list[Staged]
    topic_partitions: list[TopicPartition]
    partitions: Mapping[str, int]
    keep: bool


def _landed(committer: Committer, landing: Landing, plan: Plan, *, keep: bool) -> Committed:
    """Commit what was staged; with `keep` the ledger remembers the job."""
    if not plan.keep:
        return committer.commit(landing.job, ONLY_BATCH, [one.task for one in plan.staged], keep=keep)
    targets = [
        KeptTarget(where, one.first, one.end, one.task.file)
        for where, one in zip(plan.topic_partitions, plan.staged, strict=True)
        if one.task.file is not None
    ]
    return committer.commit_kept(landing.job, targets, plan.partitions, keep=keep)


def _staged(
    spark: SparkSession, kind: str, files: list[str], names: dict[str, str], topic: str | None, offsets: str,
    landing: Landing, tell: Tell | None,
) -> Plan:  # fmt: skip
    """Decide how the rows are written, and stage them."""
    if kind == "json":
        if topic is None or offsets == "keep":
            raise IllegalArgument(
                "JSON lines are appended to one topic",
                hint="name the topic" if topic is None else "use offsets new, or export to Parquet to keep offsets",
            )
        lines = text_tasks(files, TextOptions(topic), landing, SPLIT_BYTES)
        return Plan(results(run_tasks(spark, stage_json, lines, "import", tell)), [], {}, False)
    facts = results(run_tasks(spark, partial(survey, names=names, topic=topic), files, "import: look at files"))
    found = sorted({where for one in facts for where in one.topic_partitions})
    wide = with_partitions(landing, found)
    if not all(one.is_ordered for one in facts):
        if offsets == "keep":
            raise IllegalArgument(
                "some rows lack topic, partition or offset", path=files[0],
                hint="name the columns, or use offsets new",
            )  # fmt: skip
        _check_topics(facts)
        by_file = [FileTask(n, one, wide) for n, one in enumerate(facts)]
        return Plan(results(run_tasks(spark, stage_file, by_file, "import", tell)), found, wide.by_topic, False)
    non_empty = [where for where in found if not is_empty(landing.directory, where)]
    if offsets == "keep" and non_empty:
        raise IllegalArgument(
            f"{non_empty[0]} is not empty, so the records cannot keep their offsets", path=landing.directory,
            hint="import into another directory, or use offsets new",
        )  # fmt: skip
    keep = offsets != "new" and not non_empty
    tasks = [PartitionTask(n, one, tuple(_files_with(one, facts)), keep, wide) for n, one in enumerate(found)]
    return Plan(results(run_tasks(spark, stage_partition, tasks, "import", tell)), found, wide.by_topic, keep)


def _names(columns: Mapping[str, str]) -> dict[str, str]:
    for part in columns:
        if part not in RECORD_COLUMNS:
            raise IllegalArgument(f"a record has no part {part!r}", hint=f"parts are {', '.join(RECORD_COLUMNS)}")
    return dict(columns)


def _check_topics(facts: Iterable[ParquetFacts]) -> None:
    for one in facts:
        if one.topic is None and "topic" not in one.columns:
            raise IllegalArgument(
                "the rows have no topic", path=one.path, hint="name the topic, or the column that has it"
            )


def _files_with(where: TopicPartition, facts: Iterable[ParquetFacts]) -> Iterable[ParquetFacts]:
    """Return the files with rows of the partition."""
    return (one for one in facts if where in one.topic_partitions)


def with_partitions(landing: Landing, topic_partitions: Iterable[TopicPartition]) -> Landing:
    """Return the landing with partitions by topic: those of existing topics, or as many as a new one's rows need."""
    highest: dict[str, int] = {}
    for where in topic_partitions:
        highest[where.topic] = max(where.partition, highest.get(where.topic, 0))
    counts = {
        topic: read_layout(landing.directory, topic).partitions or max(landing.partitions, number + 1)
        for topic, number in highest.items()
    }
    return replace(landing, by_topic=counts)


def stage_partition(task: PartitionTask) -> Staged:
    """Stage the rows of one partition, in the order of their offsets."""
    bounds = [-1, 0, 0]

    def counted_tables() -> Iterable[pyarrow.Table]:
        for table in ordered_rows(task.where, task.files):
            offsets = table["offset"]
            if bounds[0] < 0:
                bounds[0] = offsets[0].as_py()
            bounds[1] = offsets[len(offsets) - 1].as_py() + 1
            bounds[2] += len(offsets)
            yield table

    with TaskStage(task.landing, task.number) as stage:
        topic = stage.topic(task.where.topic)
        if task.where.partition >= topic.partitions:
            raise IllegalArgument(
                f"topic {task.where.topic} has {topic.partitions} partitions, but the files have {task.where}",
                path=task.landing.directory, hint="`kafkalog topics alter --partitions N` adds partitions",
            )  # fmt: skip
        if task.keep:
            for batches in batches_with_offsets(counted_tables(), task.where.topic, topic):
                stage.add(task.where, batches)
        else:
            target = topic.as_written()._replace(partitions=1)
            placer = Placer(lambda _: target, topic=task.where.topic, columns={"partition": None}, now_ms=no_time)
            for placed in place_all(placer, map(_record_columns, counted_tables())):
                stage.add(task.where, placed.batches)
        return Staged(stage.finish(), stage.topic_partitions, bounds[2], bounds[0], bounds[1])


def stage_file(task: FileTask) -> Staged:
    """Stage all rows of a file, in its order, by their partitions or keys."""
    return _stage(task.number, task.landing, task.facts.topic, map(_record_columns, unordered_rows(task.facts)))


def stage_json(task: TextTask) -> Staged:
    """Stage the records of JSON lines."""
    return _stage(task.number, task.landing, task.options.topic, json_tables(task))


def _stage(
    number: int, landing: Landing, topic: str | None, rows: Iterable[pyarrow.Table | pyarrow.RecordBatch]
) -> Staged:
    with TaskStage(landing, number) as stage:

        def target(name: str) -> TopicTarget:
            return stage.topic(name).as_written()

        placer = Placer(target, topic=topic, first_partition=number, now_ms=no_time)
        stage.add_placed(place_all(placer, rows))
        return Staged(stage.finish(), stage.topic_partitions, placer.records, 0, 0)


def _record_columns(table: pyarrow.Table) -> pyarrow.Table:
    """Return the columns that make up a record, without those that state its origin."""
    return table.select([name for name in table.schema.names if name not in ("offset", "timestampType")])
