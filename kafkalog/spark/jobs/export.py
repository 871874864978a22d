"""The job `export`: logs to Parquet tables, partitioned by topic and date; what is there already is not written again.

    <target>/topic=orders/date=2026-01-31/orders-0-<first offset>-<last offset>.parquet

A task takes a range of offsets of one partition and gives a file for each date in it (several where they get too
large). It decodes and writes in its own process: no record passes through the JVM. What is in the directory, and how a
killed run leaves nothing double, is in `manifest`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import (
    IllegalArgument,
    IllegalState,
    InconsistentTopicId,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from kafkalog.records.column_reader import COLUMNS, kinds_of
from kafkalog.spark.batch_plan import within_bounds
from kafkalog.spark.damage import DataLoss
from kafkalog.spark.executors import check_executors
from kafkalog.spark.jobs.intervals import OffsetSet
from kafkalog.spark.jobs.manifest import ExportDirectory, ExportedRange, ExportSettings
from kafkalog.spark.jobs.parquet_files import CODECS, ExportTask, export_range
from kafkalog.spark.limits import EARLIEST, resolve
from kafkalog.spark.options import SourceOptions
from kafkalog.spark.partitions import PartitionViews, find_partitions
from kafkalog.spark.progress import Tell
from kafkalog.spark.ranges import OffsetRange, boundaries, bytes_between, cut
from kafkalog.spark.subscriptions import SubscribePattern
from kafkalog.spark.tasks import results, run_tasks
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.tools.directories import path_list
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ExportReport", "export"]

Path = str | os.PathLike[str]
FILE_BYTES: Final = 128 << 20
LEAST_FILE_BYTES: Final = 1 << 10
LEAST_TASK_BYTES: Final = 16 << 20
"""A log is not cut smaller than this only to keep all cores at work."""
FIRST_RATIO: Final = 2.0
MOST_RATIO: Final = 16.0
"""Bytes of log for a byte of Parquet: what is taken for it before anything was exported, and the most."""


class ExportReport(NamedTuple):
    """What one run wrote (`records`, `files`, `bytes`), and how many records were in the directory before it."""

    records: int
    files: int
    bytes: int
    before: int


def export(
    spark: SparkSession,
    paths: Path | Iterable[Path],
    target: Path,
    options: Mapping[str, str] | None = None,
    *,
    columns: Iterable[str] | None = None,
    by_date: bool = True,
    compression: str = "zstd",
    file_bytes: int = FILE_BYTES,
    tell: Tell | None = None,
) -> ExportReport:
    """Exports partitions of data directories into the directory `target`, or what is new in them since the last time.

    `options` are those of the source: `subscribe`, `subscribePattern`, `assign` (without one of them all topics but
    Kafka's own), where to start and end, `isolationLevel`, `failOnDataLoss`. `columns` are those of `log.scan`, by
    default all; the topic is in the names of directories. `by_date` makes a directory for each day (UTC) of the
    records' times; records without a time, or with one that no calendar has, are in `date=__HIVE_DEFAULT_PARTITION__`.
    Files are closed at about `file_bytes`.

    A range of offsets is in the directory whole or not at all once the run that was killed is followed by another;
    what was exported before is never written again. Errors: those of the source's options; IllegalArgument for a
    target that is not ours or is another export; IllegalState for a log that is shorter than what was exported of it,
    InconsistentTopicId for another topic of the same name, OffsetOutOfRange for records that were deleted before they
    were exported (unless `failOnDataLoss` is false); CorruptRecord with file and position; StorageError (a full disk);
    DirectoryLocked. What tasks had finished before an error is exported.
    """
    several = path_list(paths)
    if not several:
        raise IllegalArgument("no path is given", hint="name a data directory, or directories of partitions")
    wanted = _options([os.path.abspath(path) for path in several], options or {})
    settings = ExportSettings(_names(columns), wanted.isolation, by_date)
    if compression not in CODECS:
        raise IllegalArgument(f"compression is {compression!r}", hint=f"Parquet has {', '.join(CODECS)}")
    if file_bytes < LEAST_FILE_BYTES:
        raise IllegalArgument(f"file_bytes is {file_bytes}", hint=f"give {LEAST_FILE_BYTES} or more")
    found = find_partitions(wanted.paths, wanted.subscription)
    if not found:
        raise UnknownTopicOrPartition(
            "there is no partition to export", path=os.pathsep.join(wanted.paths), hint="check the path and the topics"
        )
    with ExportDirectory(os.fspath(target), settings) as directory:
        before = sum(one.records for one in directory.ranges)
        parts = _plan(found, wanted, directory, file_bytes, spark.sparkContext.defaultParallelism)
        tasks = [
            ExportTask(part, log_bytes, topic_id, settings, compression, file_bytes, directory.staging)
            for part, log_bytes, topic_id in parts
        ]
        written: list[ExportedRange] = []
        if tasks:
            check_executors(spark, [directory.staging, *dict.fromkeys(task.range.directory for task in tasks)])
            try:
                done = run_tasks(spark, export_range, tasks, "export", tell)
            finally:
                written = directory.commit_staged()
            results(done)
    files = [file for one in written for file in one.files]
    return ExportReport(sum(one.records for one in written), len(files), sum(file.bytes for file in files), before)


def _options(paths: list[str], given: Mapping[str, str]) -> SourceOptions:
    """The source's options, for all topics where none is named."""
    first, *others = paths
    known = {name.lower() for name in given}
    for name in ("path", "paths", "columns", "includeHeaders"):
        if name.lower() in known:
            raise IllegalArgument(f"{name} is no option of the export", hint="it has arguments for paths and columns")
    options = SourceOptions.parse({**given, "path": first}, streaming=False)
    return replace(
        options, paths=(first, *others), subscription=options.subscription or SubscribePattern(".*")
    )  # fmt: skip


def _names(columns: Iterable[str] | None) -> tuple[str, ...]:
    """The names of the columns in the files, as the source orders them."""
    named = COLUMNS if columns is None else tuple(COLUMNS[kind] for kind in kinds_of(columns))
    kept = tuple(name for name in COLUMNS if name in named and name != "topic")
    if not kept:
        raise IllegalArgument("no column is left besides the topic", hint=f"columns are {', '.join(COLUMNS)}")
    return kept


def _plan(
    found: dict[TopicPartition, str], options: SourceOptions, directory: ExportDirectory, file_bytes: int, cores: int
) -> list[tuple[OffsetRange, int, str | None]]:
    """What is not exported yet, cut for tasks, with the bytes of log and the topic's id."""
    with PartitionViews(found, options.isolation) as views:
        starts, stops = (
            resolve(limit, found, side=side, earliest=views.earliest, latest=views.latest, at_time=views.at_time)
            for limit, side in ((options.starting, "starting"), (options.ending, "ending"))
        )
        ids = {one: read_partition_metadata(OS, path) for one, path in found.items()}
        _check_same(directory, ids, views)
        if options.starting == EARLIEST:
            _check_loss(directory, views, stops, options.fail_on_data_loss)
        starts, stops = within_bounds(starts, stops, views, options.fail_on_data_loss)
        missing = [
            OffsetRange(one.topic, one.partition, found[one], start, stop)
            for one in found
            for start, stop in directory.exported.get(one, OffsetSet()).missing(starts[one], stops[one])
        ]
        sizes = [bytes_between(views[one.topic_partition], one.start, one.stop) for one in missing]
        most = task_bytes(sum(sizes), cores, file_bytes, log_bytes_per_byte(directory.ranges))
        parts = []
        for whole, size in zip(missing, sizes, strict=True):
            cuts = cut(whole, boundaries(views[whole.topic_partition], whole.start, whole.stop, most))
            parts += [(part, max(1, size // len(cuts)), ids[part.topic_partition]) for part in cuts]
    return sorted(parts, key=lambda part: -part[1])  # the largest first: none is left for the end


def task_bytes(log_bytes: int, cores: int, file_bytes: int, ratio: float) -> int:
    """How many bytes of log a task gets: those of a file, or fewer where cores would have nothing to do."""
    return max(1, min(int(file_bytes * ratio), max(LEAST_TASK_BYTES, log_bytes // cores)))


def log_bytes_per_byte(ranges: Iterable[ExportedRange]) -> float:
    """What the exported ranges say of it."""
    pairs = [(one.log_bytes, sum(file.bytes for file in one.files)) for one in ranges if one.files]
    written = sum(size for _, size in pairs)
    return min(MOST_RATIO, max(1.0, sum(log for log, _ in pairs) / written)) if written else FIRST_RATIO


def _check_same(directory: ExportDirectory, ids: Mapping[TopicPartition, str | None], views: PartitionViews) -> None:
    """The logs are those that were exported: the same topics, and not shorter."""
    for one in directory.ranges:
        now = ids.get(one.topic_partition)
        if now is not None and one.topic_id is not None and now != one.topic_id:
            raise InconsistentTopicId(
                f"{one.topic_partition} was exported from the topic with id {one.topic_id}, this one has {now}",
                path=views.directories[one.topic_partition],
                hint="the topic was made anew: export it into another directory",
            )
    for key, end in _ends(directory, ids):
        latest = views.latest(key)
        if latest < end:
            raise IllegalState(
                f"{key} was exported up to offset {end}, and now ends at {latest}",
                path=views.directories[key],
                offset=latest,
                hint="its end was cut off, or it is another log: export it into another directory",
            )


def _check_loss(
    directory: ExportDirectory, views: PartitionViews, stops: Mapping[TopicPartition, int], fail: bool
) -> None:
    """Records between what was exported and the log start are gone."""
    for key, end in _ends(directory, stops):
        earliest = views.earliest(key)
        if end < earliest:
            text = f"offsets {end} to {earliest - 1} of {key} were deleted before they were exported"
            if fail:
                raise OffsetOutOfRange(
                    text, path=views.directories[key], offset=end,
                    hint="set failOnDataLoss to false to export what is there, and run the export more often",
                )  # fmt: skip
            warnings.warn(text, DataLoss, stacklevel=2)


def _ends(directory: ExportDirectory, wanted: Iterable[TopicPartition]) -> Iterator[tuple[TopicPartition, int]]:
    return ((key, directory.exported[key].end) for key in wanted if key in directory.exported)
