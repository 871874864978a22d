"""Effect of truncating a log on its segments (LOG-52 to LOG-55).

    segments [0..9] [10..19] [20..29], truncate_to(14): [0..9] [10..13], the third is deleted, the log ends at 14
    truncate_to(30) or higher: nothing; below the first base: all are deleted, the log starts and ends there
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import IllegalArgument

if TYPE_CHECKING:
    from kafkalog.storage.log_state import State
    from kafkalog.storage.segment import LogSegment


class TruncatePlan(NamedTuple):
    """Segments to delete, the segment to cut, and the new log end; `start_anew` empties the whole log."""

    log_end_offset: int
    deleted: tuple[LogSegment, ...]
    cut: LogSegment | None
    start_anew: bool = False


def plan_truncate(state: State, offset: int) -> TruncatePlan | None:
    """Plan a truncation to `offset`; None if the log ends there or before; IllegalArgument below 0."""
    if offset < 0:
        raise IllegalArgument(f"a log cannot be truncated to the negative offset {offset}", offset=offset)
    if offset >= state.log_end_offset:
        return None
    segments = state.segments
    if segments[0].base_offset > offset:
        return TruncatePlan(offset, tuple(segments), None, start_anew=True)
    return TruncatePlan(offset, segments.higher_segments(offset), segments.floor(offset))


def plan_delete_before(state: State, log_start_offset: int) -> tuple[LogSegment, ...]:
    """Return the segments whose records are all below the log start; never the active one."""
    segments = tuple(state.segments)
    return tuple(
        segment
        for segment, following in zip(segments, segments[1:], strict=False)
        if following.base_offset <= log_start_offset
    )
