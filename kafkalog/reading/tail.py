"""Waiting for new records at the end of a log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkalog._core.batch.record import Record
from kafkalog.errors import IllegalArgument
from kafkalog.reading.chunks import check_end, records
from kafkalog.reading.source import end_of, out_of_range, refresh

if TYPE_CHECKING:
    from kafkalog.reading.source import LogSource
    from kafkalog.storage.damage import Skipped
    from kafkalog.types import Isolation

FIRST_WAIT_S: Final = 0.001
LONGEST_WAIT_S: Final = 0.05


def check_timeout(timeout: float | None) -> None:
    """Raise IllegalArgument for a timeout that is neither None nor a number of seconds."""
    if timeout is not None and not timeout >= 0:
        raise IllegalArgument(f"timeout is {timeout!r}", hint="give seconds, or None to wait forever")


class Waiting:
    """Wait for new records: 1 ms at first, then twice as long each time, at most 50 ms.

    `timeout` is the total in seconds; None: forever.
    """

    __slots__ = ("_since", "_timeout", "_wait")

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self.restart()

    def restart(self) -> None:
        """Restart the timeout and the waits, after records arrived."""
        self._since = time.monotonic()
        self._wait = FIRST_WAIT_S

    def next_wait(self) -> float | None:
        """Return the seconds to wait before the next refresh; None after the timeout."""
        wait = self._wait
        if self._timeout is not None:
            remaining = self._since + self._timeout - time.monotonic()
            if remaining <= 0:
                return None
            wait = min(wait, remaining)
        self._wait = min(self._wait * 2, LONGEST_WAIT_S)
        return wait

    def wait(self) -> bool:
        """Wait and return True; return False after the timeout."""
        wait = self.next_wait()
        if wait is None:
            return False
        time.sleep(wait)
        return True


def tail(
    log: LogSource,
    start: int,
    timeout: float | None,
    owner: object = None,
    isolation: Isolation = "log_end",
    skipped: list[Skipped] | None = None,
) -> Iterator[Record]:
    """Yield the records from `start`, new ones included, until none arrives for `timeout` seconds.

    None waits forever. The log is refreshed after 1 ms at first and, without new records, after 50 ms at most. Raises
    OffsetOutOfRange if the log is truncated below, or deleted beyond, the next offset; LogClosed if it is closed
    meanwhile. The iterator keeps a reference to `owner`.
    """
    waiting = Waiting(timeout)
    while True:
        refresh(log)
        if log.log_end_offset < start:
            raise out_of_range(log, start)
        end = end_of(log, isolation)
        if end > start:
            yield from records(log, start, end, committed=isolation == "committed", skipped=skipped)
            start = end
            waiting.restart()
            continue
        check_end(log, start, isolation == "committed", skipped)
        if not waiting.wait():
            return
