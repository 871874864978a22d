"""Conditions on columns: a scan with `where` beside DuckDB's filter on the same Arrow data.

A condition on a path into JSON values stands beside DuckDB on values that are in memory already, beside the parsers of
orjson and msgspec in a loop over those, and beside kcat piped into jq, which read from `kafkalog serve`.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafkalog
from asv_benchmarks.benchmarks.common import NOW
from asv_benchmarks.documents import json_values, parser_of
from asv_benchmarks.measure import Peers, Row, median_run, per_item
from asv_benchmarks.servers import serving

MILLION = 1e6
ROWS = 2_000_000
PIECE_ROWS = 100_000
JSON_ROWS = 1_000_000
JSON_TOPIC = "documents"
LEAST_TOTAL = 99.5
"""A field of the documents is at least as large in one of 200."""
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
    return [*found, _json_row(directory / "json")]


def _json_row(data: Path) -> Row:
    """Return the rate of a condition on a path into the JSON values of a whole log."""
    path = data / f"{JSON_TOPIC}-0"
    documents = json_values(JSON_ROWS)
    with kafkalog.open(path, "a") as log:
        for first in range(0, JSON_ROWS, PIECE_ROWS // 100):
            log.append(documents[first : first + PIECE_ROWS // 100])
    with kafkalog.open(path) as log:

        def matching() -> int:
            table = log.scan(["offset"], value="json", where=f"value.total >= {LEAST_TOTAL}").table()
            assert table.num_rows == JSON_ROWS // 200
            return JSON_ROWS

        rate = _rate(matching)
    peers = _json_duckdb(documents) | _parsers(documents) | _kcat_and_jq(data)
    return Row("where on a path into JSON", rate, 3, "M/s", False, peers)


def _json_duckdb(documents: list[bytes]) -> Peers:
    import pyarrow as pa

    table = pa.table({"offset": range(len(documents)), "value": pa.array(documents, pa.string())})
    return _duckdb(table, f"json_extract(value, '$.total')::DOUBLE >= {LEAST_TOTAL}", len(documents))


def _parsers(documents: list[bytes]) -> Peers:
    """Return the rates of loops in Python that parse each document."""
    peers: Peers = {}
    for name in ("orjson", "msgspec"):
        try:
            parse = parser_of(name)
        except ImportError as missing:
            peers[name] = f"not installed ({missing.name})"
            continue

        def once(parse: Callable[[bytes], Any] = parse) -> int:
            assert sum(parse(one)["total"] >= LEAST_TOTAL for one in documents) == len(documents) // 200
            return len(documents)

        peers[name] = _rate(once)
    return peers


def _kcat_and_jq(data: Path) -> Peers:
    """Return the rate of both together, without the server's CPU."""
    for tool in ("kcat", "jq"):
        if shutil.which(tool) is None:
            return {"kcat and jq": f"not installed ({tool})"}
    with serving(data, "localhost:0", {}) as server:
        read = f"kcat -C -q -e -b {server.bootstrap.rpartition('/')[2]} -t {JSON_TOPIC} -p 0 -o beginning"
        used = median_run(["sh", "-c", f"{read} | jq -c 'select(.total >= {LEAST_TOTAL}) | .id' >{data}/found"])
    assert len((data / "found").read_bytes().split()) == JSON_ROWS // 200
    return {"kcat and jq": JSON_ROWS / used.cpu / MILLION}


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


def _duckdb(table: Any, condition: str, count: int = ROWS) -> Peers:
    """Return DuckDB's rate for the same condition on a table of Arrow in memory, in one thread."""
    try:
        import duckdb
    except ImportError as error:
        return {"DuckDB": f"not installed ({error})"}
    connection = duckdb.connect(config={"threads": 1})
    connection.register("records", table)

    def once() -> int:
        connection.sql(f"SELECT \"offset\" FROM records WHERE {condition}").fetchall()
        return count

    return {"DuckDB": _rate(once)}
