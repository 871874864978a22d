"""A log as columns: `scan`, `table`, `to_pandas`, `to_polars`, and the Arrow C stream interface."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, overload

from kafkalog.log.read import offset_range
from kafkalog.log.scan import SCAN_OPTIONS, TYPED_OPTIONS, LogScan, check_keywords
from kafkalog.log.scans import scan_of
from kafkalog.reading.source import isolation_of
from kafkalog.records.column_reader import BATCH_BYTES, BATCH_ROWS

if TYPE_CHECKING:
    import pandas
    import polars

    from kafkalog.log.log import Log
    from kafkalog.log.typed_scan import TypedScan
    from kafkalog.storage.damage import Skipped
    from kafkalog.util.times import Time

_BOUNDS: Final = ("start", "stop", "since", "until")


@overload
def scan(
    log: Log,
    columns: Iterable[str] | None = None,
    *,
    start: int | None = ...,
    stop: int | None = ...,
    since: Time | None = ...,
    until: Time | None = ...,
    isolation: str | None = ...,
    on_damage: str = ...,
    skipped: list[Skipped] | None = ...,
    batch_rows: int = ...,
    batch_bytes: int = ...,
) -> LogScan: ...
@overload
def scan(log: Log, columns: Iterable[str] | None = None, **arguments: Any) -> TypedScan: ...
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
    **typed: Any,
) -> LogScan | TypedScan:
    """Return the records as lazy columns for DuckDB, Polars or pyarrow; bounds, `on_damage` as for `records`.

    `columns` is a selection of key, value, topic, partition, offset, timestamp, timestampType and headers; other
    columns are not decoded. A record batch has at most `batch_rows` records and `batch_bytes` of keys, values and
    headers, but at least one record. Errors as for `records`; IllegalArgument for an unknown column.

    With any of these keywords the result is a `TypedScan`, whose record batches are pyarrow's. `where` is a condition
    (docs/where.md): only records for which it is true are returned. `project` names the fields to return instead of
    `columns`: a list of paths such as "value.order.total", or a dict of names and paths. `key` and `value` decode
    ("avro", "protobuf", "json", "string", "int64", …), by `schema`, `schemas`, `registry` or `message`. A key or value
    that does not decode raises InvalidRecord; with `on_undecodable="null"` it is null, and a column `key_error` or
    `value_error` has the reason.

    >>> log.scan(["key", "value"])
    <LogScan orders-0 [0, 2): key, value>
    >>> log.scan(["offset", "value"], where="key == 'u-1' and size < 100").table().to_pydict()
    {'offset': [0], 'value': [b'first']}
    """
    bounds = {"start": start, "stop": stop, "since": since, "until": until}
    reading = {"isolation": isolation, "on_damage": on_damage, "skipped": skipped}
    options = {"batch_rows": batch_rows, "batch_bytes": batch_bytes}
    return _scan(log, "scan", columns, {**bounds, **reading, **options, **typed})


def table(log: Log, columns: Iterable[str] | None = None, **arguments: object) -> Any:
    """Return the records as columns in memory, for NumPy, pandas, DuckDB, Polars, pyarrow; arguments as for `scan`.

    The result is a `Table`, for a typed scan a pyarrow Table.

    >>> len(log.table(["key", "value"]))
    2
    """
    return _scan(log, "table", columns, arguments).table()


def to_pandas(log: Log, columns: Iterable[str] | None = None, **arguments: object) -> pandas.DataFrame:
    """Return the records as a pandas DataFrame (without pyarrow, unless the scan is typed); arguments as for `scan`.

    >>> log.to_pandas(["key", "offset"])["offset"].tolist()
    [0, 1]
    """
    return _scan(log, "to_pandas", columns, arguments).to_pandas()


def to_polars(log: Log, columns: Iterable[str] | None = None, **arguments: object) -> polars.DataFrame:
    """Return the records as a Polars DataFrame; arguments as for `scan`. Raises MissingPackage without Polars.

    >>> log.to_polars(["key", "offset"])["offset"].to_list()
    [0, 1]
    """
    return _scan(log, "to_polars", columns, arguments).to_polars()


def _scan(log: Log, call: str, columns: Iterable[str] | None, given: dict[str, Any]) -> LogScan | TypedScan:
    given = check_keywords(call, given, (*_BOUNDS, "isolation", *SCAN_OPTIONS, *TYPED_OPTIONS))
    level = isolation_of(given.get("isolation"))
    start, stop, since, until = (given.get(name) for name in _BOUNDS)
    first, last = offset_range(log, start, stop, since, until, level, given.get("on_damage") == "skip")
    return scan_of(log, first, last, columns, given)


def arrow_c_schema(log: Log) -> object:
    """Return the schema of all columns as an Arrow C schema capsule."""
    return scan(log).__arrow_c_schema__()


def arrow_c_stream(log: Log, requested_schema: object = None) -> object:
    """Return all columns as an Arrow C stream capsule."""
    return scan(log).__arrow_c_stream__(requested_schema)
