"""The job `stats`: size of a tree of logs by topic and hour, from batch headers; distinct keys by a sketch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import KafkalogError, NotAPartition, StorageError
from kafkalog.spark.executors import check_executors
from kafkalog.spark.failures import failed
from kafkalog.spark.header_survey import Counts, Group, merged, survey_segment
from kafkalog.spark.packing import packed
from kafkalog.spark.progress import Tell, watched
from kafkalog.spark.stats_report import KeyStats, StatsReport
from kafkalog.spark.tasks import results, run_tasks
from kafkalog.storage.names import is_log_file
from kafkalog.tools.directories import PartitionPath, Path, partitions_below, path_list
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS_ERROR: Final = 0.02
"""Relative standard deviation of the number of keys (HyperLogLog++)."""


class Segment(NamedTuple):
    """A `.log` file of a partition, and its bytes."""

    path: str
    size: int
    partition: TopicPartition
    is_last: bool = False


def stats(
    spark: SparkSession,
    paths: Path | Iterable[Path],
    *,
    topics: Sequence[str] = (),
    keys: bool = True,
    exact: bool = False,
    tell: Tell | None = None,
) -> StatsReport:
    """Return the size of data directories or partition directories, for `topics` or all; nothing is locked or changed.

    Batches, records and bytes come from batch headers, the hour of a batch from its largest timestamp. The compression
    ratio comes from one batch of each megabyte, or from every batch with `exact`. With `keys` all records are also
    read, for the number of distinct keys of each topic, off by 2 % on average. In a tree with copies from several
    brokers, each copy's bytes and records count, but a key counts once.

    Damage ends the counting of its segment and is in `problems`, as is any error that prevents reading the keys.
    Segments that retention deletes meanwhile are left out. Raises PartitionNotFound, NotAPartition,
    UnknownTopicOrPartition, MissingRequirement for executors without this package, JobFailed.
    """
    several = path_list(paths)
    found = partitions_below(several, topics)
    if not found:
        raise NotAPartition(
            "the directory has no partitions", path=several[0] if several else None,
            hint="give data directories, or partition directories (<topic>-<number>)",
        )  # fmt: skip
    check_executors(spark, [os.path.realpath(path) for path in several])
    segments = [segment for one in found for segment in _segments(one)]
    tasks = packed(segments, lambda one: one.size, spark.sparkContext.defaultParallelism)
    done = results(run_tasks(spark, partial(_survey, exact=exact), tasks, "stats", tell))
    problems = [problem for _, some in done for problem in some]
    counted = None
    if keys:
        try:
            counted = _keys(spark, found, tell)
        except KafkalogError as error:
            problems.append("keys were not counted: " + str(error).partition(". Hint: ")[0])  # of a reader's options
    groups = merged(rows for rows, _ in done)
    return StatsReport(groups, counted, tuple(problems), len(found), len(segments))


def _segments(partition: PartitionPath) -> list[Segment]:
    try:
        names = sorted(OS.names(partition.path))
    except FileNotFoundError:
        return []  # the topic was deleted meanwhile
    except OSError as error:
        raise StorageError.from_os(error, "list", path=partition.path) from error
    found = []
    for name in names:
        path = os.path.join(partition.path, name)
        if is_log_file(name):
            try:
                found.append(Segment(path, OS.stat(path).st_size, partition.topic_partition))
            except FileNotFoundError:
                continue
    return [*found[:-1], *(one._replace(is_last=True) for one in found[-1:])]


def _survey(segments: Sequence[Segment], *, exact: bool) -> tuple[dict[Group, Counts], list[str]]:
    """Run a task: return the rows of its segments and their problems."""
    surveys = [survey_segment(one.path, one.partition, exact=exact, is_last=one.is_last) for one in segments]
    problems = [survey.problem for survey in surveys if survey.problem is not None]
    return merged(survey.rows for survey in surveys), problems


def _keys(spark: SparkSession, found: Sequence[PartitionPath], tell: Tell | None) -> dict[str, KeyStats]:
    """Count the keys of each topic: one read for all partitions, and one more for each further copy of a partition."""
    from pyspark.sql import DataFrame, functions

    reads: list[dict[TopicPartition, str]] = []
    for one in found:
        for read in reads:
            if one.topic_partition not in read:
                read[one.topic_partition] = one.path
                break
        else:
            reads.append({one.topic_partition: one.path})
    try:
        source = spark.read.format("kafkalog").option("columns", "key,topic")
        every = reduce(DataFrame.unionByName, [source.load([*read.values()]) for read in reads])
        key_counts = every.groupBy("topic").agg(
            functions.approx_count_distinct("key", KEYS_ERROR).alias("distinct"),
            functions.count_if(functions.col("key").isNull()).alias("null"),
        )
        with watched(spark, "stats: keys", tell):
            rows = key_counts.collect()
    except KafkalogError:
        raise
    except Exception as error:
        raise failed(error, "the records could not be read") from error
    return {row["topic"]: KeyStats(row["distinct"], row["null"]) for row in rows}
