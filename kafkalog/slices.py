"""A range of a log's offsets that is read when it is iterated over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kafkalog._core.record import Record
from kafkalog.log_scan import LogScan, scan_of

if TYPE_CHECKING:
    import pandas

    from kafkalog.api import Log
    from kafkalog.records.batch import RecordBatch
    from kafkalog.records.table import Table


def clamped(bound: int | None, default: int, start: int, end: int) -> int:
    """A bound of a slice as Python reads it: None is the default, negative counts from `end`, none leaves the log."""
    if bound is None:
        return default
    if bound < 0:
        bound += end
    return min(max(bound, start), end)


class LogSlice:
    """The records of a log with offsets in [start, stop): nothing is read before it is iterated over.

    It may be iterated over any number of times; the bounds stay as they were when it was made.
    """

    __slots__ = ("log", "start", "stop")

    def __init__(self, log: Log, start: int, stop: int) -> None:
        self.log = log
        self.start = start
        self.stop = max(start, stop)

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    def records(self) -> Iterator[Record]:
        """The records in order; errors as for `Log.records`."""
        return iter(()) if self.start == self.stop else self.log.records(self.start, self.stop)

    def batches(self) -> Iterator[RecordBatch]:
        """The batches that hold any of the offsets, whole."""
        return iter(()) if self.start == self.stop else self.log.batches(self.start, self.stop)

    def scan(self, columns: Iterable[str] | None = None, **options: Any) -> LogScan:
        """The records as columns, read when somebody reads them: see `Log.scan`."""
        return scan_of(self.log, columns, (self.start, self.stop), None, options, "scan")

    def table(self, columns: Iterable[str] | None = None, **options: Any) -> Table:
        """The records as columns in memory: see `Log.table`."""
        return scan_of(self.log, columns, (self.start, self.stop), None, options, "table").table()

    def to_pandas(self, columns: Iterable[str] | None = None, **options: Any) -> pandas.DataFrame:
        """The records as a pandas DataFrame: see `Log.to_pandas`."""
        return self.table(columns, **options).to_pandas()

    def __arrow_c_schema__(self) -> Any:
        return self.scan().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.scan().__arrow_c_stream__(requested_schema)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LogSlice):
            return NotImplemented
        return self.log is other.log and (self.start, self.stop) == (other.start, other.stop)

    def __hash__(self) -> int:
        return hash((id(self.log), self.start, self.stop))

    def __repr__(self) -> str:
        return f"<LogSlice {self.log.name} [{self.start}, {self.stop})>"
