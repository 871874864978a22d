"""Waiting for new records at the end of a log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkalog._core.record import Record
from kafkalog.chunks import records
from kafkalog.engine import end_of, out_of_range, refresh
from kafkalog.errors import IllegalArgument

if TYPE_CHECKING:
    from kafkalog.engine import Engine
    from kafkalog.types import Isolation

FIRST_WAIT_S: Final = 0.001
LONGEST_WAIT_S: Final = 0.05


def check_timeout(timeout: float | None) -> None:
    """IllegalArgument for a timeout that is neither None nor a number of seconds."""
    if timeout is not None and not timeout >= 0:
        raise IllegalArgument(f"timeout is {timeout!r}", hint="give seconds, or None to wait for ever")


def tail(
    log: Engine,
    start: int,
    timeout: float | None,
    owner: object = None,
    isolation: Isolation = "log_end",
) -> Iterator[Record]:
    """The records from `start` on, those still to come included, until none came for `timeout` seconds.

    None waits for ever. The end is looked for after 1 ms at first and, while nothing comes, after 50 ms
    at most. OffsetOutOfRange when the log is cut below, or deleted beyond, what comes next; LogClosed
    when it is closed meanwhile. `owner`, if given, lives as long as the iterator.
    """
    wait = FIRST_WAIT_S
    silent_since = time.monotonic()
    while True:
        refresh(log)
        if log.log_end_offset < start:
            raise out_of_range(log, start)
        end = end_of(log, isolation)
        if end > start:
            yield from records(log, start, end, committed=isolation == "committed")
            start = end
            wait = FIRST_WAIT_S
            silent_since = time.monotonic()
            continue
        if timeout is not None:
            left = silent_since + timeout - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(wait, left))
        else:
            time.sleep(wait)
        wait = min(wait * 2, LONGEST_WAIT_S)
