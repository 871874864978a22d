"""The offset checkpoints of a data directory: log starts, recovery points, high watermarks, cleaner offsets.

    log-start-offset-checkpoint      only partitions whose start lies above their first segment's base offset
    recovery-point-offset-checkpoint offsets below are on disk: an unclean start checks only the rest
    replication-offset-checkpoint    the high watermark
    cleaner-offset-checkpoint        offsets below were cleaned

Each file is replaced whole (format.md section 8). Threads: safe; the directory's LogDir is held.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kafkalog.errors import CorruptCheckpoint
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
from kafkalog.util.os_errors import os_errors

_LOG: Final = logging.getLogger(__name__)
_FILES: Final = (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE, CLEANER_OFFSET_FILE)
_Offsets = dict[TopicPartition, int]
_write_lock: Final = guard()  # of all directories, over reading a file, changing it and its sync
_written: Final[dict[str, tuple[bytes, _Offsets]]] = {}  # guarded by _write_lock; by path, the last that was written
_MOST_WRITTEN: Final = 8
"""Files whose content is kept: each of many logs that are closed one by one changes one entry of two."""


def read_offset(directory: str, file: str, topic_partition: TopicPartition, *, fs: FileSystem = OS) -> int:
    """Return the partition's offset in a checkpoint file; 0 if it has none. CorruptCheckpoint, StorageError."""
    with _write_lock:
        return _read_locked(OffsetCheckpoint(os.path.join(directory, file), fs=fs)).get(topic_partition, 0)


def record_log_start(directory: str, log: UnifiedLog, *, next_start: int = 0, fs: FileSystem = OS) -> None:
    """Write a log's start to disk, or the one it will have; omitted if it is the first segment's base, or if the log
    is deleted.

    CorruptCheckpoint, StorageError.
    """

    def changed(offsets: _Offsets) -> _Offsets:
        # read now: another thread may have advanced the start, or deleted the log, and written that to disk first
        if log.name.endswith(DELETE_DIR_SUFFIX):
            return offsets
        return _with(offsets, log.topic_partition, next_start or log_start_of(log))

    _change(directory, LOG_START_FILE, changed, fs)


def lower_recovery_point(
    directory: str, topic_partition: TopicPartition, offset: int, *, fs: FileSystem = OS
) -> None:
    """Lower the recovery point on disk to at most `offset`. CorruptCheckpoint, StorageError."""
    _lower(directory, RECOVERY_POINT_FILE, {topic_partition: offset}, fs)


def lower_cleaner_offsets(directory: str, limits: Mapping[TopicPartition, int], *, fs: FileSystem = OS) -> None:
    """Lower the partitions' cleaner offsets on disk to at most these offsets. StorageError.

    Records appended after a truncation were never cleaned. A higher offset would keep their keys out of the next
    clean's map, and restore records that a tombstone among them deleted (MGR-25). So the offset is lowered before a
    truncation, and again when a log is opened that ends below it.
    """
    _lower(directory, CLEANER_OFFSET_FILE, limits, fs)


def record_close(
    directory: str, topic_partition: TopicPartition, recovery_point: int, high_watermark: int, *, fs: FileSystem = OS
) -> None:
    """Write the recovery point and the high watermark of a closed log to disk."""
    _record(directory, RECOVERY_POINT_FILE, topic_partition, recovery_point, fs)
    _record(directory, HIGH_WATERMARK_FILE, topic_partition, high_watermark, fs)


def write_recovery_points(directory: str, logs: Iterable[UnifiedLog], *, fs: FileSystem = OS) -> None:
    """Write the recovery points of a directory's logs to disk, without those of removed partitions.

    MGR-17, MGR-18; StorageError.
    """
    _write(directory, RECOVERY_POINT_FILE, logs, recovery_point_of, fs)


def write_log_starts(directory: str, logs: Iterable[UnifiedLog], *, fs: FileSystem = OS) -> None:
    """Write the log starts of a directory's logs that lie above the first segment's base (MGR-17). StorageError."""
    _write(directory, LOG_START_FILE, logs, log_start_of, fs)


def write_high_watermarks(directory: str, logs: Iterable[UnifiedLog], *, fs: FileSystem = OS) -> None:
    """Write the high watermarks of a directory's logs to disk. StorageError."""
    _write(directory, HIGH_WATERMARK_FILE, logs, high_watermark_of, fs)


def lower_offsets(directory: str, logs: Iterable[UnifiedLog], *, fs: FileSystem = OS) -> None:
    """Lower all checkpoints of truncated logs to the logs' present start and end (MGR-25).

    CorruptCheckpoint, StorageError.
    """
    cut = tuple(logs)
    ends = {log.topic_partition: log.data_end_offset for log in cut}
    for file in (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, CLEANER_OFFSET_FILE):
        _lower(directory, file, ends, fs)
    _lower(directory, LOG_START_FILE, {log.topic_partition: log.log_start_offset for log in cut}, fs)


def move_cleaner_offset(source: str, target: str, topic_partition: TopicPartition, *, fs: FileSystem = OS) -> None:
    """Copy a partition's cleaner offset, if there is one, from directory `source` to `target`.

    CorruptCheckpoint, StorageError.
    """
    offset = read_cleaner_offsets(source, fs=fs).get(topic_partition)
    if offset is not None:
        _record(target, CLEANER_OFFSET_FILE, topic_partition, offset, fs)


def read_cleaner_offsets(directory: str, *, fs: FileSystem = OS) -> dict[TopicPartition, int]:
    """Return the cleaned-up-to offsets of a directory's partitions. StorageError.

    A damaged file counts as empty: its logs are cleaned from their beginning, which loses nothing.
    """
    try:
        return OffsetCheckpoint(os.path.join(directory, CLEANER_OFFSET_FILE), fs=fs).read()
    except CorruptCheckpoint as error:
        _LOG.warning("%s: its logs will be cleaned from the beginning", error)
        return {}


def record_cleaner_offset(
    directory: str,
    topic_partition: TopicPartition,
    offset: int,
    *,
    fs: FileSystem = OS,
    is_still_valid: Callable[[], bool] = lambda: True,
) -> bool:
    """Write a partition's cleaner offset to disk and return True; removed partitions are left out (CLN-33).

    A damaged file is rewritten. If `is_still_valid` returns False, nothing is written and False is returned; it is
    called under the lock, so that no other thread lowers the offset in between. StorageError.
    """
    checkpoint = OffsetCheckpoint(os.path.join(directory, CLEANER_OFFSET_FILE), fs=fs)
    with _write_lock:
        if not is_still_valid():
            return False
        before = read_cleaner_offsets(directory, fs=fs)
        with os_errors("list the partitions", directory):
            existing = {key: known for key, known in before.items() if fs.exists(os.path.join(directory, str(key)))}
        checkpoint.write({**existing, topic_partition: offset})
    return True


def forget(directory: str, removed: Iterable[TopicPartition], *, fs: FileSystem = OS) -> None:
    """Remove these partitions' entries from all checkpoints of a directory: a new partition must not find them.

    CorruptCheckpoint, StorageError.
    """
    keys = frozenset(removed)
    for file in _FILES if keys else ():
        _change(directory, file, lambda offsets: {k: offset for k, offset in offsets.items() if k not in keys}, fs)


def recovery_point_of(log: UnifiedLog) -> int:
    """Return a log's recovery point, at most the end that the next opening finds; a cut inside a batch lowers that."""
    return min(log.recovery_point, log.data_end_offset)


def high_watermark_of(log: UnifiedLog) -> int:
    """Return a log's high watermark, at most the end that the next opening finds."""
    return min(log.high_watermark, log.data_end_offset)


def log_start_of(log: UnifiedLog) -> int | None:
    """Return a log's start; None if it equals the first segment's base offset."""
    state = log.state
    start: int = state.log_start_offset
    return start if start > state.segments[0].base_offset else None


def _write(
    directory: str, file: str, logs: Iterable[UnifiedLog], offset_of: Callable[[UnifiedLog], int | None], fs: FileSystem
) -> None:
    """Replace a directory's checkpoint; logs without an offset, and those deleted meanwhile, are left out.

    Entries of other partitions stay as long as the partition's directory exists: another owner in this process may have
    it open.
    """
    path = os.path.join(directory, file)
    checkpoint = OffsetCheckpoint(path, fs=fs)
    with _write_lock:
        offsets = {log.topic_partition: offset_of(log) for log in logs if not log.name.endswith(DELETE_DIR_SUFFIX)}
        written = {key: offset for key, offset in offsets.items() if offset is not None}
        try:
            before = _read_locked(checkpoint)
        except CorruptCheckpoint as error:
            _LOG.warning("%s: rewriting the file", error)
            _write_locked(checkpoint, written)
            return
        for key, offset in before.items():
            if key not in offsets and fs.exists(os.path.join(directory, str(key))):
                written[key] = offset
        if written != before or not fs.exists(path):
            _write_locked(checkpoint, written)


def _read_locked(checkpoint: OffsetCheckpoint) -> _Offsets:
    """Return the offsets in a file, parsed again only if it is not what was written last."""
    content = checkpoint.content()
    known = _written.get(checkpoint.path)
    return checkpoint.parsed(content) if known is None or known[0] != content else known[1]


def _write_locked(checkpoint: OffsetCheckpoint, offsets: _Offsets) -> None:
    _written.pop(checkpoint.path, None)
    _written[checkpoint.path] = checkpoint.write(offsets), offsets
    if len(_written) > _MOST_WRITTEN:
        del _written[next(iter(_written))]


def _record(directory: str, file: str, topic_partition: TopicPartition, offset: int, fs: FileSystem) -> None:
    """Write a partition's offset to disk."""
    _change(directory, file, lambda offsets: _with(offsets, topic_partition, offset), fs)


def _with(offsets: _Offsets, topic_partition: TopicPartition, offset: int | None) -> _Offsets:
    """Return the offsets with a partition's offset set, or removed if it is None."""
    changed = dict(offsets)
    changed.pop(topic_partition, None)
    return changed if offset is None else changed | {topic_partition: offset}


def _lower(directory: str, file: str, limits: Mapping[TopicPartition, int], fs: FileSystem) -> None:
    """Lower the partitions' offsets on disk to at most those in `limits`."""

    def lowered(offsets: _Offsets) -> _Offsets:
        return {key: min(offset, limits.get(key, offset)) for key, offset in offsets.items()}

    _change(directory, file, lowered, fs)


def _change(directory: str, file: str, changed: Callable[[_Offsets], _Offsets], fs: FileSystem) -> None:
    """Replace a checkpoint by the result of `changed`; no other thread changes it meanwhile.

    CorruptCheckpoint, StorageError. A damaged cleaner checkpoint counts as empty and raises no error.
    """
    checkpoint = OffsetCheckpoint(os.path.join(directory, file), fs=fs)
    with _write_lock:
        is_cleaners = file == CLEANER_OFFSET_FILE
        before = read_cleaner_offsets(directory, fs=fs) if is_cleaners else _read_locked(checkpoint)
        after = changed(before)
        if after != before:
            _write_locked(checkpoint, after)
