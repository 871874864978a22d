"""A partition that no broker runs on, open for the time that something is done to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from kafkalog.config import LogConfig
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
from kafkalog.storage.view import LogView
from kafkalog.tools.directories import PartitionPath
from kafkalog.util.checkpoint import LOG_START_FILE, RECOVERY_POINT_FILE
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem


class OfflinePlan(Protocol):
    """Which partition of which data directory, its settings, and whether all of it counts as replicated."""

    @property
    def place(self) -> PartitionPath: ...
    @property
    def directory(self) -> str: ...
    @property
    def config(self) -> LogConfig: ...
    @property
    def mark_is_end(self) -> bool: ...


P = TypeVar("P", bound=OfflinePlan)
T = TypeVar("T")


def in_locked_directories(plans: Sequence[P], act: Callable[[LogDir, P], T], fs: FileSystem) -> list[T]:
    """What `act` gives for each plan, directory by directory, each of which is locked meanwhile. DirectoryLocked."""
    told: list[T] = []
    for directory in dict.fromkeys(plan.directory for plan in plans):
        with LogDir.acquire(directory, fs=fs) as log_dir:
            told += [act(log_dir, plan) for plan in plans if plan.directory == directory]
    return told


@contextmanager
def opened_offline(log_dir: LogDir, plan: OfflinePlan, fs: FileSystem, clock: Clock) -> Iterator[UnifiedLog]:
    """The log of a plan's partition, recovered where it needs that; closed, with its checkpoints, when the block ends.

    After an error in the block the directory vouches for it no more, and the next start recovers it. Errors as for
    `open_partition`.
    """
    key, path = plan.place
    name = os.path.basename(path)
    well = log_dir.vouches_for(name)
    start = read_offset(plan.directory, LOG_START_FILE, key, fs=fs)
    point = 0 if well else read_offset(plan.directory, RECOVERY_POINT_FILE, key, fs=fs)
    mark = None if plan.mark_is_end else _mark_of(path, fs)
    log = open_partition(log_dir, path, plan.config, Found(well, start, point), fs=fs, clock=clock)
    closed_well = False
    try:
        try:
            # before anything is appended behind a recovered end that lies below what was clean once
            lower_cleaner_offsets(plan.directory, {key: log.log_end_offset}, fs=fs)
            if mark is not None:
                log.update_high_watermark(mark)
            yield log
        finally:
            log.close()
        record_close(plan.directory, key, recovery_point_of(log), high_watermark_of(log), fs=fs)
        closed_well = True
    finally:
        log_dir.partition_closed(name, closed_well)


def _mark_of(path: str, fs: FileSystem) -> int:
    with LogView(path, fs=fs) as view:
        return view.high_watermark
