"""The two sources a `Log` reads from: an open log (mode "a") or a view of another process's files ("r")."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkalog.errors import CorruptRecord, IllegalArgument, KafkalogError, LogClosed, OffsetOutOfRange
from kafkalog.storage import read
from kafkalog.storage.readonly.view import LogView
from kafkalog.util.keywords import closest_match

if TYPE_CHECKING:
    from kafkalog.storage.damage import Skipped
    from kafkalog.storage.log import UnifiedLog
    from kafkalog.storage.segments import LogSegments
    from kafkalog.types import Isolation

    LogSource = LogView | UnifiedLog

ISOLATIONS: Final[dict[str | None, Isolation]] = {
    None: "log_end",
    "log_end": "log_end",
    "read_uncommitted": "log_end",
    "high_watermark": "high_watermark",
    "read_committed": "committed",
}
"""Isolation levels of readers, and the end of reading of each."""
ATTEMPTS: Final = 8
"""Number of looks at a log that its owner is changing, before what is missing is passed over, or its error raised."""
T = TypeVar("T")


def refresh(log: LogSource) -> None:
    """Refresh a view of another process's files; an open log is up to date.

    Raises LogClosed if the log is closed.
    """
    if isinstance(log, LogView):
        log.refresh()
    elif log.closed:
        raise closed(log)


def look(log: LogSource) -> None:
    """Refresh a view that has not been refreshed for 10 ms."""
    if isinstance(log, LogView):
        log.look()


def refreshed(log: LogSource) -> LogSource:
    """Return `log` after a `refresh`."""
    refresh(log)
    return log


def isolation_of(name: str | None) -> Isolation:
    """Return the end of reading of an isolation level; raise IllegalArgument for an unknown name."""
    isolation = ISOLATIONS.get(name)
    if isolation is None:
        known = [known for known in ISOLATIONS if known is not None]
        nearest = closest_match(str(name), known)
        meant = f"did you mean {nearest!r}? Known are" if nearest else "known are"
        raise IllegalArgument(f"isolation is {name!r}", hint=f"{meant} {', '.join(known)}; None reads everything")
    return isolation


def skipped_of(on_damage: str, skipped: list[Skipped] | None) -> list[Skipped] | None:
    """Return the list of skipped ranges, None if damage is raised; raise IllegalArgument for another `on_damage`."""
    if on_damage == "skip":
        return [] if skipped is None else skipped
    if on_damage != "raise":
        raise IllegalArgument(f"on_damage is {on_damage!r}", hint="give 'raise' or 'skip'")
    if skipped is not None:
        raise IllegalArgument("skipped is given, but on_damage is 'raise'", hint="give on_damage='skip' as well")
    return None


def end_of(log: LogSource, isolation: Isolation) -> int:
    """Return the offset at which reading with this isolation ends: log end, high watermark or last stable offset."""
    if isolation == "log_end":
        return log.log_end_offset
    return log.high_watermark if isolation == "high_watermark" else log.last_stable_offset


def truncation_count(log: LogSource) -> int:
    """Return the number of truncations, of a view those that a look has found, for a later `was_truncated`."""
    return log.state.cuts if isinstance(log, LogView) else log.truncation_count


def was_truncated(log: LogSource, before: int) -> bool:
    """Return True if the log was truncated since `truncation_count` returned `before`.

    Waits for a truncation in progress. A view looks at its files again, which show those by another process.
    """
    if isinstance(log, LogView):
        log.refresh()
        return log.state.cuts != before
    return log.truncation_count_when_idle() != before


def was_replaced(source: LogSource, segments: LogSegments[Any]) -> bool:
    """Return True if segments were replaced since: a record that was not found in the old ones may be in the new ones.

    New segments at the end do not count. A directory that is listed while files are renamed in it may lack a segment.
    """
    refresh(source)
    current = source.segments
    if current is segments:
        return False
    return len(current) < len(segments) or any(one is not other for one, other in zip(segments, current, strict=False))


def retried_if_replaced(log: LogSource, act: Callable[[], T]) -> T:
    """Return the result of `act`; repeat it if it fails and segments were replaced while it ran.

    In mode "r" the files of replaced segments are gone, or hold offsets of the segments that followed.
    """
    for _ in range(ATTEMPTS - 1):
        segments = log.segments
        try:
            return act()
        except KafkalogError:
            if not was_replaced(log, segments):
                raise
    return act()


def closed(log: LogSource) -> LogClosed:
    """Return the error for a closed log."""
    return LogClosed(f"log {log.name} is closed")


def first_offset(log: LogSource, start: int, end: int, skips: bool) -> int:
    """Return the offset to start at; a negative `start` counts back from `end`, at most to the log start.

    A `start` in the damage at the log's end becomes that end if the read `skips` damage. Raises OffsetOutOfRange.
    """
    start = operator.index(start)
    if start < 0:
        return max(start + end, log.log_start_offset)
    if log.log_start_offset <= start <= log.log_end_offset:
        return start
    error = out_of_range(log, start)
    if skips and isinstance(error, CorruptRecord):
        return log.log_end_offset
    raise error


def out_of_range(log: LogSource, offset: int) -> OffsetOutOfRange | CorruptRecord:
    """Return the error for an offset outside the log, with the log's range, or the damage that may hold the offset."""
    if offset >= log.log_end_offset and (damage := log.tail_damage) is not None:
        return damage
    return read.out_of_range(offset, log.log_start_offset, log.log_end_offset, log.path)
