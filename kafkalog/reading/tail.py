"""Waiting for new records at the end of a log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkalog._core.batch.record import Record
from kafkalog.errors import IllegalArgument, KafkalogError, OffsetOutOfRange
from kafkalog.reading.chunks import check_end, records
from kafkalog.reading.lookup import record_at
from kafkalog.reading.source import end_of, out_of_range, refresh, truncation_count

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


class Place:
    """A reader's place at the end of a log, with the record before it: both should be there at its next look."""

    __slots__ = ("_before", "_cuts", "_log", "offset")

    def __init__(self, log: LogSource, offset: int) -> None:
        self._log = log
        self._cuts = truncation_count(log)
        self._before: Record | None = None
        self.move(offset)

    def move(self, offset: int, last: Record | None = None) -> None:
        """Move to an offset up to which the log was read; `last` is the last record of that, if it is at hand."""
        self.offset = offset
        self._before = self._record_at(offset - 1) if last is None else last

    def check(self) -> None:
        """Raise OffsetOutOfRange if the log was truncated below the place, even if it was written again since.

        That shows in the record before the place, unless it is the same, or there was none. It may be redacted.
        """
        log, before = self._log, self._before
        if log.log_end_offset < self.offset:
            raise out_of_range(log, self.offset)
        cuts = truncation_count(log)
        if cuts == self._cuts:
            return
        self._cuts = cuts
        now = None if before is None else self._record_at(before.offset)
        if now is None or before is None or now == before:
            return
        if now.value or now.headers or now.timestamp != before.timestamp:
            what = f"record {now.offset} differs from the one that was read: the log was truncated and appended to"
            raise OffsetOutOfRange(what, path=log.path, offset=self.offset)

    def _record_at(self, offset: int) -> Record | None:
        if not self._log.log_start_offset <= offset < self._log.log_end_offset:
            return None
        try:
            return record_at(self._log, offset)
        except KafkalogError:
            return None  # a gap, a control record, damage


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
    OffsetOutOfRange if the log is truncated below (see `Place`), or deleted beyond, the next offset; LogClosed if it
    is closed meanwhile. The iterator keeps a reference to `owner`.
    """
    waiting = Waiting(timeout)
    refresh(log)
    place = Place(log, start)
    while True:
        refresh(log)
        place.check()
        end = end_of(log, isolation)
        if end > start:
            last = None
            for last in records(log, start, end, committed=isolation == "committed", skipped=skipped):
                yield last
            start = end
            place.move(end, last)
            waiting.restart()
            continue
        check_end(log, start, isolation == "committed", skipped)
        if not waiting.wait():
            return
