"""The same condition selects the same rows in a scan, records, SQL, Polars and Spark, also beside bad values."""

import json
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.spark.batch_plan import plan_batch
from kafkalog.spark.reading import arrow_batches
from kafkalog.spark.typed_columns import plan_types
from tests.spark.topics import source_options

duckdb = pytest.importorskip("duckdb")
polars = pytest.importorskip("polars")
pytest.importorskip("pyspark", reason="PySpark is not installed")

SCHEMA: dict[str, Any] = {"type": "record", "name": "Order", "fields": [
    {"name": "total", "type": "long"}, {"name": "note", "type": "string"}, {"name": "count", "type": "int"},
    {"name": "paid", "type": "boolean"}, {"name": "buyer", "type": ["null", "string"]},
    {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 2}},
]}  # fmt: skip
SOUND = b"\x0e\x02n\x02\x00\x00\x00\x02\x07"  # total 7
BAD = {  # what is wrong with a field that no condition names
    "UTF-8": b"\x0e\x02\xff\x02\x00\x00\x00\x02\x07", "int": b"\x0e\x02n\x80\x80\x80\x80\x10\x00\x00\x00\x02\x07",
    "boolean": b"\x0e\x02n\x02\x02\x00\x00\x02\x07", "branch": b"\x0e\x02n\x02\x00\x04\x00\x02\x07",
    "symbol": b"\x0e\x02n\x02\x00\x00\x04\x02\x07", "decimal": b"\x0e\x02n\x02\x00\x00\x00\x02\x64",
    "end": SOUND[:-1],
}  # fmt: skip
TOTAL, OFFSET = polars.col("value").struct.field("total"), polars.col("offset")
HEADER = b"\0\0\0\0\1"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Sound values at offsets 0 and 2, and one whose total is 5 at 1; bad ones behind them."""
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "1.avsc").write_text(json.dumps(SCHEMA))
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("orders", 1)
        dirs["orders", 0].append([HEADER + row for row in (SOUND, b"\x0a" + SOUND[1:], SOUND, *BAD.values())])
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("where", "sql", "predicate", "offsets"),
    [
        ("value.total == 7", "value.total = 7", TOTAL == 7, [0, 2]),
        ("value.total is null", "value.total IS NULL", TOTAL.is_null(), [*range(3, 3 + len(BAD))]),
        ("value.total > 6 or offset == 5", 'value.total > 6 OR "offset" = 5', (TOTAL > 6) | (OFFSET == 5), [0, 2, 5]),
    ],
)
def test_a_condition_selects_the_same_rows_everywhere(
    data: Path, where: str, sql: str, predicate: Any, offsets: list[int]
) -> None:
    typed: dict[str, Any] = {"value": "avro", "schemas": str(data.parent / "schemas")}
    lenient = {**typed, "on_undecodable": "null"}
    with kafkalog.open_dirs(data) as dirs:
        found = {"records": [one.offset for one in dirs["orders", 0].records(where=where, **lenient)]}
        found["scan"] = dirs["orders", 0].scan(["offset"], where=where, **lenient).table()["offset"].to_pylist()
        found["project"] = dirs.scan("orders", project=["offset"], where=where, **lenient).table()["offset"].to_pylist()
        with duckdb.connect() as connection, kafkalog.duckdb.register(connection, dirs, **lenient):
            found["sql"] = [n for (n,) in connection.execute(f'SELECT "offset" FROM orders WHERE {sql}').fetchall()]
        frame = kafkalog.polars.scan(dirs, "orders", **lenient)
        found["polars"] = frame.filter(predicate).collect()["offset"].to_list()
    options = source_options(data, where=where, columns="offset,value", onUndecodable="null", **typed)
    plan = plan_types(options, options.columns)
    assert plan is not None
    found["spark"] = [
        row["offset"] for one in plan_batch(options)
        for batch in arrow_batches(one, tuple(plan.schema.names), options, typed=plan) for row in batch.to_pylist()
    ]  # fmt: skip
    assert found == dict.fromkeys(found, offsets)
