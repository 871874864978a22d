"""A partition without a running broker, open while a tool works on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kafkalog.config.topic import LogConfig
from kafkalog.manager.checkpoints import (
    high_watermark_of,
    lower_cleaner_offsets,
    read_offset,
    record_close,
    recovery_point_of,
)
from kafkalog.manager.log_dir import LogDir
from kafkalog.manager.partition import Found, open_partition
from kafkalog.storage.log import UnifiedLog
from kafkalog.tools.directories import PartitionPath
from kafkalog.util.checkpoint import HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem

if TYPE_CHECKING:
    from kafkalog.storage.readonly.segment import ViewSegment


@dataclass(frozen=True)
class OfflinePlan:
    """A partition to work on: its settings, the time, and `mark_is_end` (all of the log is replicated)."""

    place: PartitionPath
    config: LogConfig
    now_ms: int
    mark_is_end: bool

    @property
    def directory(self) -> str:
        """The data directory."""
        return os.path.dirname(self.place.path)


class ViewedSegment:
    """A segment of a view for rules on age: one without timestamps is as old as its file (LOG-40)."""

    last_known_offset = -1

    def __init__(self, segment: ViewSegment) -> None:
        self.base_offset: int = segment.base_offset
        self.records = segment.records
        self.size: int = segment.size
        self.path: str = segment.path
        self._segment = segment

    @property
    def largest_timestamp(self) -> int:
        """Largest timestamp of the records, or the file's modification time (ms)."""
        largest: int = self._segment.largest_timestamp
        return largest if largest >= 0 else self.records.last_modified_ms()


P = TypeVar("P", bound=OfflinePlan)
T = TypeVar("T")


def in_locked_directories(plans: Sequence[P], act: Callable[[LogDir, P], T], fs: FileSystem) -> list[T]:
    """Call `act` for each plan, with the plan's data directory locked, and return the results. DirectoryLocked."""
    results: list[T] = []
    for directory in dict.fromkeys(plan.directory for plan in plans):
        with LogDir.acquire(directory, fs=fs) as log_dir:
            results += [act(log_dir, plan) for plan in plans if plan.directory == directory]
    return results


@contextmanager
def open_offline(log_dir: LogDir, plan: OfflinePlan, fs: FileSystem, clock: Clock) -> Iterator[UnifiedLog]:
    """Open the log of a plan's partition for the block, recovering it if necessary; then close it with its checkpoints.

    After an error in the block the directory no longer vouches for it, and the next start recovers it. Errors as for
    `open_partition`.
    """
    key, path = plan.place
    name = os.path.basename(path)
    is_clean = log_dir.vouches_for(name)
    start = read_offset(plan.directory, LOG_START_FILE, key, fs=fs)
    point = read_offset(plan.directory, RECOVERY_POINT_FILE, key, fs=fs)
    mark = None if plan.mark_is_end else read_offset(plan.directory, HIGH_WATERMARK_FILE, key, fs=fs)
    log = open_partition(
        log_dir, path, plan.config, Found(is_clean, start, point), fs=fs, clock=clock,
        keeps_begun_epochs=mark is not None,
    )  # fmt: skip
    is_closed_cleanly = False
    try:
        try:
            # before anything is appended after a recovered end below the cleaner offset
            lower_cleaner_offsets(plan.directory, {key: log.log_end_offset}, fs=fs)
            if mark is not None:
                log.update_high_watermark(mark)
            yield log
        finally:
            log.close()
        record_close(plan.directory, key, recovery_point_of(log), high_watermark_of(log), fs=fs)
        is_closed_cleanly = True
    finally:
        log_dir.partition_closed(name, is_closed_cleanly)
