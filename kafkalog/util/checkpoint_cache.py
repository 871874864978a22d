"""Cache of offset checkpoints: a file is parsed once until it changes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from kafkalog.errors import StorageError
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import OffsetCheckpoint
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem

FRESH_MS: Final = 100
"""A file younger than this is not cached: it may change again within the resolution of its modification time."""


class _Known(NamedTuple):
    """Offsets of a file, and its identity to detect changes; `identity` is None for a missing file."""

    identity: tuple[int, int, int] | None
    offsets: Mapping[TopicPartition, int]


class CheckpointCache:
    """Offset checkpoints by path. A data directory has one for all of its partitions, and each partition reads it.

    Threads: safe; two concurrent calls may both parse the file.
    """

    def __init__(self, *, fs: FileSystem = OS, clock: Clock = SYSTEM_CLOCK) -> None:
        self._fs = fs
        self._clock = clock
        self._known: dict[str, _Known] = {}

    def read(self, path: str) -> Mapping[TopicPartition, int]:
        """Return the offsets in the file at `path`, read-only; none for a missing file.

        An unchanged file costs one `stat`. Errors as for OffsetCheckpoint.read.
        """
        stat = self._stat(path)
        identity = None if stat is None else (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        known = self._known.get(path)
        if known is not None and known.identity == identity:
            return known.offsets
        age_ms = None if stat is None else self._clock.milliseconds() - stat.st_mtime_ns // 1_000_000
        offsets = {} if stat is None else OffsetCheckpoint(path, fs=self._fs).read()
        if age_ms is None or age_ms >= FRESH_MS:
            self._known[path] = _Known(identity, offsets)
        return offsets

    def _stat(self, path: str) -> os.stat_result | None:
        try:
            return self._fs.stat(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError.from_os(error, "read the status of the checkpoint file", path=path) from error
