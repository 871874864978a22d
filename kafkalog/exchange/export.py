"""`export_records`: exports ranges of logs to Parquet, Arrow or JSON lines in a single process.

The directory and manifest are those of `kafkalog spark export`. Either one resumes where the other, or a killed run,
stopped, and no record is ever written twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from kafkalog.errors import (
    CorruptRecord,
    IllegalArgument,
    InvalidRecord,
    KafkalogError,
    NotAPartition,
    UnknownTopicOrPartition,
)
from kafkalog.exchange.decoding import checked_decoding, topic_decoders
from kafkalog.exchange.intervals import OffsetSet
from kafkalog.exchange.manifest import ExportDirectory, ExportedRange, ExportSettings, is_export
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
from kafkalog.reading.chunks import check_tail, check_transactions
from kafkalog.reading.source import end_of, isolation_of, skipped_of
from kafkalog.storage.damage import Skipped, note_skipped
from kafkalog.storage.outside_data import refuse_data_directory
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.storage.readonly.view import LogView
from kafkalog.storage.remote import refuse_urls
from kafkalog.tiered.open import located
from kafkalog.tools.directories import PartitionPath, Path, find, partitions, path_list
from kafkalog.tools.offsets import Bounds
from kafkalog.tools.verify.segment import Progress
from kafkalog.types import Isolation, TopicPartition
from kafkalog.util.fileio import FileSystem

FORMATS: Final = tuple(CODECS)
_OWN_TOPICS: Final = "__"


class ExportReport(NamedTuple):
    """Result of one run: `records`, `files` and `bytes` written, and the records that were in the directory before.

    `skipped` lists damaged bytes that were left out. `damaged` holds the errors of partitions exported up to damage,
    `undecodable` those of partitions exported up to a record that does not decode or breaks the format. `not_decoded`
    counts the keys and values that did not decode and are null, also in records that a condition left out for it.
    """

    records: int
    files: int
    bytes: int
    before: int
    skipped: tuple[Skipped, ...] = ()
    damaged: tuple[CorruptRecord, ...] = ()
    undecodable: tuple[InvalidRecord, ...] = ()
    not_decoded: int = 0


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
    where: str | None = None,
    tiered: Path | None = None,
    progress: Progress | None = None,
    **decoding: Any,
) -> ExportReport:
    """Export the records of topics into the directory `target`: files `topic=NAME/...` of about `file_bytes`.

    `dirs` are data directories or their URLs (docs/remote.md). Without `topics`, all topics except Kafka's own are
    exported; `numbers` are partitions of one topic. With `tiered`, the URL or description of a tiered store
    (docs/tiered.md), partitions are exported whole. `bounds` limits the offsets. With `where`, a condition
    (docs/where.md), only the records for which it is true are exported. `columns` are those of `Log.scan`; JSON lines
    have all, as `kafkalog consume -J` prints them. `decoding` are the keywords of `Log.scan` for typed keys and values
    (docs/values.md), such as `value="avro", schemas="schemas"`; the types of a topic are those of the run that exported
    it first. With `by_date` there is a directory for each day. With `resume` the directory may hold an export with the
    same settings: only new records are written. `progress` is called with the bytes of log finished. With
    `on_damage="skip"` bytes that are not an intact batch are left out and reported. Otherwise the records before the
    damage are written, then the other partitions, and then IncompleteExport, a CorruptRecord, is raised; its `report`
    has the damage of each partition. So it is for records that do not decode: UndecodableExport, an InvalidRecord.

    Each part is written completely or not at all. Raises IllegalArgument for a target that holds something else, or an
    export without `resume`; UnknownTopicOrPartition; IllegalState and InconsistentTopicId for another log than before;
    OffsetOutOfRange for deleted records; CorruptRecord; InvalidRecord; StorageError; DirectoryLocked; MissingPackage.

    >>> log.flush()
    >>> export_records("data", "out", "jsonl", topics=["orders"])
    ExportReport(records=2, files=1, bytes=..., before=0, skipped=(), damaged=(), undecodable=(), not_decoded=0)
    """
    refuse_urls(target)
    fs, paths = located(path_list(dirs), tiered)
    refuse_data_directory(target, "an export", [os.path.realpath(path) for path in paths])
    codec = _checked_codec(format, columns, by_date, compression, file_bytes)
    given = checked_decoding(decoding)
    settings = _settings(format, columns, isolation, by_date, where, given)
    found = _partitions(paths, topics, numbers, fs)
    if is_export(os.fspath(target)) and not resume:
        raise IllegalArgument("the directory already has an export", path=target, hint="continue it with --resume")
    with ExitStack() as stack:
        limits, run = bounds or Bounds(), _ExportRun(found, fs, on_damage, stack)
        found = [one for one in found if one.topic_partition in run.views]
        given |= {"isolation": isolation, "on_damage": on_damage}
        decoders = partial(topic_decoders, found, fs, settings, given)
        fresh = None if is_export(os.fspath(target)) else decoders({}, {})  # before anything is made
        directory = stack.enter_context(ExportDirectory(os.fspath(target), settings))
        before = sum(one.records for one in directory.ranges)
        parts = _plan(dict(found), fs, run.views, directory, limits, file_bytes, isolation)
        typed = decoders(directory.types, directory.exported) if fresh is None or directory.types else fresh
        directory.add_types({topic: settled for topic, (_, settled) in typed.items()})
        for part, log_bytes, topic_id in parts:
            run.export(ExportTask(part, log_bytes, topic_id, settings, codec, file_bytes, directory.staging, on_damage,
                                  fs, typed[part.topic][0]))  # fmt: skip
            run.written += directory.commit_staged()
            if progress is not None:
                progress(log_bytes)
        run.check_ends(limits, settings.isolation == "committed")
    return run.report(before)


class _ExportRun:
    """The parts of one export: what was written of them, and the damage found in them.

    A partition that cannot be opened, because it has no segments, is damaged.
    """

    def __init__(self, found: Sequence[PartitionPath], fs: FileSystem, on_damage: str, stack: ExitStack) -> None:
        self.written: list[ExportedRange] = []
        self.views: dict[TopicPartition, LogView] = {}
        """The partitions that could be opened; `stack` closes them."""
        self.skipped: list[Skipped] = []
        self.damaged: dict[TopicPartition, CorruptRecord] = {}
        self.undecodable: dict[TopicPartition, InvalidRecord] = {}
        self.not_decoded = 0
        self._skip_list = skipped_of(on_damage, self.skipped if on_damage == "skip" else None)
        for key, path in found:
            try:
                self.views[key] = stack.enter_context(LogView(path, fs=fs))
            except NotAPartition as error:
                if self._skip_list is None:
                    self.damaged[key] = CorruptRecord(error.message, path=error.path, hint=error.hint)
                else:
                    note_skipped(self._skip_list, Skipped(path, 0, 0, 0, 0, error.message))

    def export(self, task: ExportTask) -> None:
        """Write the files of a part, up to the first error; later parts of a partition with an error are skipped."""
        key = task.range.topic_partition
        if key in self.damaged or key in self.undecodable:
            return
        try:
            damage = export_part(task, self._skip_list)
        except InvalidRecord as error:
            if error.offset is None:
                raise
            if task.range.start < error.offset < task.range.stop:  # another column may not decode before
                self.export(replace(task, range=replace(task.range, stop=error.offset)))
            self.undecodable.setdefault(key, self._with_position(key, error, error.offset))
            return
        self.not_decoded += sum(task.not_decoded)
        if damage is not None:
            self.damaged[key] = damage

    def _with_position(self, key: TopicPartition, error: InvalidRecord, offset: int) -> InvalidRecord:
        """Return the error with the segment and the position of the record's batch, if they are to be had."""
        segment = self.views[key].segment_of(offset)
        try:
            place = None if segment is None or error.position is not None else segment.translate_offset(offset)
        except KafkalogError:
            place = None
        if segment is not None and place is not None:
            error.path, error.position = segment.path, place[1]
        return error

    def check_ends(self, bounds: Bounds, committed: bool) -> None:
        """Record damage at the ends of logs that were read to their ends, or to the last `committed` record."""
        for key, view in self.views.items():
            if key not in self.damaged and key not in self.undecodable and bounds.stop_offset(view) is None:
                try:
                    check_tail(view, view.log_end_offset, self._skip_list)
                    if committed and self._skip_list is None:
                        check_transactions(view, view.last_stable_offset)
                except CorruptRecord as error:
                    self.damaged[key] = error

    def report(self, before: int) -> ExportReport:
        """Return what the run wrote; raise IncompleteExport, with the report, if partitions are damaged."""
        files = [file for one in self.written for file in one.files]
        found = ExportReport(
            sum(one.records for one in self.written), len(files), sum(file.bytes for file in files), before,
            tuple(self.skipped), tuple(self.damaged.values()), tuple(self.undecodable.values()),
            self.not_decoded,
        )  # fmt: skip
        if self.damaged:
            raise _incomplete_export(found)
        if self.undecodable:
            raise _undecodable_export(found)
        return found


class IncompleteExport(CorruptRecord):
    """Damage kept records out of an export; `report` has what was written and the places of all damage."""

    report: ExportReport


class UndecodableExport(InvalidRecord):
    """Records that do not decode kept others out of an export; `report` has what was written and all such errors."""

    report: ExportReport


def _undecodable_export(report: ExportReport) -> UndecodableExport:
    first, count = report.undecodable[0], len(report.undecodable)
    others = f"; {count - 1} more partitions have such a record" if count > 2 else "; so does one more" * (count - 1)
    error = UndecodableExport(
        f"{first.message}{others}", path=first.path, offset=first.offset, position=first.position, hint=first.hint
    )
    error.report = report
    return error


def _incomplete_export(report: ExportReport) -> IncompleteExport:
    first, count = report.damaged[0], len(report.damaged)
    others = f"; {count - 1} more partitions are damaged" if count > 2 else "; one more is damaged" * (count - 1)
    error = IncompleteExport(
        f"{first.message}{others}", path=first.path, offset=first.offset, position=first.position,
        hint="`kafkalog export --resume --on-damage skip` also exports the sound records after the damage",
    )  # fmt: skip
    error.last_sound_offset, error.next_sound_offset = first.last_sound_offset, first.next_sound_offset
    error.report = report
    return error


def _checked_codec(
    format: str, columns: Iterable[str] | None, by_date: bool, compression: str | None, file_bytes: int
) -> str:
    """Return the codec of the files; raise IllegalArgument for settings that do not fit together."""
    if format not in FORMATS:
        raise IllegalArgument(f"format is {format!r}", hint=f"give {', '.join(FORMATS)}")
    if format == "jsonl" and (columns is not None or by_date):
        raise IllegalArgument("JSON lines have all fields and no date directories", hint="export Parquet instead")
    if file_bytes < MIN_FILE_BYTES:
        raise IllegalArgument(f"file size {file_bytes} is too small", hint=f"give at least {MIN_FILE_BYTES} bytes")
    codec = compression or CODECS[format][0]
    if codec not in CODECS[format]:
        raise IllegalArgument(f"compression is {codec!r}", hint=f"{format} supports {', '.join(CODECS[format])}")
    return codec


def _settings(
    format: str,
    columns: Iterable[str] | None,
    isolation: str | None,
    by_date: bool,
    where: str | None,
    given: Mapping[str, Any],
) -> ExportSettings:
    """Return the settings of an export; `given` are its keywords of decoders."""
    lenient = given.get("on_undecodable", "raise") if given else None
    return ExportSettings(
        column_names(columns), isolation_of(isolation), by_date, format,
        None if where is None else _checked_condition(where, given), given.get("key"), given.get("value"), lenient,
    )  # fmt: skip


def _checked_condition(where: str, decoding: Mapping[str, Any]) -> str:
    """Return a condition in its own words; raise IllegalArgument for one that is wrong, MissingPackage for pyarrow."""
    from kafkalog.where import parse

    expression = parse(where)
    if decoding.get("key") is None and decoding.get("value") is None:
        expression.check()  # otherwise it is checked with the types of the values
    return str(expression)


def _partitions(
    paths: Sequence[str], topics: Sequence[str], numbers: Sequence[int], fs: FileSystem
) -> list[PartitionPath]:
    if numbers and len(topics) != 1:
        raise IllegalArgument("partition numbers need exactly one topic", hint="name the topic")
    if topics:
        found = [one for topic in topics for one in find(paths, topic, numbers, fs=fs)]
    else:
        found = [one for one in partitions(paths, fs=fs) if not one.topic_partition.topic.startswith(_OWN_TOPICS)]
    if not found:
        raise UnknownTopicOrPartition(
            "no partitions to export", path=os.pathsep.join(paths), hint="check the path and the topics"
        )
    return found


def _plan(
    found: Mapping[TopicPartition, str],
    fs: FileSystem,
    views: Mapping[TopicPartition, LogView],
    directory: ExportDirectory,
    bounds: Bounds,
    file_bytes: int,
    isolation: str | None,
) -> list[tuple[OffsetRange, int, str | None]]:
    """Return the parts still to be exported, of about a file each, with their bytes of log and the topic's id."""
    level: Isolation = isolation_of(isolation)
    ends = {key: end_of(view, level) for key, view in views.items()}
    ids = {key: read_partition_metadata(fs, path) for key, path in found.items()}
    check_same(directory, ids, lambda key: views[key].log_end_offset, views.__getitem__, found)
    if bounds == Bounds():
        hint = "`-o beginning` exports the remaining records; export more often"
        check_loss(directory, lambda key: views[key].log_start_offset, found, found, None, hint)
    max_bytes = task_bytes(1 << 62, 1, file_bytes, log_bytes_per_byte(directory.ranges))
    parts = []
    for key, view in views.items():
        start, until = bounds.first_offset(view, ends[key]), bounds.stop_offset(view)
        stop = ends[key] if until is None else min(until, ends[key])
        for first, last in directory.exported.get(key, OffsetSet()).missing(start, stop):
            whole = OffsetRange(key.topic, key.partition, found[key], first, last)
            for part in cut(whole, boundaries(view, first, last, max_bytes)):
                parts.append((part, max(1, bytes_between(view, part.start, part.stop)), ids[key]))
    return parts
