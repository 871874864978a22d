"""The two things a `Log` reads through: its own open log ("a"), or a view of another process's files ("r")."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Final

from kafkalog.errors import CorruptRecord, IllegalArgument, LogClosed, OffsetOutOfRange
from kafkalog.keywords import near
from kafkalog.storage import read
from kafkalog.storage.view import LogView

if TYPE_CHECKING:
    from kafkalog.storage.damage import Skipped
    from kafkalog.storage.log import UnifiedLog
    from kafkalog.types import Isolation

    Engine = LogView | UnifiedLog

ISOLATIONS: Final[dict[str | None, Isolation]] = {
    None: "log_end",
    "log_end": "log_end",
    "read_uncommitted": "log_end",
    "high_watermark": "high_watermark",
    "read_committed": "committed",
}
"""The isolation levels that a reader may ask for, and the bound that each of them has."""


def refresh(log: Engine) -> None:
    """Looks again at files that another process owns; an own log knows its state without looking.

    LogClosed when the log is closed.
    """
    if isinstance(log, LogView):
        log.refresh()
    elif log.closed:
        raise closed(log)


def isolation_of(name: str | None) -> Isolation:
    """The bound that an isolation level's name stands for; IllegalArgument for a name that is none."""
    isolation = ISOLATIONS.get(name)
    if isolation is None:
        known = [known for known in ISOLATIONS if known is not None]
        nearest = near(str(name), known)
        meant = f"did you mean {nearest!r}? Known are" if nearest else "known are"
        raise IllegalArgument(f"isolation is {name!r}", hint=f"{meant} {', '.join(known)}; left out, all is read")
    return isolation


def skipped_of(on_damage: str, skipped: list[Skipped] | None) -> list[Skipped] | None:
    """Return the list for what a read leaves out, None where it raises; IllegalArgument for another `on_damage`."""
    if on_damage == "skip":
        return [] if skipped is None else skipped
    if on_damage != "raise":
        raise IllegalArgument(f"on_damage is {on_damage!r}", hint="give 'raise' or 'skip'")
    if skipped is not None:
        raise IllegalArgument("skipped is given, and nothing is skipped", hint="give on_damage='skip' with it")
    return None


def end_of(log: Engine, isolation: Isolation) -> int:
    """The offset at which reading with this isolation ends: log end, high watermark or last stable offset."""
    if isolation == "log_end":
        return log.log_end_offset
    return log.high_watermark if isolation == "high_watermark" else log.last_stable_offset


def cuts(log: Engine) -> int:
    """A number by which `has_cut` tells later whether the log's end went back meanwhile."""
    return 0 if isinstance(log, LogView) else log.cuts


def has_cut(log: Engine, before: int) -> bool:
    """True when this process's own log was cut since `cuts` gave `before`; waits while it is being cut.

    Cuts by another process show in the files only.
    """
    return not isinstance(log, LogView) and log.settled_cuts() != before


def closed(log: Engine) -> LogClosed:
    """The error for a log that was closed."""
    return LogClosed(f"log {log.name} is closed")


def first_offset(log: Engine, start: int, end: int, skips: bool) -> int:
    """Return the offset to begin at; a negative `start` counts back from `end`, at most to the log start.

    One that lies in the damage at the log's end becomes that end, where the read `skips` damage. OffsetOutOfRange.
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


def out_of_range(log: Engine, offset: int) -> OffsetOutOfRange | CorruptRecord:
    """The error for an offset that the log does not hold, with the range that it does; the damage that may hold it."""
    if offset >= log.log_end_offset and (trouble := log.tail_damage) is not None:
        return trouble
    return read.out_of_range(offset, log.log_start_offset, log.log_end_offset, log.path)
