"""A log as columns: `scan`, `table`, `to_pandas`, and the Arrow C stream interface."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Never

from kafkalog.log.read import offset_range
from kafkalog.log.scan import SCAN_OPTIONS, LogScan, check_keywords
from kafkalog.reading.source import isolation_of
from kafkalog.records.column_reader import BATCH_BYTES, BATCH_ROWS

if TYPE_CHECKING:
    import pandas

    from kafkalog.log.log import Log
    from kafkalog.records.table import Table
    from kafkalog.storage.damage import Skipped
    from kafkalog.util.times import Time

_BOUNDS: Final = ("start", "stop", "since", "until")


def scan(
    log: Log,
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
    **unknown: Never,
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
    return _scan(log, "scan", columns, {**bounds, **reading, **options, **unknown})


def table(log: Log, columns: Iterable[str] | None = None, **arguments: object) -> Table:
    """Return the records as columns in memory, for NumPy, pandas, DuckDB, Polars, pyarrow; arguments as for `scan`.

    >>> len(log.table(["key", "value"]))
    2
    """
    return _scan(log, "table", columns, arguments).table()


def to_pandas(log: Log, columns: Iterable[str] | None = None, **arguments: object) -> pandas.DataFrame:
    """Return the records as a pandas DataFrame (pyarrow is not needed); arguments as for `scan`.

    >>> log.to_pandas(["key", "offset"])["offset"].tolist()
    [0, 1]
    """
    return _scan(log, "to_pandas", columns, arguments).to_pandas()


def _scan(log: Log, call: str, columns: Iterable[str] | None, given: dict[str, Any]) -> LogScan:
    given = check_keywords(call, given, (*_BOUNDS, "isolation", *SCAN_OPTIONS))
    level = isolation_of(given.get("isolation"))
    start, stop, since, until = (given.get(name) for name in _BOUNDS)
    first, last = offset_range(log, start, stop, since, until, level, given.get("on_damage") == "skip")
    options = {name: given[name] for name in ("isolation", *SCAN_OPTIONS) if name in given}
    return LogScan(log, first, last, columns, **options)


def arrow_c_schema(log: Log) -> object:
    """Return the schema of all columns as an Arrow C schema capsule."""
    return scan(log).__arrow_c_schema__()


def arrow_c_stream(log: Log, requested_schema: object = None) -> object:
    """Return all columns as an Arrow C stream capsule."""
    return scan(log).__arrow_c_stream__(requested_schema)
