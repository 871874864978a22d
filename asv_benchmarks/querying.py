"""Queries over whole topics: what DuckDB reads of a log for a range of time, beside the same query without pushdown.

QUERY_RECORDS is the number of records of 108 bytes in the log (default 3,000,000).
"""

import os
from collections.abc import Callable
from pathlib import Path

import duckdb

import kafkalog
from asv_benchmarks.measure import Row, cpu_seconds, per_item

MILLION = 1e6
PARTITIONS, RECORDS = 2, int(os.environ.get("QUERY_RECORDS", "3000000")) // 2
FIRST_MS, LATENESS_MS = 1_700_000_000_000, 60_000
VALUE = bytes(range(100, 200))


def rows(directory: Path) -> list[Row]:
    """Return the rows for a log of records of 100 bytes, one every 10 ms in each of two partitions."""
    with kafkalog.open_dirs(directory / "data", "a") as dirs:
        dirs.create_topic("orders", PARTITIONS, {"segment.bytes": 64 << 20, "retention.ms": -1})
        for log in dirs.logs("orders"):
            for start in range(0, RECORDS, 1000):
                log.append([(b"k%d" % (n % 100), VALUE, FIRST_MS + 10 * n) for n in range(start, start + 1000)])
    with kafkalog.open_dirs(directory / "data") as dirs, duckdb.connect(config={"threads": 1}) as sql:
        kafkalog.duckdb.register(sql, dirs)
        kafkalog.duckdb.register(sql, dirs, {"orders": "in_time"}, lateness_ms=LATENESS_MS)
        middle = _between(FIRST_MS + 5 * RECORDS, 5)
        last = _between(FIRST_MS + 10 * RECORDS - 180_000, 3)
        found = _range(dirs, sql, "a query of the last 3 minutes", "orders", last)
        found += _range(dirs, sql, "a query of 5 minutes in the middle", "in_time", middle)
        sql.execute(f"SELECT count(value) FROM orders WHERE {middle}").fetchall()  # notes the times of segments
        found += _range(dirs, sql, "the same without a promise of lateness, again", "orders", middle)
        return [*found, *_merge(dirs)]


def _between(start_ms: int, minutes: int) -> str:
    """Return the condition of a range of time."""
    first, last = (f"make_timestamptz({ms * 1000})" for ms in (start_ms, start_ms + minutes * 60_000))
    return f"timestamp >= {first} AND timestamp < {last}"


def _range(dirs: kafkalog.LogDirs, sql: duckdb.DuckDBPyConnection, name: str, table: str, condition: str) -> list[Row]:
    """Return the share of the log that a query reads, and its CPU, beside those of a scan of everything."""
    logs = dirs.logs("orders")

    def query() -> None:
        sql.execute(f"SELECT count(value) FROM {table} WHERE {condition}").fetchall()

    def whole() -> None:
        sql.register("scan", dirs.scan("orders", ["timestamp", "value"]))
        sql.execute(f"SELECT count(value) FROM scan WHERE {condition}").fetchall()

    def share_of(work: Callable[[], None]) -> float:
        before = sum(log._source.metrics.reads.total for log in logs)
        work()
        read = sum(log._source.metrics.reads.total for log in logs) - before
        return 100 * read / sum(log.size for log in logs)

    shares = [share_of(work) for work in (query, whole)]
    times = [1000 * cpu_seconds(work, 10) for work in (query, whole)]
    return [
        Row(f"{name}, share of the log read", shares[0], 4, "%", True, {"without pushdown": shares[1]}),
        Row(f"{name}, CPU", times[0], times[1] / 5, "ms", True, {"without pushdown": times[1]}),
    ]


def _merge(dirs: kafkalog.LogDirs) -> list[Row]:
    """Return the speed of a topic by time, beside that of one partition after the other."""

    def by_partition() -> int:
        return sum(map(len, dirs.scan("orders", ["timestamp", "value"])))

    def by_time() -> int:
        return sum(map(len, dirs.scan("orders", ["timestamp", "value"], order="time")))

    plain, merged = (1 / per_item(work) / MILLION for work in (by_partition, by_time))
    return [Row("a topic by time", merged, plain / 5, "M/s", False, {"by partition": plain})]
