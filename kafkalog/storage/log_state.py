"""Changes of a log's offsets, each a pure function from one state to the next (LOG-27 to LOG-29, LOG-53 to LOG-55)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog._core.log.state import LogState
from kafkalog.errors import IllegalArgument, OffsetOutOfRange
from kafkalog.types import LogOffsetMetadata

if TYPE_CHECKING:
    from kafkalog.storage.segment import LogSegment
    from kafkalog.storage.segments import LogSegments

    State = LogState[LogSegments[LogSegment]]


def started(
    segments: LogSegments[LogSegment],
    *,
    log_start_offset: int,
    log_end_offset: int,
    recovery_point: int,
    high_watermark: int | None = None,
    leader_epoch: int = -1,
) -> State:
    """Return the state of a newly opened log; the high watermark defaults to the log start (LOG-27)."""
    active = segments.active
    start = min(log_start_offset, log_end_offset)
    mark = start if high_watermark is None else min(max(high_watermark, start), log_end_offset)
    state = LogState(
        segments,
        log_start_offset=start,
        log_end_offset=log_end_offset,
        end_base=active.base_offset,
        end_position=active.size,
        high_watermark=mark,
        recovery_point=min(max(recovery_point, start), log_end_offset),
        leader_epoch=leader_epoch,
    )
    return _mark_at_end(state) if mark == log_end_offset else state


def _mark_at_end(state: State) -> State:
    return state.replace(
        high_watermark=state.log_end_offset,
        high_watermark_base=state.end_base,
        high_watermark_position=state.end_position,
    )


def high_watermark_updated(state: State, mark: LogOffsetMetadata) -> State:
    """Return the state with the high watermark at `mark`, within log start ... log end (LOG-27); it may decrease."""
    if mark.message_offset >= state.log_end_offset:
        return _mark_at_end(state)
    if mark.message_offset < state.log_start_offset:
        mark = LogOffsetMetadata(state.log_start_offset)
    return high_watermark_resolved(state, mark)


def high_watermark_resolved(state: State, mark: LogOffsetMetadata) -> State:
    """Return the state with exactly this high watermark; a located one may be below the log start (LOG-29)."""
    return state.replace(
        high_watermark=mark.message_offset,
        high_watermark_base=mark.segment_base_offset,
        high_watermark_position=mark.relative_position_in_segment,
    )


def high_watermark_incremented(state: State, mark: LogOffsetMetadata) -> State | None:
    """Return the state with the high watermark raised to `mark`, or None if that is not an increase.

    An increase is a higher offset, or the same offset in a newer segment (after a roll). IllegalArgument above the
    log end (LOG-27).
    """
    if mark.message_offset > state.log_end_offset:
        raise IllegalArgument(
            f"the high watermark cannot be {mark.message_offset}, above the log end {state.log_end_offset}",
            offset=mark.message_offset,
        )
    old = state.high_watermark
    if mark.message_offset == old:
        newer = -1 < state.high_watermark_base < mark.segment_base_offset
        return high_watermark_resolved(state, mark) if newer else None
    return high_watermark_resolved(state, mark) if mark.message_offset > old else None


def at_end(
    state: State,
    segments: LogSegments[LogSegment],
    log_end_offset: int,
    *,
    log_start_offset: int | None = None,
    leader_epoch: int | None = None,
) -> State:
    """Return the state after a roll or a truncation: a new log end in the active segment of `segments`.

    A high watermark at or above the new end moves to it, with its position (LOG-28, KAFKA-9196); the recovery point
    and the log start never lie above the end.
    """
    active = segments.active
    start = state.log_start_offset if log_start_offset is None else log_start_offset
    moved = state.replace(
        segments=segments,
        log_start_offset=min(start, log_end_offset),
        log_end_offset=log_end_offset,
        end_base=active.base_offset,
        end_position=active.size,
        high_watermark=min(state.high_watermark, log_end_offset),
        recovery_point=min(state.recovery_point, log_end_offset),
        leader_epoch=state.leader_epoch if leader_epoch is None else leader_epoch,
    )
    return _mark_at_end(moved) if state.high_watermark >= log_end_offset else moved


def log_start_incremented(state: State, offset: int) -> State | None:
    """Return the state with the log start raised to `offset`, or None if it is already there (LOG-36).

    OffsetOutOfRange above the high watermark. No segment is deleted.
    """
    if offset > state.high_watermark:
        raise OffsetOutOfRange(
            f"the log start cannot be {offset}, above the high watermark {state.high_watermark}",
            offset=offset,
            hint="only records below the high watermark can be deleted",
        )
    if offset <= state.log_start_offset:
        return None
    return state.replace(log_start_offset=offset, recovery_point=max(state.recovery_point, offset))


def flushed_to(state: State, offset: int) -> State:
    """Return the state with everything before `offset` on disk; the recovery point never decreases (LOG-51)."""
    point = min(offset, state.log_end_offset)
    return state.replace(recovery_point=point) if point > state.recovery_point else state
