"""Retention of one partition: a dry run without locks, or with the data directory held."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.config.topic import LogConfig
from kafkalog.manager.checkpoints import record_log_start
from kafkalog.manager.log_dir import LogDir
from kafkalog.storage.readonly.view import LogView
from kafkalog.storage.retention import Aged, Due, Reason, plan_retention
from kafkalog.storage.segments import LogSegments
from kafkalog.tools.directories import PartitionPath
from kafkalog.tools.offline_partition import in_locked_directories, opened_offline
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem

if TYPE_CHECKING:
    from kafkalog.storage.readonly.segment import ViewSegment
    from kafkalog.storage.segment import LogSegment


class PartitionPlan(NamedTuple):
    """Parameters of a partition's retention: settings, time, and `mark_is_end` (all of the log is replicated)."""

    place: PartitionPath
    config: LogConfig
    now_ms: int
    mark_is_end: bool

    @property
    def directory(self) -> str:
        """The data directory."""
        return os.path.dirname(self.place.path)


class DueSegment(NamedTuple):
    """A segment to delete: its partition, data file, first offset, bytes of data, largest time, and the rule."""

    topic: str
    partition: int
    path: str
    base_offset: int
    size: int
    largest_timestamp: int
    reason: Reason


class _Seen:
    """A segment of a view for the rules: one without timestamps is as old as its file (LOG-40)."""

    last_known_offset = -1

    def __init__(self, segment: ViewSegment, fs: FileSystem) -> None:
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
    """Return the segments to delete; nothing is locked or changed, and a broker may write. StorageError."""
    with LogView(plan.place.path, fs=fs) as view:
        end = view.log_end_offset
        mark = end if plan.mark_is_end else view.high_watermark
        segments = LogSegments(_Seen(segment, fs) for segment in view.segments)
        return _told(plan, plan_retention(Aged(segments, view.log_start_offset, end, mark), plan.config, plan.now_ms))


def delete_due(plans: Sequence[PartitionPlan], fs: FileSystem, clock: Clock) -> list[DueSegment]:
    """Delete segments and return them. Only directories and logs with such segments are locked and opened."""
    busy = [plan for plan in plans if look(plan, fs)]
    told = in_locked_directories(busy, lambda log_dir, plan: _delete(log_dir, plan, fs, clock), fs)
    return [one for some in told for one in some]


def _delete(log_dir: LogDir, plan: PartitionPlan, fs: FileSystem, clock: Clock) -> list[DueSegment]:
    with opened_offline(log_dir, plan, fs, clock) as log:
        told = _told(plan, plan_retention(log.state, plan.config, plan.now_ms))
        log.delete_old_segments(plan.now_ms)
        record_log_start(plan.directory, log, fs=fs)
        return told


def _told(plan: PartitionPlan, planned: Iterable[Due[_Seen] | Due[LogSegment]]) -> list[DueSegment]:
    topic, number = plan.place.topic_partition
    told = []
    for segment, reason in planned:
        newest = segment.largest_timestamp
        told.append(DueSegment(topic, number, segment.path, segment.base_offset, segment.size, newest, reason))
    return told
