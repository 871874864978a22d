"""Conditions on columns: a scan with `where` beside DuckDB's filter on the same Arrow data."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafkalog
from asv_benchmarks.benchmarks.common import NOW
from asv_benchmarks.measure import Peers, Row, per_item

MILLION = 1e6
ROWS = 2_000_000
PIECE_ROWS = 100_000
CASES = (
    ("where on a key", "key == 'user-0000007'", "key = 'user-0000007'::BLOB", 30),
    ("where on a key's prefix", "key like 'user-00000%'", "decode(key) LIKE 'user-00000%'", 25),
    ("where with a regular expression", "key matches '77+$'", "regexp_matches(decode(key), '77+$')", 5),
)


def rows(directory: Path) -> list[Row]:
    """Return the rates of filters in millions of records a CPU second: with reading the log, DuckDB's without it."""
    import pyarrow as pa

    path = directory / "filter-0"
    with kafkalog.open(path, "a") as log:
        for base in range(0, ROWS, PIECE_ROWS):
            keys = [b"user-%07d" % (n * 7919 % 1_000_003) for n in range(base, base + PIECE_ROWS)]
            times = pa.array(range(NOW + base, NOW + base + PIECE_ROWS), pa.int64())
            log.append_arrow(pa.table({"key": keys, "value": [b"x" * 60] * PIECE_ROWS, "timestamp": times}))
    with kafkalog.open(path) as log:
        table = pa.table(log.scan(["key", "offset"]))
        found = [
            Row(name, _rate(lambda where=where: _matching(log, where)), bar, "M/s", False, _duckdb(table, query))
            for name, where, query, bar in CASES
        ]
        found.append(Row("records by a key", _rate(lambda: _records(log, CASES[0][1])), 10, "M/s", False))
    return found


def _matching(log: kafkalog.Log, where: str) -> int:
    for _ in log.scan(["offset"], where=where):
        pass
    return ROWS


def _records(log: kafkalog.Log, where: str) -> int:
    for _ in log.records(where=where):
        pass
    return ROWS


def _rate(work: Callable[[], int]) -> float:
    return 1 / per_item(work) / MILLION


def _duckdb(table: Any, condition: str) -> Peers:
    """Return DuckDB's rate for the same condition on a table of Arrow in memory, in one thread."""
    try:
        import duckdb
    except ImportError as error:
        return {"DuckDB": f"not installed ({error})"}
    connection = duckdb.connect(config={"threads": 1})
    connection.register("records", table)

    def once() -> int:
        connection.sql(f"SELECT \"offset\" FROM records WHERE {condition}").fetchall()
        return ROWS

    return {"DuckDB": _rate(once)}
