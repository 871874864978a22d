"""`export_records`: ranges of logs to Parquet, Arrow or JSON lines, by this process alone.

The directory is the one that `kafkalog spark export` writes, with the same manifest: either goes on where the other, or
a run that was killed, had stopped, and no record is ever there twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final, NamedTuple

from kafkalog.chunks import check_tail
from kafkalog.engine import end_of, isolation_of, skipped_of
from kafkalog.errors import CorruptRecord, IllegalArgument, UnknownTopicOrPartition
from kafkalog.exchange.intervals import OffsetSet
from kafkalog.exchange.manifest import ExportDirectory, ExportedRange, ExportSettings, is_export
from kafkalog.exchange.parts import export_part
from kafkalog.exchange.planning import (
    FILE_BYTES,
    LEAST_FILE_BYTES,
    check_loss,
    check_same,
    column_names,
    log_bytes_per_byte,
    task_bytes,
)
from kafkalog.exchange.ranges import OffsetRange, boundaries, bytes_between, cut
from kafkalog.exchange.tasks import ExportTask
from kafkalog.remote import is_url, locate_directories, refuse_urls
from kafkalog.storage.damage import Skipped
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.storage.view import LogView
from kafkalog.tools.directories import PartitionPath, Path, find, partitions, path_list
from kafkalog.tools.offsets import Bounds
from kafkalog.tools.verify_segment import Progress
from kafkalog.types import Isolation, TopicPartition
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.remote_files import RemoteFileSystem

__all__ = ["FORMATS", "ExportReport", "IncompleteExport", "export_records"]

FORMATS: Final = ("parquet", "arrow", "jsonl")
_CODECS: Final = {
    "parquet": ("zstd", "snappy", "gzip", "lz4", "brotli", "none"),
    "arrow": ("zstd", "lz4", "none"),
    "jsonl": ("none",),
}
_OWN_TOPICS: Final = "__"


class ExportReport(NamedTuple):
    """What one run wrote (`records`, `files`, `bytes`), and how many records were in the directory before it.

    `skipped` are damaged bytes that were left out, `damaged` the errors of partitions that were written up to damage.
    """

    records: int
    files: int
    bytes: int
    before: int
    skipped: tuple[Skipped, ...] = ()
    damaged: tuple[CorruptRecord, ...] = ()


def export_records(
    dirs: Path | Iterable[Path],
    target: Path,
    format: str = "parquet",
    *,
    topics: Sequence[str] = (),
    numbers: Sequence[int] = (),
    bounds: Bounds | None = None,
    columns: Iterable[str] | None = None,
    isolation: str | None = None,
    by_date: bool = False,
    compression: str | None = None,
    file_bytes: int = FILE_BYTES,
    resume: bool = False,
    on_damage: str = "raise",
    progress: Progress | None = None,
) -> ExportReport:
    """Exports the records of topics into the directory `target`: files `topic=NAME/...` of about `file_bytes`.

    `dirs` are data directories, or URLs of such (docs/remote.md).
    `topics` are all but Kafka's own where none is named; `numbers` are partitions of one topic. `bounds` say where to
    begin and end. `columns` are those of `Log.scan`; JSON lines have all, as `kafkalog consume -J` prints them. With
    `by_date` there is a directory for each day of the records' times. With `resume` the directory may have an export
    with the same settings: what is in it is not written again, and what is new is. `progress` is called with bytes of
    the log that are done. With `on_damage="skip"` bytes that are no sound batch are left out, and are in the report.

    At damage the records before it are written, then the other partitions. Then IncompleteExport is raised,
    a CorruptRecord: its `report` has the damage of each partition.

    Each part is in the directory whole or not at all, whatever happens. Errors: IllegalArgument for a target that
    holds something else, or an export while `resume` is not given; UnknownTopicOrPartition; IllegalState and
    InconsistentTopicId for a log that is not the one that was exported; OffsetOutOfRange for records that were deleted
    before they were exported; CorruptRecord; StorageError; DirectoryLocked; MissingPackage without pyarrow.

    >>> log.flush()
    >>> export_records("data", "out", "jsonl", topics=["orders"])
    ExportReport(records=2, files=1, bytes=..., before=0, skipped=(), damaged=())
    """
    refuse_urls(target)
    fs, paths = _where(path_list(dirs))
    codec = _checked(format, columns, by_date, compression, file_bytes)
    settings = ExportSettings(column_names(columns), isolation_of(isolation), by_date, format)
    found = _partitions(paths, topics, numbers, fs)
    if is_export(os.fspath(target)) and not resume:
        raise IllegalArgument("there is an export already", path=target, hint="give --resume to go on with it")
    with ExportDirectory(os.fspath(target), settings) as directory, ExitStack() as stack:
        before = sum(one.records for one in directory.ranges)
        views = {key: stack.enter_context(LogView(path, fs=fs)) for key, path in found}
        written: list[ExportedRange] = []
        ids = {key: read_partition_metadata(fs, path) for key, path in found}
        parts = _plan(dict(found), ids, views, directory, bounds or Bounds(), file_bytes, isolation)
        run = _Run(views, on_damage)
        for part, log_bytes, topic_id in parts:
            if isinstance(fs, RemoteFileSystem):
                part = replace(part, directory=fs.url_of(part.directory))
            task = ExportTask(part, log_bytes, topic_id, settings, codec, file_bytes, directory.staging, on_damage)
            run.export(task)
            written += directory.commit_staged()
            if progress is not None:
                progress(log_bytes)
        run.check_ends(bounds or Bounds())
    files = [file for one in written for file in one.files]
    report = ExportReport(
        sum(one.records for one in written), len(files), sum(file.bytes for file in files), before,
        tuple(run.skipped), tuple(run.damaged.values()),
    )  # fmt: skip
    if run.damaged:
        raise _incomplete(report)
    return report


class _Run:
    """The parts of one export, and the damage met in them."""

    def __init__(self, views: Mapping[TopicPartition, LogView], on_damage: str) -> None:
        self.skipped: list[Skipped] = []
        self.damaged: dict[TopicPartition, CorruptRecord] = {}
        self._views = views
        self._noted = skipped_of(on_damage, self.skipped if on_damage == "skip" else None)

    def export(self, task: ExportTask) -> None:
        """Write the files of a part, of a damaged one up to the damage; nothing behind that in the same partition."""
        key = task.range.topic_partition
        if key in self.damaged:
            return
        if (damage := export_part(task, self._noted)) is not None:
            self.damaged[key] = damage

    def check_ends(self, bounds: Bounds) -> None:
        """Note damage at the ends of logs that were read to their ends."""
        for key, view in self._views.items():
            if key not in self.damaged and bounds.stop_offset(view) is None:
                try:
                    check_tail(view, view.log_end_offset, self._noted)
                except CorruptRecord as error:
                    self.damaged[key] = error


class IncompleteExport(CorruptRecord):
    """Damage kept records out of an export; its `report` says what was written, and where all damage lies."""

    report: ExportReport


def _incomplete(report: ExportReport) -> IncompleteExport:
    first, count = report.damaged[0], len(report.damaged)
    others = f"; {count - 1} more partitions are damaged" if count > 2 else "; one more partition is" * (count - 1)
    error = IncompleteExport(
        f"{first.message}{others}", path=first.path, offset=first.offset, position=first.position,
        hint="`kafkalog export --resume --on-damage skip` writes the sound records behind the damage too",
    )  # fmt: skip
    error.last_sound_offset, error.next_sound_offset = first.last_sound_offset, first.next_sound_offset
    error.report = report
    return error


def _checked(
    format: str, columns: Iterable[str] | None, by_date: bool, compression: str | None, file_bytes: int
) -> str:
    """The codec of the files; IllegalArgument for what does not go together."""
    if format not in FORMATS:
        raise IllegalArgument(f"format is {format!r}", hint=f"give {', '.join(FORMATS)}")
    if format == "jsonl" and (columns is not None or by_date):
        raise IllegalArgument("JSON lines have all fields, and no directories for dates", hint="export Parquet instead")
    if file_bytes < LEAST_FILE_BYTES:
        raise IllegalArgument(f"files of {file_bytes} bytes are asked for", hint=f"give {LEAST_FILE_BYTES} or more")
    codec = compression or _CODECS[format][0]
    if codec not in _CODECS[format]:
        raise IllegalArgument(f"compression is {codec!r}", hint=f"{format} has {', '.join(_CODECS[format])}")
    return codec


def _where(given: list[str]) -> tuple[FileSystem, list[str]]:
    if any(is_url(one) for one in given):
        return locate_directories(given)
    return OS, [os.path.abspath(one) for one in given]


def _partitions(
    paths: Sequence[str], topics: Sequence[str], numbers: Sequence[int], fs: FileSystem
) -> list[PartitionPath]:
    if numbers and len(topics) != 1:
        raise IllegalArgument("partitions are named, which are of one topic", hint="name the topic")
    if topics:
        found = [one for topic in topics for one in find(paths, topic, numbers, fs=fs)]
    else:
        found = [one for one in partitions(paths, fs=fs) if not one.topic_partition.topic.startswith(_OWN_TOPICS)]
    if not found:
        raise UnknownTopicOrPartition(
            "there is no partition to export", path=os.pathsep.join(paths), hint="check the path and the topics"
        )
    return found


def _plan(
    found: Mapping[TopicPartition, str],
    ids: Mapping[TopicPartition, str | None],
    views: Mapping[TopicPartition, LogView],
    directory: ExportDirectory,
    bounds: Bounds,
    file_bytes: int,
    isolation: str | None,
) -> list[tuple[OffsetRange, int, str | None]]:
    """What is not exported yet, cut into parts of about a file, with the bytes of log and the topic's id."""
    level: Isolation = isolation_of(isolation)
    ends = {key: end_of(view, level) for key, view in views.items()}
    check_same(directory, ids, lambda key: views[key].log_end_offset, found)
    if bounds == Bounds():
        check_loss(directory, lambda key: views[key].log_start_offset, found, found, None)
    most = task_bytes(1 << 62, 1, file_bytes, log_bytes_per_byte(directory.ranges))
    parts = []
    for key, view in views.items():
        start, until = bounds.first_offset(view, ends[key]), bounds.stop_offset(view)
        stop = ends[key] if until is None else min(until, ends[key])
        for first, last in directory.exported.get(key, OffsetSet()).missing(start, stop):
            whole = OffsetRange(key.topic, key.partition, found[key], first, last)
            for part in cut(whole, boundaries(view, first, last, most)):
                parts.append((part, max(1, bytes_between(view, part.start, part.stop)), ids[key]))
    return parts
