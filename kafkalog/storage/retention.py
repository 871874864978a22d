"""Segments that retention may delete: by log start offset, by size, by time (LOG-37 to LOG-48).

    segments at 0, 21, 35, 57, 71, log start 60: those at 0, 21 and 35 are below it; the one at 57 stays
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, Literal, NamedTuple, Protocol, TypeVar

from kafkalog.config.topic import LogConfig
from kafkalog.storage.segments import LogSegments, Segment

S = TypeVar("S", bound=Segment)
S_co = TypeVar("S_co", bound=Segment, covariant=True)
Reason = Literal["log start", "size", "time"]


class Extent(Protocol[S_co]):
    """Input of rules about segments: the state of a log, or a substitute."""

    @property
    def segments(self) -> LogSegments[S_co]: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...


class Ageing(Extent[S_co], Protocol[S_co]):
    """Input of the retention rules: the state of a log that is open for writing, or `Aged`."""

    @property
    def high_watermark(self) -> int: ...


class Aged(NamedTuple, Generic[S]):
    """Offsets and segments (a LogSegments) of a log from any source."""

    segments: LogSegments[S]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int


class Due(NamedTuple, Generic[S]):
    """A segment to be deleted by retention, and the rule that applies."""

    segment: S
    reason: Reason


def deletable(state: Ageing[S], condition: Callable[[S, S | None], bool]) -> tuple[S, ...]:
    """Return the oldest segments, up to the first for which `condition(segment, the next one or None)` is false.

    Never one that holds offsets at or above the high watermark, nor an empty active segment (LOG-41, LOG-44).
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


def below_log_start(state: Ageing[S]) -> tuple[S, ...]:
    """Return the segments whose successor begins at or below the log start, under every cleanup policy (LOG-38)."""
    start = state.log_start_offset
    return deletable(state, lambda _, following: following is not None and following.base_offset <= start)


def beyond_size(state: Ageing[S], config: LogConfig) -> tuple[S, ...]:
    """Return the oldest segments without which the log still has `retention.bytes` (LOG-39); none at -1."""
    limit: int = config.retention_bytes
    surplus = state.segments.size_in_bytes - limit
    if limit < 0 or surplus < 0:
        return ()

    def is_surplus(segment: S, _: object) -> bool:
        nonlocal surplus
        if surplus - segment.size < 0:
            return False
        surplus -= segment.size
        return True

    return deletable(state, is_surplus)


def beyond_time(state: Ageing[S], config: LogConfig, now_ms: int) -> tuple[S, ...]:
    """Return the oldest segments whose largest timestamp is more than `retention.ms` ago (LOG-40); none at -1."""
    limit: int = config.retention_ms
    if limit < 0:
        return ()
    return deletable(state, lambda segment, _: now_ms - segment.largest_timestamp > limit)



class Rule(Protocol):
    """A rule: the oldest segments that may be deleted at a time (ms)."""

    def __call__(self, state: Ageing[S], config: LogConfig, now_ms: int, /) -> tuple[S, ...]: ...


_RULES: Final[tuple[tuple[Reason, Rule], ...]] = (
    ("log start", lambda state, config, now_ms: below_log_start(state)),
    ("size", lambda state, config, now_ms: beyond_size(state, config)),
    ("time", beyond_time),
)


def rules_of(config: LogConfig) -> tuple[tuple[Reason, Rule], ...]:
    """Return the rules that apply, in order (LOG-42); only the log start without delete in the policy (LOG-48)."""
    return _RULES if config.delete else _RULES[:1]


def plan_retention(state: Ageing[S], config: LogConfig, now_ms: int) -> list[Due[S]]:
    """Return the segments that `UnifiedLog.delete_old_segments` would delete at `now_ms`, oldest first.

    If these are all segments, retention would first create an empty one.
    """
    due: list[Due[S]] = []
    aged = Aged(state.segments, state.log_start_offset, state.log_end_offset, state.high_watermark)
    for reason, rule in rules_of(config):
        due_segments = rule(aged, config, now_ms)
        due += [Due(segment, reason) for segment in due_segments]
        if due_segments:
            rest = aged.segments.without(segment.base_offset for segment in due_segments)
            if not len(rest):
                break
            aged = aged._replace(segments=rest, log_start_offset=max(aged.log_start_offset, rest[0].base_offset))
    return due
