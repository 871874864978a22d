"""Iceberg and Delta tables and Spark: written by its own writers from our source, and ours read by it and by DuckDB.

It runs where the Spark that has both formats was fetched: `python -m tests.interop.lakehouse`, or KAFKALOG_LAKEHOUSE=1,
downloads about 575 MB once for a user.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="the extra `lake` is not installed")
pytest.importorskip("deltalake", reason="the extra `lake` is not installed")

from tests.interop import toolchain
from tests.interop.lakehouse import FORMATS, Lakehouse, Row, quick_java, run
from tests.interop.lakehouse_driver import TABLES

VARIABLE = "KAFKALOG_LAKEHOUSE"
pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.crash,
    pytest.mark.skipif(
        os.environ.get(VARIABLE) != "1" and not toolchain.lakehouse_python().is_dir(),
        reason=f"the Spark that has Iceberg and Delta is not here: {VARIABLE}=1 fetches it",
    ),
]
EVERY = [(format, name) for format in FORMATS for name in TABLES]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lakehouse, dict[str, list[Row]]]]:
    """The tables after a driver that was killed, and what Spark read of each."""
    house = Lakehouse(tmp_path_factory.mktemp("lakehouse").resolve(), quick_java())
    try:
        yield house, run(house, 1)
    finally:
        house.end()


@pytest.mark.parametrize(("format", "name"), EVERY)
def test_spark_reads_every_row_once(finished: tuple[Lakehouse, Any], format: str, name: str) -> None:
    house, read = finished
    assert house.replayed == len(FORMATS), "both queries had to repeat a micro-batch that was in its table"
    assert read[f"{format} {name}"] == sorted(house.rows)


@pytest.mark.parametrize("format", FORMATS)
def test_files_of_two_syncs_became_one(finished: tuple[Lakehouse, Any], format: str) -> None:
    house, _ = finished
    assert [len(house.files(format, name)) for name in ("synced", "compacted")] == [2, 1]


@pytest.mark.parametrize(("format", "name"), EVERY)
def test_pyiceberg_and_delta_rs_read_every_row_once(finished: tuple[Lakehouse, Any], format: str, name: str) -> None:
    house, _ = finished
    table = house.table(format, name).to_pydict()
    millis = [int(one.timestamp() * 1000) for one in table["timestamp"]]
    found = zip(table["partition"], table["offset"], table["key"], table["value"], millis, strict=True)
    assert [*found] == sorted(house.rows)


def test_duckdb_with_its_own_extensions_has_the_same_sums(finished: tuple[Lakehouse, Any]) -> None:
    house, _ = finished
    sums = [len(house.rows), sum(row[1] for row in house.rows), sum(row[1] * 3 + 1 for row in house.rows)]
    assert house.duckdb_rows([*TABLES]) == {f"{format} {name}": sums for format, name in EVERY}


def test_a_sync_continues_beside_spark(finished: tuple[Lakehouse, Any]) -> None:
    house, _ = finished
    house.append(10)
    house.sync()
    for format in FORMATS:
        assert house.table(format, "synced").num_rows == len(house.rows)
        assert house.table(format, "streamed").num_rows == len(house.rows) - 20
