"""Retention of one partition: a dry run without locks, or with the data directory held."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import NotAPartition
from kafkalog.manager.checkpoints import record_log_start
from kafkalog.manager.log_dir import LogDir
from kafkalog.storage.readonly.view import LogView
from kafkalog.storage.retention import Aged, Due, Reason, plan_retention
from kafkalog.storage.segments import LogSegments
from kafkalog.tools.offline_partition import OfflinePlan, ViewedSegment, in_locked_directories, open_offline
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem

if TYPE_CHECKING:
    from kafkalog.storage.segment import LogSegment


class DueSegment(NamedTuple):
    """A segment to delete: its partition, data file, first offset, bytes of data, largest time, and the rule."""

    topic: str
    partition: int
    path: str
    base_offset: int
    size: int
    largest_timestamp: int
    reason: Reason


def look(plan: OfflinePlan, fs: FileSystem) -> list[DueSegment]:
    """Return the segments to delete, none without segments; nothing is locked or changed, and a broker may write.

    StorageError.
    """
    try:
        opened = LogView(plan.place.path, fs=fs)
    except NotAPartition:
        return []
    with opened as view:
        end = view.log_end_offset
        mark = end if plan.mark_is_end else view.high_watermark
        segments = LogSegments(ViewedSegment(segment) for segment in view.segments)
        aged = Aged(segments, view.log_start_offset, end, mark)
        return _due_segments(plan, plan_retention(aged, plan.config, plan.now_ms))


def delete_due(plans: Sequence[OfflinePlan], fs: FileSystem, clock: Clock) -> list[DueSegment]:
    """Delete segments and return them. Only directories and logs with such segments are locked and opened."""
    due = [plan for plan in plans if look(plan, fs)]
    found = in_locked_directories(due, lambda log_dir, plan: _delete(log_dir, plan, fs, clock), fs)
    return [one for some in found for one in some]


def _delete(log_dir: LogDir, plan: OfflinePlan, fs: FileSystem, clock: Clock) -> list[DueSegment]:
    with open_offline(log_dir, plan, fs, clock) as log:
        found = _due_segments(plan, plan_retention(log.state, plan.config, plan.now_ms))
        log.delete_old_segments(plan.now_ms)
        record_log_start(plan.directory, log, fs=fs)
        return found


def _due_segments(plan: OfflinePlan, planned: Iterable[Due[ViewedSegment] | Due[LogSegment]]) -> list[DueSegment]:
    topic, number = plan.place.topic_partition
    found = []
    for segment, reason in planned:
        newest = segment.largest_timestamp
        found.append(DueSegment(topic, number, segment.path, segment.base_offset, segment.size, newest, reason))
    return found
