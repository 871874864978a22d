"""Which segments are old enough to go: by log start offset, by size, by time (LOG-37 to LOG-48).

    segments at 0, 21, 35, 57, 71, log start 60: those at 0, 21 and 35 lie below it whole; the one at 57 stays
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkalog._core.state import LogState
from kafkalog.config import LogConfig

Condition = Callable[[Any, Any], bool]


def deletable(state: LogState, condition: Condition) -> tuple[Any, ...]:
    """The oldest segments, up to the first for which `condition(segment, the next one or None)` is false.

    None that holds offsets at or above the high watermark, and never an empty active segment (LOG-41, LOG-44).
    """
    found = []
    segments = tuple(state.segments)
    for at, segment in enumerate(segments):
        following = segments[at + 1] if at + 1 < len(segments) else None
        end = state.log_end_offset if following is None else following.base_offset
        if following is None and segment.size == 0:
            break
        if state.high_watermark < end or not condition(segment, following):
            break
        found.append(segment)
    return tuple(found)


def below_log_start(state: LogState) -> tuple[Any, ...]:
    """The segments whose successor begins at or below the log start, whatever the cleanup policy (LOG-38)."""
    start = state.log_start_offset
    return deletable(state, lambda _, following: following is not None and following.base_offset <= start)


def beyond_size(state: LogState, config: LogConfig) -> tuple[Any, ...]:
    """The oldest segments without which the log still has `retention.bytes` (LOG-39); none at -1."""
    limit: int = config.retention_bytes
    surplus = state.segments.size_in_bytes - limit
    if limit < 0 or surplus < 0:
        return ()

    def is_surplus(segment: Any, _: Any) -> bool:
        nonlocal surplus
        if surplus - segment.size < 0:
            return False
        surplus -= segment.size
        return True

    return deletable(state, is_surplus)


def beyond_time(state: LogState, config: LogConfig, now_ms: int) -> tuple[Any, ...]:
    """The oldest segments whose largest timestamp is more than `retention.ms` ago (LOG-40); none at -1."""
    limit: int = config.retention_ms
    if limit < 0:
        return ()
    return deletable(state, lambda segment, _: now_ms - segment.largest_timestamp > limit)
