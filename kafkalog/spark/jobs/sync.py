"""The job `sync`: writes what an Iceberg or Delta table lacks of a topic; tasks write files, the driver commits them.

The files of a commit are in a directory that is named after what the table was before it, and the topic's partitions
here: of the syncs that write there, one alone commits. So what a killed driver, a failed task or a task that ran twice
left there is known as such once the commit is made, and deleted.
"""

from __future__ import annotations

import os
import pickle
import uuid
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.dirs.open import open_dirs
from kafkalog.errors import (
    IllegalArgument,
    IllegalState,
    InconsistentTopicId,
    OffsetOutOfRange,
    PartitionNotFound,
    StorageError,
)
from kafkalog.exchange.ranges import OffsetRange, boundaries, bytes_between, cut
from kafkalog.lake.appends import FILES_PER_COMMIT, Share
from kafkalog.lake.failures import store_errors
from kafkalog.lake.files import FILE_BYTES, TableFiles, piece_bytes
from kafkalog.lake.positions import ReadRange
from kafkalog.lake.rows import TopicRows, fitted
from kafkalog.lake.sync import SyncCommit, sync_with
from kafkalog.spark.executors import ONE_FILE_SYSTEM, check_executors
from kafkalog.spark.packing import MIN_TASK_BYTES
from kafkalog.spark.progress import Tell
from kafkalog.spark.tasks import results, run_tasks
from kafkalog.storage.damage import Skipped
from kafkalog.storage.readonly.view import LogView
from kafkalog.tools.directories import Path, path_list

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

    from kafkalog.lake.table import DataWriter, LakeTable, WrittenFile

FILES_PER_TASK: Final = 2
"""A task reads the bytes of at most so many files: what Spark repeats after a failure."""
TASKS_A_CORE: Final = 2
"""Least number of tasks for each core in a commit, if there is so much to write."""
_SLACK: Final = 1.1
"""Factor by which a task may be larger than an even share, so that partitions of about that size stay whole."""


def sync(
    spark: SparkSession,
    dirs: Path | Iterable[Path],
    topic: str,
    target: str,
    *,
    options: Mapping[str, str] | None = None,
    partition_by: Iterable[str] = (),
    target_file_bytes: int = FILE_BYTES,
    on_damage: str = "raise",
    skipped: list[Skipped] | None = None,
    tell: Tell | None = None,
    **typed: Any,
) -> list[SyncCommit]:
    """Write the committed records of a topic that a table lacks to it, and return the commits; none if it lacks none.

    Arguments, rows and commits are those of `kafkalog.lake.sync.sync_topic`, without upserts, and either continues
    after the other. Tasks write the data files, and the driver alone commits to the table. Data directories, files of
    schemas, and a local table must be on a file system that all nodes mount; tasks get the properties of the store.

    Raises what `sync_topic` does; IllegalArgument for decoders or schemas that cannot be sent to a task;
    MissingRequirement for executors without this package; JobFailed. Files that no commit has are deleted.
    """
    given = {name: _placed(name, value) for name, value in typed.items() if value is not None}
    try:
        pickle.dumps(given)
    except Exception as error:
        raise IllegalArgument(
            f"what decodes the records cannot be sent to a task: {error}",
            hint="give names of decoders, and schemas by path or address",
        ) from None
    paths = [path if "://" in path else os.path.abspath(path) for path in path_list(dirs)]
    return sync_with(
        _TaskShares(spark, paths, tell), paths, topic, target, options=options, partition_by=partition_by,
        target_file_bytes=target_file_bytes, on_damage=on_damage, skipped=skipped, **given,
    )  # fmt: skip


def _placed(name: str, value: Any) -> Any:
    """Return the absolute path for a relative one that is given as a schema or schemas; tasks run elsewhere."""
    if name not in ("schema", "schemas", "registry") or not isinstance(value, str | os.PathLike):
        return value
    is_path = isinstance(value, os.PathLike) or (not value.isdigit() and os.path.exists(value))
    return os.path.abspath(value) if is_path else value


class _Work(NamedTuple):
    """The work of a commit, as all of its tasks share it; `ends` are where the sync ends, by partition."""

    paths: Sequence[str]
    topic: str
    topic_id: str | None
    ends: Mapping[int, int]
    given: Mapping[str, Any]
    samples: Mapping[str, list[bytes]]
    names: Mapping[str, str]
    schema: pyarrow.Schema
    on_damage: str
    writer: DataWriter
    file_bytes: int


class _Done(NamedTuple):
    """The result of a task: its files, and what it read for them."""

    files: Sequence[WrittenFile]
    records: int
    undecodable: int
    skipped: Sequence[Skipped]


class _TaskFiles:
    """The files of a commit's tasks."""

    def __init__(self, writer: DataWriter) -> None:
        self.finished: list[WrittenFile] = []
        self.is_taken = False
        self._writer = writer

    def take(self) -> None:
        """Note that a commit has the files, or may have them."""
        self.finished, self.is_taken = [], True

    def see(self, files: Iterable[WrittenFile]) -> None:
        """Add files that tasks wrote; raise PartitionNotFound where the driver does not see them."""
        self.finished = [*files]
        listed = self._siblings()
        seen = None if listed is None else {*listed}
        missing = [one.path for one in self.finished if seen is not None and one.path not in seen]
        if missing:
            raise PartitionNotFound(
                "a task wrote a file that the driver does not see", path=missing[0], hint=ONE_FILE_SYSTEM
            )

    def delete_but(self, kept: Iterable[str], prefix: str = "") -> None:
        """Delete the files beside them, those whose names begin with `prefix`, that are not among `kept`."""
        found = {one.path for one in self.finished}
        with suppress(StorageError):  # what stays is not part of the table
            found |= {one for one in self._siblings() or () if one.rpartition("/")[2].startswith(prefix)}
        for path in found - {*kept}:
            self._writer.delete_file(path)

    def _siblings(self) -> list[str] | None:
        with store_errors("list the table's files", self._writer.name):
            return self._writer.siblings()


class _TaskShares:
    """A source of files that Spark's tasks write."""

    def __init__(self, spark: SparkSession, paths: Sequence[str], tell: Tell | None) -> None:
        self._spark = spark
        self._paths = paths
        self._tell = tell

    def __call__(self, rows: TopicRows, table: LakeTable, file_bytes: int) -> Generator[Share, None, None]:
        """Yield the shares of the commits."""
        check_executors(self._spark, [path for path in self._paths if "://" not in path])
        cores = self._spark.sparkContext.defaultParallelism
        tasks = _tasks(rows, file_bytes, cores)
        count = max(FILES_PER_COMMIT // FILES_PER_TASK, TASKS_A_CORE * cores)
        for first in range(0, len(tasks), count):
            yield from self._share(rows, table, file_bytes, tasks[first : first + count])

    def _share(
        self, rows: TopicRows, table: LakeTable, file_bytes: int, tasks: Sequence[Sequence[ReadRange]]
    ) -> Generator[Share, None, None]:
        """Yield the share of a commit: files of tasks that succeeded, and no others."""
        run = f"{uuid.uuid4().hex}-"
        before = sha256(f"{table.generation} {rows.topic} {sorted(rows.logs)}".encode()).hexdigest()[:16]
        writer = table.writer.with_prefix(f"kafkalog-{before}/{run}")
        ends = {one.number: one.stop for one in rows.ranges}
        work = _Work(
            self._paths, rows.topic, rows.topic_id, ends, rows.given, rows.samples, rows.names, rows.schema,
            rows.on_damage, writer, file_bytes,
        )  # fmt: skip
        files = _TaskFiles(writer)
        try:
            done = results(run_tasks(self._spark, partial(_write, work=work), tasks, "sync", self._tell))
            files.see(file for one in done for file in one.files)
            rows.selection.undecodable += sum(one.undecodable for one in done)
            if rows.skipped is not None:
                rows.skipped += [piece for one in done for piece in one.skipped]
            kept = [one.path for one in files.finished]
            reached = {one.number: one.stop for ranges in tasks for one in ranges}
            yield Share(files, sum(one.records for one in done), reached)
            files.delete_but(kept)  # the commit is made: other files beside them can never be committed
        finally:
            if not files.is_taken:
                files.delete_but((), run)


def _tasks(rows: TopicRows, file_bytes: int, cores: int) -> list[list[ReadRange]]:
    """Return the ranges of the tasks, cut at batches so that each task has about the same bytes."""
    views = {one.number: _view(rows, one.number) for one in rows.ranges}
    sizes = {one.number: bytes_between(views[one.number], one.start, one.stop) for one in rows.ranges}
    most_bytes = task_bytes(sum(sizes.values()), file_bytes, cores)
    pieces = []
    for one in rows.ranges:
        whole = OffsetRange(rows.topic, one.number, "", one.start, one.stop)
        view, parts = views[one.number], max(1, ceil(sizes[one.number] / most_bytes))
        for piece in cut(whole, boundaries(view, one.start, one.stop, ceil(sizes[one.number] / parts) or 1)):
            size = bytes_between(view, piece.start, piece.stop)
            pieces.append((ReadRange(one.number, piece.start, piece.stop), size))
    return grouped(pieces, most_bytes)


def _view(rows: TopicRows, number: int) -> LogView:
    source = rows.logs[number]._source
    assert isinstance(source, LogView)  # directories that were opened by path
    return source


def task_bytes(total: int, file_bytes: int, cores: int) -> int:
    """Return the most bytes of a task: an even share for each core, but no more than some files have, nor a trifle.

    >>> task_bytes(100 << 20, 128 << 20, 2) >> 20, task_bytes(1 << 40, 128 << 20, 2) >> 20, task_bytes(1, 1 << 10, 2)
    (55, 256, 16777216)
    """
    return max(MIN_TASK_BYTES, min(int(_SLACK * ceil(total / max(1, cores))), FILES_PER_TASK * file_bytes))


def grouped(pieces: Iterable[tuple[ReadRange, int]], most_bytes: int) -> list[list[ReadRange]]:
    """Return pieces, which have these bytes, in the lists of the tasks, in order: small ones share a task.

    >>> a, b, c = (ReadRange(number, 0, 9) for number in range(3))
    >>> grouped([(a, 3), (b, 2), (c, 4)], 5) == [[a, b], [c]]
    True
    """
    found: list[list[ReadRange]] = []
    room = 0
    for piece, size in pieces:
        if not found or size > room:
            found.append([])
            room = most_bytes
        found[-1].append(piece)
        room -= size
    return found


def _write(ranges: Sequence[ReadRange], *, work: _Work) -> _Done:
    """Run a task: write the rows of its ranges to files, which it deletes if it fails."""
    skipped: list[Skipped] = []
    with open_dirs(work.paths) as dirs:
        logs = {one.number: dirs[work.topic, one.number] for one in ranges}
        rows = TopicRows(
            work.topic, logs, ranges, work.given, on_damage=work.on_damage,
            skipped=skipped if work.on_damage == "skip" else None,
            batch_bytes=piece_bytes(work.file_bytes), samples=work.samples,
        )  # fmt: skip
        rows.names = dict(work.names)
        _check_same(rows, dirs.topics[work.topic].topic_id, work)
        records, files = 0, TableFiles(work.writer, work.file_bytes)
        try:
            for one in ranges:
                for piece in rows.pieces(one):
                    files.add(fitted(piece.rows, work.writer.schema))
                    records += piece.rows.num_rows
            files.close()
            done = _Done(files.finished, records, rows.selection.undecodable, skipped)
            files.take()
            return done
        finally:
            files.abandon()


def _check_same(rows: TopicRows, topic_id: str | None, work: _Work) -> None:
    """Raise an error where this task reads another topic than the driver planned for, a shorter log, or other columns.

    The markers of the transactions before the driver's end are before it, and decide on what this task reads.
    """
    if topic_id != work.topic_id:
        raise InconsistentTopicId(
            f"the topic had the id {work.topic_id} at the beginning, and has {topic_id} now",
            path=rows.logs[rows.ranges[0].number].path, hint="it was created again: sync it into another table",
        )  # fmt: skip
    for number, log in rows.logs.items():
        if log.end_offset < work.ends[number]:
            raise OffsetOutOfRange(
                f"the log ends at {log.end_offset} here, and where the job began it reaches {work.ends[number]}",
                path=log.path, offset=work.ends[number], hint="run the job again",
            )  # fmt: skip
    if rows.schema != work.schema:
        raise IllegalState(
            "the schema of the records changed while the job ran", path=work.writer.name, hint="run the job again"
        )
