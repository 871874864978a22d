"""The job `export`: logs to Parquet tables by topic and date; records already there are not written again.

    <target>/topic=orders/date=2026-01-31/orders-0-<first offset>-<last offset>.parquet

A task reads a range of offsets of one partition and writes a file for each date in it (several if they get too large).
It decodes and writes in its own process: no record passes through the JVM. `manifest` describes the directory's content
and why a killed run leaves no duplicates.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import CorruptRecord, IllegalArgument, UnknownTopicOrPartition
from kafkalog.exchange.intervals import OffsetSet
from kafkalog.exchange.manifest import ExportDirectory, ExportedRange, ExportSettings
from kafkalog.exchange.parts import export_part
from kafkalog.exchange.planning import (
    CODECS,
    FILE_BYTES,
    MIN_FILE_BYTES,
    ExportTask,
    check_loss,
    check_same,
    column_names,
    log_bytes_per_byte,
    task_bytes,
)
from kafkalog.exchange.ranges import OffsetRange, boundaries, bytes_between, cut
from kafkalog.spark.batch_plan import within_bounds
from kafkalog.spark.damage import DataLoss, damage_at_ends, report_to
from kafkalog.spark.executors import check_executors
from kafkalog.spark.limits import EARLIEST
from kafkalog.spark.options import SourceOptions
from kafkalog.spark.partitions import PartitionViews, find_partitions
from kafkalog.spark.progress import Tell
from kafkalog.spark.subscriptions import SubscribePattern
from kafkalog.spark.tasks import Raised, results, run_tasks
from kafkalog.storage.damage import Skipped
from kafkalog.storage.outside_data import refuse_data_directory
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.tools.directories import Path, path_list
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HINT: Final = (
    "the sound records before it were written; set onDamage to skip (`--on-damage skip`) to write those after it too"
)


class ExportReport(NamedTuple):
    """Result of one run: `records`, `files` and `bytes` written, and the records that were in the directory before.

    `skipped` are damaged bytes that were left out, by the option `onDamage`.
    """

    records: int
    files: int
    bytes: int
    before: int
    skipped: tuple[Skipped, ...] = ()


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
    """Export partitions of data directories into the directory `target`; later runs add what is new.

    `options` are those of the source: `subscribe`, `subscribePattern`, `assign` (without one of them all topics except
    Kafka's own), where to start and end, `isolationLevel`, `failOnDataLoss`, `onDamage`, `corruptReport`. `columns` are
    those of `log.scan`, by default all; the topic is in the directory names. `by_date` makes a directory for each day
    (UTC) of the records' timestamps; records without a timestamp, or with one outside the calendar, are in
    `date=__HIVE_DEFAULT_PARTITION__`. Files are closed at about `file_bytes`.

    A range of offsets is in the directory completely or not at all; after a kill the next run ensures that. Exported
    records are never written again.

    Raises the errors of the source's options; IllegalArgument for a target that is not kafkalog's or is another export;
    IllegalState for a log shorter than its export; InconsistentTopicId for another topic of the same name;
    OffsetOutOfRange for records deleted before they were exported (unless `failOnDataLoss` is false); StorageError (a
    full disk); DirectoryLocked.

    What tasks had finished before an error is exported. Damage raises CorruptRecord with file and position, after the
    other parts and the records before it are written; with `onDamage` "skip" it is left out and reported.
    """
    several = path_list(paths)
    if not several:
        raise IllegalArgument("no path is given", hint="name a data directory, or directories of partitions")
    refuse_data_directory(target, "an export", [os.path.realpath(path) for path in several])
    wanted = _options([os.path.abspath(path) for path in several], options or {})
    settings = ExportSettings(column_names(columns), wanted.isolation, by_date)
    if compression not in CODECS["parquet"]:
        raise IllegalArgument(f"compression is {compression!r}", hint=f"give {', '.join(CODECS['parquet'])}")
    if file_bytes < MIN_FILE_BYTES:
        raise IllegalArgument(f"file_bytes is {file_bytes}", hint=f"give {MIN_FILE_BYTES} or more")
    found = find_partitions(wanted.paths, wanted.subscription)
    if not found:
        raise UnknownTopicOrPartition(
            "no partitions to export", path=os.pathsep.join(wanted.paths), hint="check the path and the topics"
        )
    with ExportDirectory(os.fspath(target), settings) as directory:
        before = sum(one.records for one in directory.ranges)
        parts, at_ends = _plan(found, wanted, directory, file_bytes, spark.sparkContext.defaultParallelism)
        tasks = [
            ExportTask(*part, settings, compression, file_bytes, directory.staging, wanted.on_damage) for part in parts
        ]
        written: list[ExportedRange] = []
        done: list[_Done | Raised] = []
        if tasks:
            check_executors(spark, [directory.staging, *dict.fromkeys(task.range.directory for task in tasks)])
            try:
                done = run_tasks(spark, partial(_export, report=wanted.corrupt_report), tasks, "export", tell)
            finally:
                written = directory.commit_staged()
    skipped = _pieces([*results(done), *at_ends])
    files = [file for one in written for file in one.files]
    return ExportReport(
        sum(one.records for one in written), len(files), sum(file.bytes for file in files), before, skipped
    )



class _Done(NamedTuple):
    """Damage in a part: the pieces left out, or the error that ended it."""

    skipped: list[Skipped]
    damage: CorruptRecord | None = None


def _export(task: ExportTask, *, report: str | None) -> _Done:
    """Write a part in a Spark task."""
    skipped: list[Skipped] = []
    damage = export_part(task, skipped if task.on_damage == "skip" else None)
    report_to(report, task.range, skipped)
    return _Done(skipped, damage)


def _pieces(done: Iterable[_Done]) -> tuple[Skipped, ...]:
    """Return all pieces that were left out; raise the first damage that was not to be skipped."""
    found: dict[Skipped, None] = {}
    for one in done:
        if one.damage is not None:
            one.damage.hint = _HINT
            raise one.damage
        found.update(dict.fromkeys(one.skipped))
    return tuple(found)


def _options(paths: list[str], given: Mapping[str, str]) -> SourceOptions:
    """Return the source's options; without a subscription all topics are selected."""
    first, *others = paths
    known = {name.lower() for name in given}
    for name in ("path", "paths", "columns", "includeHeaders"):
        if name.lower() in known:
            raise IllegalArgument(f"{name} is not an option of the export", hint="use its arguments for it")
    for name in ("where", "key", "value"):
        if name in known:
            raise IllegalArgument(
                f"{name} is not an option of the job", hint="export without Spark, which selects and decodes"
            )
    options = SourceOptions.parse({**given, "path": first}, streaming=False)
    return replace(options, paths=(first, *others), subscription=options.subscription or SubscribePattern(".*"))


def _plan(
    found: dict[TopicPartition, str], options: SourceOptions, directory: ExportDirectory, file_bytes: int, cores: int
) -> tuple[list[tuple[OffsetRange, int, str | None]], list[_Done]]:
    """Return the parts still to be exported, cut for tasks, and the damage at ends of logs that none of them reads.

    A part has its bytes of log and the topic's id.
    """
    with PartitionViews(found, options.isolation) as views:
        starts, stops = views.resolve(options.starting, "starting"), views.resolve(options.ending, "ending")
        ids = {one: read_partition_metadata(OS, path) for one, path in found.items()}
        check_same(directory, ids, views.latest, views.__getitem__, views.directories)
        if options.starting == EARLIEST:
            loss = None if options.fail_on_data_loss else DataLoss
            hint = "set failOnDataLoss to false to export the remaining records, and export more often"
            check_loss(directory, views.earliest, stops, views.directories, loss, hint)
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
        read = {(one.topic_partition, one.stop) for one in missing}
        unread = {one: stop for one, stop in stops.items() if (one, stop) not in read}
        at_ends = [_Done(*one) for one in damage_at_ends(views, unread, options)]
    return sorted(parts, key=lambda part: -part[1]), at_ends  # the largest first: none remains for the end
