"""Offset look-up by time: special times, and the search through segments, time index, offset index and data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.storage.fast_lookup import record_at_time
from kafkalog.storage.segment import LogSegment
from kafkalog.storage.segments import AnySegment, LogSegments
from kafkalog.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    OffsetAndTimestamp,
)

if TYPE_CHECKING:
    from kafkalog.storage.log_state import State

EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6


def offset_for_time(
    state: State, timestamp: int, earliest_epoch: int, latest_epoch: int
) -> OffsetAndTimestamp | None:
    """Return the first record at or after `timestamp` (ms) from the log start on; None if there is none (LOG-57).

    -1 is the log end, -2 and -4 the log start, both with timestamp -1 and the given epochs; -3 is the first record
    with the largest timestamp; -5 and -6 name tiered data, of which there is none (offset -1). Lower values are
    searched like times.
    """
    if timestamp < 0:
        if timestamp == LATEST_TIMESTAMP:
            return OffsetAndTimestamp(state.log_end_offset, NO_TIMESTAMP, latest_epoch)
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            return OffsetAndTimestamp(state.log_start_offset, NO_TIMESTAMP, earliest_epoch)
        if timestamp == MAX_TIMESTAMP:
            return _largest(state)
        if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
            return OffsetAndTimestamp(-1, NO_TIMESTAMP, -1)
    return first_at(state.segments, timestamp, state.log_start_offset, state.log_end_offset)


def bounded(found: OffsetAndTimestamp | None, timestamp: int, bound: int) -> OffsetAndTimestamp | None:
    """Restrict `found` to an isolation level's bound: its own end, and no record at or after it (PART-8)."""
    if found is None or timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return found
    if timestamp == LATEST_TIMESTAMP:
        return found._replace(offset=bound)
    return found if found.offset < bound else None


def first_at(
    segments: LogSegments[AnySegment], timestamp: int, start_offset: int, end_offset: int
) -> OffsetAndTimestamp | None:
    """Return the first record at or after `timestamp` (ms) with an offset in [start, end).

    Records at or after `end_offset` are not visible yet. A segment whose index promises a record but has none is
    skipped (compaction emptied it).
    """
    for segment in segments.from_time(timestamp):
        found: OffsetAndTimestamp | None = record_at_time(segment, timestamp, start_offset, segments)
        if found is None:
            following = segments.higher(segment.base_offset)
            bound = None if following is None else following.base_offset
            found = segment.find_offset_by_timestamp(timestamp, start_offset, bound)
        if found is not None:
            return found if found.offset < end_offset else None
    return None


def _largest(state: State) -> OffsetAndTimestamp | None:
    """Return the first record with the largest timestamp of all segments (the earliest segment on a tie)."""
    largest: LogSegment | None = None
    for segment in state.segments:
        if largest is None or segment.max_timestamp_so_far > largest.max_timestamp_so_far:
            largest = segment
    return None if largest is None else largest.find_largest_timestamp()
