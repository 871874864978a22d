"""The offset checkpoints of a data directory: where each partition starts, is on disk, is replicated to, is clean to.

    log-start-offset-checkpoint      only partitions whose start lies above their first segment's base offset
    recovery-point-offset-checkpoint what lies below is on disk: an unclean start looks at the rest only
    replication-offset-checkpoint    the high watermark
    cleaner-offset-checkpoint        what lies below was cleaned

Each file is replaced whole (format.md section 8). Threads: safe; the directory's LogDir is held.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kafkalog.errors import CorruptCheckpoint, StorageError
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.names import DELETE_DIR_SUFFIX
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    OffsetCheckpoint,
)
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.guards import guard

_LOG: Final = logging.getLogger(__name__)
_FILES: Final = (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE, CLEANER_OFFSET_FILE)
_Offsets = dict[TopicPartition, int]
_write_lock: Final = guard()  # of all directories, over reading a file, changing it and its sync


def read_offset(directory: str, file: str, topic_partition: TopicPartition, *, fs: FileSystem = OS) -> int:
    """The partition's offset in a checkpoint file; 0 where it has none. CorruptCheckpoint, StorageError."""
    return OffsetCheckpoint(os.path.join(directory, file), fs=fs).read().get(topic_partition, 0)


def record_log_start(directory: str, log: UnifiedLog, *, fs: FileSystem = OS) -> None:
    """Return when a log's start is on disk; one that the first segment's name tells, or of a deleted log, is left out.

    CorruptCheckpoint, StorageError.
    """

    def changed(offsets: _Offsets) -> _Offsets:
        # what is so by now: another thread may have moved it on, or deleted the log, and put that on disk before us
        if log.name.endswith(DELETE_DIR_SUFFIX):
            return offsets
        return _with(offsets, log.topic_partition, log_start_of(log))

    _change(directory, LOG_START_FILE, changed, fs)


def record_recovery_point(
    directory: str, topic_partition: TopicPartition, offset: int, *, fs: FileSystem = OS
) -> None:
    """Return when the recovery point is on disk. CorruptCheckpoint, StorageError."""
    _record(directory, RECOVERY_POINT_FILE, topic_partition, offset, fs)


def lower_recovery_point(
    directory: str, topic_partition: TopicPartition, offset: int, *, fs: FileSystem = OS
) -> None:
    """Return when no higher recovery point than `offset` is on disk. CorruptCheckpoint, StorageError."""
    _lower(directory, RECOVERY_POINT_FILE, {topic_partition: offset}, fs)


def lower_cleaner_offsets(directory: str, most: Mapping[TopicPartition, int], *, fs: FileSystem = OS) -> None:
    """Return when it is not on disk that partitions were cleaned further than to these offsets. StorageError.

    What is appended behind the end of a log that was cut was never cleaned: a line that said so would keep its keys out
    of the next clean's map, and give back what a tombstone among them deleted (MGR-25). So it is lowered before a cut,
    and once more when the log is opened, where it says more than the log has.
    """
    _lower(directory, CLEANER_OFFSET_FILE, most, fs)


def record_close(
    directory: str, topic_partition: TopicPartition, recovery_point: int, high_watermark: int, *, fs: FileSystem = OS
) -> None:
    """Return when the recovery point and the high watermark of a log that was closed are on disk."""
    record_recovery_point(directory, topic_partition, recovery_point, fs=fs)
    _record(directory, HIGH_WATERMARK_FILE, topic_partition, high_watermark, fs)


def write_recovery_points(directory: str, logs: Iterable[UnifiedLog], *, fs: FileSystem = OS) -> None:
    """Return when the recovery points of a directory's logs are on disk, and those of partitions that went are not.

    MGR-17, MGR-18; StorageError.
    """
    _write(directory, RECOVERY_POINT_FILE, logs, recovery_point_of, fs)


def write_log_starts(directory: str, logs: Iterable[UnifiedLog], *, fs: FileSystem = OS) -> None:
    """The same of log starts, where they lie above the first segment's base (MGR-17)."""
    _write(directory, LOG_START_FILE, logs, log_start_of, fs)


def write_high_watermarks(directory: str, logs: Iterable[UnifiedLog], *, fs: FileSystem = OS) -> None:
    """The same of high watermarks."""
    _write(directory, HIGH_WATERMARK_FILE, logs, high_watermark_of, fs)


def lower_offsets(directory: str, logs: Iterable[UnifiedLog], *, fs: FileSystem = OS) -> None:
    """Return when no checkpoint says that these logs begin or end behind where they do: they were cut (MGR-25).

    CorruptCheckpoint, StorageError.
    """
    cut = tuple(logs)
    ends = {log.topic_partition: log.data_end_offset for log in cut}
    for file in (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, CLEANER_OFFSET_FILE):
        _lower(directory, file, ends, fs)
    _lower(directory, LOG_START_FILE, {log.topic_partition: log.log_start_offset for log in cut}, fs)


def move_cleaner_offset(source: str, target: str, topic_partition: TopicPartition, *, fs: FileSystem = OS) -> None:
    """Return when the directory `target` says how far a partition of `source` was cleaned, if that does.

    CorruptCheckpoint, StorageError.
    """
    offset = read_cleaner_offsets(source, fs=fs).get(topic_partition)
    if offset is not None:
        _record(target, CLEANER_OFFSET_FILE, topic_partition, offset, fs)


def read_cleaner_offsets(directory: str, *, fs: FileSystem = OS) -> dict[TopicPartition, int]:
    """Up to where the partitions of a directory were cleaned. StorageError.

    A damaged file says nothing: what it told of is cleaned from its beginning, which loses nothing.
    """
    try:
        return OffsetCheckpoint(os.path.join(directory, CLEANER_OFFSET_FILE), fs=fs).read()
    except CorruptCheckpoint as error:
        _LOG.warning("%s: its logs are cleaned from their beginning", error)
        return {}


def record_cleaner_offset(
    directory: str,
    topic_partition: TopicPartition,
    offset: int,
    *,
    fs: FileSystem = OS,
    still_so: Callable[[], bool] = lambda: True,
) -> bool:
    """True when it is on disk up to where a partition was cleaned; partitions that went are left out (CLN-33).

    A damaged file is written anew. Nothing is written unless `still_so` says True: nobody lowers it in between.
    StorageError.
    """
    checkpoint = OffsetCheckpoint(os.path.join(directory, CLEANER_OFFSET_FILE), fs=fs)
    with _write_lock:
        if not still_so():
            return False
        before = read_cleaner_offsets(directory, fs=fs)
        try:
            here = {key: at for key, at in before.items() if fs.exists(os.path.join(directory, str(key)))}
        except OSError as error:
            raise StorageError.from_os(error, "look for the partitions", path=directory) from error
        checkpoint.write({**here, topic_partition: offset})
    return True


def forget(directory: str, gone: Iterable[TopicPartition], *, fs: FileSystem = OS) -> None:
    """Return when no checkpoint of a directory has a line of these partitions: one made anew must not find it.

    CorruptCheckpoint, StorageError.
    """
    keys = frozenset(gone)
    for file in _FILES if keys else ():
        _change(directory, file, lambda offsets: {k: at for k, at in offsets.items() if k not in keys}, fs)


def recovery_point_of(log: UnifiedLog) -> int:
    """What is on disk of a log; not above what the next opening will find, which a cut inside a batch makes lower."""
    return min(log.recovery_point, log.data_end_offset)


def high_watermark_of(log: UnifiedLog) -> int:
    """A log's high watermark, as far as the next opening will find data."""
    return min(log.high_watermark, log.data_end_offset)


def log_start_of(log: UnifiedLog) -> int | None:
    """A log's start; None where the first segment's name tells it."""
    state = log.state
    start: int = state.log_start_offset
    return start if start > state.segments[0].base_offset else None


def _write(
    directory: str, file: str, logs: Iterable[UnifiedLog], offset_of: Callable[[UnifiedLog], int | None], fs: FileSystem
) -> None:
    """Replace a directory's checkpoint; logs without an offset, and those deleted meanwhile, are left out.

    What it says of a partition that is none of ours stays as long as the partition lies there: somebody else in this
    process may have it open.
    """
    path = os.path.join(directory, file)
    checkpoint = OffsetCheckpoint(path, fs=fs)
    with _write_lock:
        offsets = {log.topic_partition: offset_of(log) for log in logs if not log.name.endswith(DELETE_DIR_SUFFIX)}
        wanted = {key: offset for key, offset in offsets.items() if offset is not None}
        try:
            before = checkpoint.read()
        except CorruptCheckpoint as error:
            _LOG.warning("%s: it is written anew", error)
            checkpoint.write(wanted)
            return
        for key, offset in before.items():
            if key not in offsets and fs.exists(os.path.join(directory, str(key))):
                wanted[key] = offset
        if wanted != before or not fs.exists(path):
            checkpoint.write(wanted)


def _record(directory: str, file: str, topic_partition: TopicPartition, offset: int, fs: FileSystem) -> None:
    """Put a partition's offset on disk."""
    _change(directory, file, lambda offsets: _with(offsets, topic_partition, offset), fs)


def _with(offsets: _Offsets, topic_partition: TopicPartition, offset: int | None) -> _Offsets:
    """The offsets with that of a partition; None: it has none."""
    given = {} if offset is None else {topic_partition: offset}
    return {key: at for key, at in offsets.items() if key != topic_partition} | given


def _lower(directory: str, file: str, most: Mapping[TopicPartition, int], fs: FileSystem) -> None:
    """Put the offsets of `most` on disk where more is said of these partitions."""

    def lowered(offsets: _Offsets) -> _Offsets:
        return {key: min(at, most.get(key, at)) for key, at in offsets.items()}

    _change(directory, file, lowered, fs)


def _change(directory: str, file: str, changed: Callable[[_Offsets], _Offsets], fs: FileSystem) -> None:
    """Have a checkpoint say what `changed` makes of what it says; nobody else changes it meanwhile.

    CorruptCheckpoint, StorageError. A damaged cleaner checkpoint says nothing, and no error is needed to keep it.
    """
    checkpoint = OffsetCheckpoint(os.path.join(directory, file), fs=fs)
    with _write_lock:
        before = read_cleaner_offsets(directory, fs=fs) if file == CLEANER_OFFSET_FILE else checkpoint.read()
        after = changed(before)
        if after != before:
            checkpoint.write(after)
