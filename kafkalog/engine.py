"""The two things a `Log` reads through: its own open log ("a"), or a view of another process's files ("r")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import LogClosed, OffsetOutOfRange
from kafkalog.storage.view import LogView

if TYPE_CHECKING:
    from kafkalog.storage.log import UnifiedLog

    Engine = LogView | UnifiedLog


def refresh(log: Engine) -> None:
    """Looks again at files that another process owns; an own log knows its state without looking.

    LogClosed when the log is closed.
    """
    if isinstance(log, LogView):
        log.refresh()
    elif log.closed:
        raise closed(log)


def closed(log: Engine) -> LogClosed:
    """The error for a log that was closed."""
    return LogClosed(f"log {log.name} is closed")


def out_of_range(log: Engine, offset: int) -> OffsetOutOfRange:
    """The error for an offset that the log does not hold, with the range that it does."""
    start, end = log.log_start_offset, log.log_end_offset
    where = "before the log start" if offset < start else "at or after the log end"
    return OffsetOutOfRange(
        f"the offset lies {where}",
        path=log.path,
        offset=offset,
        hint=f"log {log.name} holds offsets [{start}, {end})",
    )
