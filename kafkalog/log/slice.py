"""A range of a log's offsets, read on iteration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, overload

from kafkalog._core.batch.record import Record
from kafkalog.log.scan import SCAN_OPTIONS, TYPED_OPTIONS, LogScan, check_keywords
from kafkalog.log.scans import scan_of

if TYPE_CHECKING:
    import pandas
    import polars

    from kafkalog.log.log import Log
    from kafkalog.log.typed_scan import TypedScan
    from kafkalog.records.batch import RecordBatch


def clamped(bound: int | None, default: int, start: int, end: int) -> int:
    """Return a slice bound by Python's rules: None is the default, negative counts from `end`; clamp it to the log."""
    if bound is None:
        return default
    if bound < 0:
        bound += end
    return min(max(bound, start), end)


class LogSlice:
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

    @overload
    def scan(self, columns: Iterable[str] | None = None) -> LogScan: ...
    @overload
    def scan(self, columns: Iterable[str] | None = None, **options: Any) -> Any: ...
    def scan(self, columns: Iterable[str] | None = None, **options: Any) -> LogScan | TypedScan:
        """Return the records as columns, read on use; arguments as for `Log.scan`, without bounds.

        >>> log[1:].scan(["key", "value"])
        <LogScan orders-0 [1, 2): key, value>
        """
        return self._scan("scan", columns, options)

    def table(self, columns: Iterable[str] | None = None, **options: object) -> Any:
        """Return the records as columns in memory; arguments as for `scan`.

        >>> len(log[1:].table(["key", "value"]))
        1
        """
        return self._scan("table", columns, options).table()

    def to_pandas(self, columns: Iterable[str] | None = None, **options: object) -> pandas.DataFrame:
        """Return the records as a pandas DataFrame; arguments as for `scan`.

        >>> log[1:].to_pandas(["key", "offset"])["offset"].tolist()
        [1]
        """
        return self._scan("to_pandas", columns, options).to_pandas()

    def __arrow_c_schema__(self) -> object:
        return self._scan("scan", None, {}).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._scan("scan", None, {}).__arrow_c_stream__(requested_schema)

    def to_polars(self, columns: Iterable[str] | None = None, **options: object) -> polars.DataFrame:
        """Return the records as a Polars DataFrame; arguments as for `scan`.

        >>> log[1:].to_polars(["key", "offset"])["offset"].to_list()
        [1]
        """
        return self._scan("to_polars", columns, options).to_polars()

    def _scan(self, call: str, columns: Iterable[str] | None, given: dict[str, object]) -> LogScan | TypedScan:
        check_keywords(call, given, (*SCAN_OPTIONS, *TYPED_OPTIONS))
        return scan_of(self.log, self.start, self.stop, columns, {**given, "isolation": self.isolation})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LogSlice):
            return NotImplemented
        return self.log is other.log and self._bounds() == other._bounds()

    def _bounds(self) -> tuple[int, int, str | None]:
        return self.start, self.stop, self.isolation

    def __hash__(self) -> int:
        return hash((id(self.log), *self._bounds()))

    def __repr__(self) -> str:
        isolation = f" {self.isolation}" if self.isolation else ""
        return f"<LogSlice {self.log.name} [{self.start}, {self.stop}){isolation}>"
