"""The offset checkpoints of a data directory: where each partition starts, is on disk, and is replicated to.

    log-start-offset-checkpoint      only partitions whose start lies above their first segment's base offset
    recovery-point-offset-checkpoint what lies below is on disk: an unclean start looks at the rest only
    replication-offset-checkpoint    the high watermark

Each file is replaced whole (format.md section 8). Threads: safe; the directory's LogDir is held.
"""

from __future__ import annotations

import os
import threading

from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE, OffsetCheckpoint
from kafkalog.util.fileio import OS, FileSystem

__all__ = ["read_offset", "record_close", "record_log_start", "record_recovery_point"]

_write_lock = threading.Lock()


def read_offset(directory: str, file: str, topic_partition: TopicPartition, *, fs: FileSystem = OS) -> int:
    """The partition's offset in a checkpoint file; 0 where it has none. CorruptCheckpoint, StorageError."""
    return OffsetCheckpoint(os.path.join(directory, file), fs=fs).read().get(topic_partition, 0)


def record_log_start(
    directory: str, topic_partition: TopicPartition, offset: int, first_base: int, *, fs: FileSystem = OS
) -> None:
    """Return when the log start is on disk; a start that the first segment's name tells is left out.

    CorruptCheckpoint, StorageError.
    """
    _record(directory, LOG_START_FILE, topic_partition, offset if offset > first_base else None, fs)


def record_recovery_point(
    directory: str, topic_partition: TopicPartition, offset: int, *, fs: FileSystem = OS
) -> None:
    """Return when the recovery point is on disk. CorruptCheckpoint, StorageError."""
    _record(directory, RECOVERY_POINT_FILE, topic_partition, offset, fs)


def record_close(
    directory: str, topic_partition: TopicPartition, recovery_point: int, high_watermark: int, *, fs: FileSystem = OS
) -> None:
    """Return when the recovery point and the high watermark of a log that was closed are on disk."""
    record_recovery_point(directory, topic_partition, recovery_point, fs=fs)
    _record(directory, HIGH_WATERMARK_FILE, topic_partition, high_watermark, fs)


def _record(directory: str, file: str, topic_partition: TopicPartition, offset: int | None, fs: FileSystem) -> None:
    checkpoint = OffsetCheckpoint(os.path.join(directory, file), fs=fs)
    with _write_lock:
        offsets = checkpoint.read()
        before = offsets.get(topic_partition)
        if offset is None:
            offsets.pop(topic_partition, None)
        else:
            offsets[topic_partition] = offset
        if offset != before:
            checkpoint.write(offsets)
