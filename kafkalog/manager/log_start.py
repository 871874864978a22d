"""Where each partition of a data directory starts, when that is above its first segment: one checkpoint file."""

from __future__ import annotations

import os
import threading

from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import LOG_START_FILE, OffsetCheckpoint
from kafkalog.util.fileio import OS, FileSystem

_write_lock = threading.Lock()


def read_log_start(directory: str, topic_partition: TopicPartition, *, fs: FileSystem = OS) -> int:
    """The partition's checkpointed log start; 0 where there is none. CorruptCheckpoint, StorageError."""
    return OffsetCheckpoint(os.path.join(directory, LOG_START_FILE), fs=fs).read().get(topic_partition, 0)


def record_log_start(
    directory: str, topic_partition: TopicPartition, offset: int, first_base: int, *, fs: FileSystem = OS
) -> None:
    """Return when the log start is on disk. Like the reference's, the file names only partitions whose start
    lies above their first segment's base offset; the others' starts are in the file names.

    Threads: safe; the directory's LogDir is held. CorruptCheckpoint, StorageError.
    """
    checkpoint = OffsetCheckpoint(os.path.join(directory, LOG_START_FILE), fs=fs)
    with _write_lock:
        offsets = checkpoint.read()
        before = dict(offsets)
        if offset > first_base:
            offsets[topic_partition] = offset
        else:
            offsets.pop(topic_partition, None)
        if offsets != before:
            checkpoint.write(offsets)
