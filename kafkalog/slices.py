"""A range of a log's offsets, read on iteration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kafkalog._core.record import Record
from kafkalog.columnar import SCAN_OPTIONS, ColumnarSlice, checked
from kafkalog.log_scan import LogScan

if TYPE_CHECKING:
    from kafkalog.api import Log
    from kafkalog.records.batch import RecordBatch


def clamped(bound: int | None, default: int, start: int, end: int) -> int:
    """Return a slice bound by Python's rules: None is the default, negative counts from `end`; clamp it to the log."""
    if bound is None:
        return default
    if bound < 0:
        bound += end
    return min(max(bound, start), end)


class LogSlice(ColumnarSlice):
    """The records of a log with offsets in [start, stop), read on iteration.

    It may be iterated over any number of times; the bounds are those at its creation. `isolation` is as for
    `Log.records`.

    >>> last = log[-1:]
    >>> last, last.start, last.stop, last.isolation
    (<LogSlice orders-0 [1, 2)>, 1, 2, None)
    >>> last.log is log, [record.value for record in last]
    (True, [b'second'])
    """

    __slots__ = ("isolation", "log", "start", "stop")

    def __init__(self, log: Log, start: int, stop: int, isolation: str | None = None) -> None:
        self.isolation = isolation
        self.log = log
        self.start = start
        self.stop = max(start, stop)

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    def records(self) -> Iterator[Record]:
        """Yield the records in order; errors as for `Log.records`.

        >>> [record.offset for record in log[:1].records()]
        [0]
        """
        return self.log.records(self.start, self.stop, isolation=self.isolation)

    def batches(self) -> Iterator[RecordBatch]:
        """Yield the whole batches that hold any of the offsets.

        >>> list(log[:1].batches())
        [<RecordBatch v2 [0, 2) 2 records 92 B>]
        """
        return self.log.batches(self.start, self.stop, isolation=self.isolation)

    def _scan(self, call: str, columns: Iterable[str] | None, given: dict[str, Any]) -> LogScan:
        options = checked(call, given, SCAN_OPTIONS)
        return LogScan(self.log, self.start, self.stop, columns, isolation=self.isolation, **options)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LogSlice):
            return NotImplemented
        return self.log is other.log and self._what() == other._what()

    def _what(self) -> tuple[int, int, str | None]:
        return self.start, self.stop, self.isolation

    def __hash__(self) -> int:
        return hash((id(self.log), *self._what()))

    def __repr__(self) -> str:
        isolation = f" {self.isolation}" if self.isolation else ""
        return f"<LogSlice {self.log.name} [{self.start}, {self.stop}){isolation}>"
