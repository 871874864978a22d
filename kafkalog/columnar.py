"""Logs and their slices as columns: `scan`, `table`, `to_pandas`, and the Arrow C stream interface."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, cast

from kafkalog.engine import isolation_of
from kafkalog.keywords import unknown_keyword
from kafkalog.log_scan import LogScan
from kafkalog.records.column_reader import BATCH_BYTES, BATCH_ROWS

if TYPE_CHECKING:
    import pandas

    from kafkalog.api import Log
    from kafkalog.records.table import Table
    from kafkalog.storage.damage import Skipped
    from kafkalog.times import Time
    from kafkalog.types import Isolation

__all__ = ["SCAN_OPTIONS", "ColumnarLog", "ColumnarSlice", "checked"]

SCAN_OPTIONS: Final = ("on_damage", "skipped", "batch_rows", "batch_bytes")
"""Keywords of a scan besides its bounds and its isolation."""
_BOUNDS: Final = ("start", "stop", "since", "until")


def checked(call: str, given: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """Return `given` if all its names are known; raise TypeError for an unknown one."""
    unknown = {name: given[name] for name in given if name not in known}
    if unknown:
        raise unknown_keyword(call, unknown, ("columns", *known))
    return given


class _Columnar:
    """Common base of logs and slices: every call uses the scan that `_scan` creates from its arguments."""

    __slots__ = ()

    def _scan(self, call: str, columns: Iterable[str] | None, given: dict[str, Any]) -> LogScan:
        raise NotImplementedError

    def __arrow_c_schema__(self) -> Any:
        return self._scan("scan", None, {}).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._scan("scan", None, {}).__arrow_c_stream__(requested_schema)


class ColumnarLog(_Columnar):
    """The part of `Log` that returns its records as columns."""

    __slots__ = ()

    def scan(
        self,
        columns: Iterable[str] | None = None,
        *,
        start: int | None = None,
        stop: int | None = None,
        since: Time | None = None,
        until: Time | None = None,
        isolation: str | None = None,
        on_damage: str = "raise",
        skipped: list[Skipped] | None = None,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
        **unknown: Any,
    ) -> LogScan:
        """Return the records as lazy columns for DuckDB, Polars or pyarrow; bounds, `on_damage` as for `records`.

        `columns` is a selection of key, value, topic, partition, offset, timestamp, timestampType and headers; other
        columns are not decoded. A record batch has at most `batch_rows` records and `batch_bytes` of keys, values and
        headers, but at least one record. Errors as for `records`; IllegalArgument for an unknown column.

        >>> log.scan(["key", "value"])
        <LogScan orders-0 [0, 2): key, value>
        """
        bounds = {"start": start, "stop": stop, "since": since, "until": until}
        reading = {"isolation": isolation, "on_damage": on_damage, "skipped": skipped}
        options = {"batch_rows": batch_rows, "batch_bytes": batch_bytes}
        return self._scan("scan", columns, {**bounds, **reading, **options, **unknown})

    def table(self, columns: Iterable[str] | None = None, **arguments: Any) -> Table:
        """Return the records as columns in memory, for NumPy, pandas, DuckDB, Polars, pyarrow; arguments as for `scan`.

        >>> len(log.table(["key", "value"]))
        2
        """
        return self._scan("table", columns, arguments).table()

    def to_pandas(self, columns: Iterable[str] | None = None, **arguments: Any) -> pandas.DataFrame:
        """Return the records as a pandas DataFrame (pyarrow is not needed); arguments as for `scan`.

        >>> log.to_pandas(["key", "offset"])["offset"].tolist()
        [0, 1]
        """
        return self._scan("to_pandas", columns, arguments).to_pandas()

    def _range(
        self,
        start: int | None,
        stop: int | None,
        since: Time | None,
        until: Time | None,
        isolation: Isolation,
        skips: bool = False,
    ) -> tuple[int, int]:
        raise NotImplementedError

    def _scan(self, call: str, columns: Iterable[str] | None, given: dict[str, Any]) -> LogScan:
        given = checked(call, given, (*_BOUNDS, "isolation", *SCAN_OPTIONS))
        level = isolation_of(given.get("isolation"))
        start, stop, since, until = (given.get(name) for name in _BOUNDS)
        first, last = self._range(start, stop, since, until, level, given.get("on_damage") == "skip")
        options = {name: given[name] for name in ("isolation", *SCAN_OPTIONS) if name in given}
        return LogScan(cast("Log", self), first, last, columns, **options)


class ColumnarSlice(_Columnar):
    """The part of `LogSlice` that returns its records as columns."""

    __slots__ = ()

    def scan(self, columns: Iterable[str] | None = None, **options: Any) -> LogScan:
        """Return the records as columns, read on use; arguments as for `Log.scan`, without bounds.

        >>> log[1:].scan(["key", "value"])
        <LogScan orders-0 [1, 2): key, value>
        """
        return self._scan("scan", columns, options)

    def table(self, columns: Iterable[str] | None = None, **options: Any) -> Table:
        """Return the records as columns in memory; arguments as for `scan`.

        >>> len(log[1:].table(["key", "value"]))
        1
        """
        return self._scan("table", columns, options).table()

    def to_pandas(self, columns: Iterable[str] | None = None, **options: Any) -> pandas.DataFrame:
        """Return the records as a pandas DataFrame; arguments as for `scan`.

        >>> log[1:].to_pandas(["key", "offset"])["offset"].tolist()
        [1]
        """
        return self._scan("to_pandas", columns, options).to_pandas()
