"""Planning of an export: what is still to be written, and whether the logs are those it began with."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import kafkalog
from kafkalog.errors import IllegalArgument, IllegalState, InconsistentTopicId, OffsetOutOfRange
from kafkalog.exchange.last_records import last_record
from kafkalog.exchange.manifest import ExportDirectory, ExportedFile, ExportedRange, ExportSettings, write_done
from kafkalog.exchange.ranges import OffsetRange
from kafkalog.exchange.sums import file_checksum
from kafkalog.log.log import Log
from kafkalog.records.column_reader import COLUMNS, kinds_of
from kafkalog.storage.readonly.view import LogView
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import FileSystem

CODECS: Final = {
    "parquet": ("zstd", "snappy", "gzip", "lz4", "brotli", "none"),
    "arrow": ("zstd", "lz4", "none"),
    "jsonl": ("none",),
}
"""Codecs of each format, the default first."""
FILE_BYTES: Final = 128 << 20
MIN_FILE_BYTES: Final = 1 << 10
MIN_TASK_BYTES: Final = 16 << 20
"""Least bytes of log in a task that is cut only to use all cores."""
FIRST_RATIO: Final = 2.0
MAX_RATIO: Final = 16.0
"""Bytes of log for a byte of Parquet: FIRST_RATIO before anything was exported, MAX_RATIO at most."""
OffsetOf = Callable[[TopicPartition], int]


@dataclass(frozen=True, slots=True)
class ExportTask:
    """A range of a partition, `log_bytes` of log, to files of about `file_bytes` in the directory `staging`."""

    range: OffsetRange
    log_bytes: int
    topic_id: str | None
    settings: ExportSettings
    compression: str
    file_bytes: int
    staging: str
    on_damage: str = "raise"
    fs: FileSystem | None = None
    typed: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of a scan that decodes; empty for one of bytes."""
    not_decoded: list[int] = field(default_factory=list, compare=False)
    """The keys and values that were read as nulls because they do not decode, added by each reading."""

    def open_log(self) -> Log:
        """Open the partition in the file system `fs`; None is that of its path."""
        if self.fs is None:
            return kafkalog.open(self.range.directory)
        return Log(LogView(self.range.directory, fs=self.fs), None)

    @property
    def reader_isolation(self) -> str:
        """Isolation of the settings, by the name that readers take."""
        return "read_committed" if self.settings.isolation == "committed" else self.settings.isolation

    def new_name(self) -> str:
        """Return a name for the files of one attempt at the task."""
        return f"{self.range.topic_partition}-{self.range.start:020d}-{os.urandom(6).hex()}"

    def staged_file(self, path: str, first: int, last: int, records: int, size: int, folder: str = "") -> ExportedFile:
        """Return the entry of the staged file `path` with the offsets `first` to `last`, below the topic's `folder`.

        Raises OSError.
        """
        topic_partition, suffix = self.range.topic_partition, os.path.splitext(path)[1]
        place = f"topic={self.range.topic}/{folder}{topic_partition}-{first:020d}-{last:020d}{suffix}"
        staged = f"{os.path.basename(self.staging)}/{os.path.basename(path)}"
        return ExportedFile(place, staged, records, size, file_checksum(path))

    def record_done(self, name: str, files: Iterable[ExportedFile]) -> ExportedRange:
        """Record that the files of the task are staged, complete and synced."""
        part = self.range
        written = tuple(files)
        with LogView(part.directory) if self.fs is None else LogView(part.directory, fs=self.fs) as view:
            last = last_record(view, part.start, part.stop)
        done = ExportedRange(
            part.topic, part.partition, part.start, part.stop, self.log_bytes, self.topic_id, written, last
        )
        write_done(self.staging, name, done)
        return done


def column_names(columns: Iterable[str] | None) -> tuple[str, ...]:
    """Return the columns of the files in the order of Spark's Kafka source; the topic is in the directories' names.

    Raises IllegalArgument for an unknown name, and if no column is left.
    """
    requested = COLUMNS if columns is None else tuple(COLUMNS[kind] for kind in kinds_of(columns))
    selected = tuple(name for name in COLUMNS if name in requested and name != "topic")
    if not selected:
        raise IllegalArgument("no column is selected besides the topic", hint=f"columns are {', '.join(COLUMNS)}")
    return selected


def task_bytes(log_bytes: int, cores: int, file_bytes: int, ratio: float) -> int:
    """Return the bytes of log for a task: enough for one file, or fewer to use all cores."""
    return max(1, min(int(file_bytes * ratio), max(MIN_TASK_BYTES, log_bytes // cores)))


def log_bytes_per_byte(ranges: Iterable[ExportedRange]) -> float:
    """Return the bytes of log for a byte of output, measured on the exported ranges."""
    pairs = [(one.log_bytes, sum(file.bytes for file in one.files)) for one in ranges if one.files]
    written = sum(size for _, size in pairs)
    return min(MAX_RATIO, max(1.0, sum(log for log, _ in pairs) / written)) if written else FIRST_RATIO


def check_same(
    directory: ExportDirectory,
    ids: Mapping[TopicPartition, str | None],
    latest: OffsetOf,
    view_of: Callable[[TopicPartition], LogView],
    paths: Mapping[TopicPartition, str],
) -> None:
    """Check that the logs in `paths` are the exported ones: the same topics, not shorter, with the same last record.

    Raises InconsistentTopicId or IllegalState.
    """
    for one in directory.ranges:
        now = ids.get(one.topic_partition)
        if now is not None and one.topic_id is not None and now != one.topic_id:
            raise InconsistentTopicId(
                f"{one.topic_partition} was exported from the topic with id {one.topic_id}, but this one has {now}",
                path=paths[one.topic_partition],
                hint="the topic was recreated: export it into another directory",
            )
    for key, end in _ends(directory, ids):
        now_end = latest(key)
        if now_end < end:
            raise IllegalState(
                f"{key} was exported up to offset {end}, but now ends at {now_end}",
                path=paths[key],
                offset=now_end,
                hint="the log was truncated or replaced: export it into another directory",
            )
        _check_last(key, directory, view_of(key), paths[key])


def _check_last(key: TopicPartition, directory: ExportDirectory, view: LogView, path: str) -> None:
    """Raise IllegalState if the log has another record in place of the last exported one that can be compared."""
    ranges = [one for one in directory.ranges if one.topic_partition == key and one.last is not None]
    for one in sorted(ranges, key=lambda one: -one.stop):
        offset = one.last.offset if one.last is not None else -1
        now = last_record(view, offset, offset + 1)
        if now is None:
            continue  # compacted away or deleted: an earlier one decides
        if now != one.last:
            raise IllegalState(
                f"{key} has another record at offset {offset} than the one that was exported",
                path=path,
                offset=offset,
                hint="the log was truncated or replaced: export it into another directory",
            )
        return


def check_loss(
    directory: ExportDirectory,
    earliest: OffsetOf,
    wanted: Iterable[TopicPartition],
    paths: Mapping[TopicPartition, str],
    loss: type[Warning] | None,
    hint: str,
) -> None:
    """Raise OffsetOutOfRange, with a hint, if records between the exported ones and the log start were deleted.

    With a warning class as `loss`, issue that warning instead.
    """
    for key, end in _ends(directory, wanted):
        first = earliest(key)
        if end < first:
            text = f"offsets {end} to {first - 1} of {key} were deleted before they were exported"
            if loss is None:
                raise OffsetOutOfRange(text, path=paths[key], offset=end, hint=hint)
            warnings.warn(text, loss, stacklevel=2)


def _ends(directory: ExportDirectory, wanted: Iterable[TopicPartition]) -> Iterator[tuple[TopicPartition, int]]:
    return ((key, directory.exported[key].end) for key in wanted if key in directory.exported)
