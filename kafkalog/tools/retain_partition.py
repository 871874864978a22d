"""The retention of one partition: looked at from outside, or done with the data directory held."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kafkalog.config import LogConfig
from kafkalog.manager.checkpoints import (
    high_watermark_of,
    read_offset,
    record_close,
    record_log_start,
    recovery_point_of,
)
from kafkalog.manager.log_dir import LogDir
from kafkalog.manager.partition import Found, open_partition
from kafkalog.storage.retention import Aged, Due, Reason, plan_retention
from kafkalog.storage.segments import LogSegments
from kafkalog.storage.view import LogView
from kafkalog.tools.directories import PartitionPath
from kafkalog.util.checkpoint import LOG_START_FILE, RECOVERY_POINT_FILE
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem


class PartitionPlan(NamedTuple):
    """What counts for a partition: its settings, the time, and whether all of the log is replicated."""

    place: PartitionPath
    config: LogConfig
    now_ms: int
    mark_is_end: bool

    @property
    def directory(self) -> str:
        """The data directory."""
        return os.path.dirname(self.place.path)


class DueSegment(NamedTuple):
    """A segment that goes: its partition, data file, first offset, bytes of data, largest time, and the rule."""

    topic: str
    partition: int
    path: str
    base_offset: int
    size: int
    largest_timestamp: int
    reason: Reason


class _Seen:
    """A segment of a view as the rules look at it: one without timestamps is as old as its file (LOG-40)."""

    last_known_offset = -1

    def __init__(self, segment: Any, fs: FileSystem) -> None:
        self.base_offset: int = segment.base_offset
        self.size: int = segment.size
        self.path: str = segment.path
        self._segment = segment
        self._fs = fs

    @property
    def largest_timestamp(self) -> int:
        largest: int = self._segment.largest_timestamp
        return largest if largest >= 0 else self._fs.stat(self.path).st_mtime_ns // 1_000_000


def look(plan: PartitionPlan, fs: FileSystem) -> list[DueSegment]:
    """What would go; nothing is locked or changed, and a broker may write. StorageError."""
    with LogView(plan.place.path, fs=fs) as view:
        end = view.log_end_offset
        mark = end if plan.mark_is_end else view.high_watermark
        segments = LogSegments(_Seen(segment, fs) for segment in view.segments)
        return _told(plan, plan_retention(Aged(segments, view.log_start_offset, end, mark), plan.config, plan.now_ms))


def delete_due(plans: Sequence[PartitionPlan], fs: FileSystem, clock: Clock) -> list[DueSegment]:
    """What went. A data directory is locked, and a log opened, only where something goes."""
    busy = [plan for plan in plans if look(plan, fs)]
    told: list[DueSegment] = []
    for directory in dict.fromkeys(plan.directory for plan in busy):
        with LogDir.acquire(directory, fs=fs) as log_dir:
            for plan in busy:
                if plan.directory == directory:
                    told += _delete(log_dir, plan, fs, clock)
    return told


def _delete(log_dir: LogDir, plan: PartitionPlan, fs: FileSystem, clock: Clock) -> list[DueSegment]:
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
            if mark is not None:
                log.update_high_watermark(mark)
            told = _told(plan, plan_retention(log.state, plan.config, plan.now_ms))
            log.delete_old_segments(plan.now_ms)
            record_log_start(plan.directory, log, fs=fs)
        finally:
            log.close()
        record_close(plan.directory, key, recovery_point_of(log), high_watermark_of(log), fs=fs)
        closed_well = True
    finally:
        log_dir.partition_closed(name, closed_well)
    return told


def _mark_of(path: str, fs: FileSystem) -> int:
    with LogView(path, fs=fs) as view:
        return view.high_watermark


def _told(plan: PartitionPlan, planned: Iterable[Due]) -> list[DueSegment]:
    topic, number = plan.place.topic_partition
    told = []
    for segment, reason in planned:
        newest = segment.largest_timestamp
        told.append(DueSegment(topic, number, segment.path, segment.base_offset, segment.size, newest, reason))
    return told
