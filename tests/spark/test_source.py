"""The source as Spark finds it."""

from pathlib import Path

import pytest

import kafkalog

pytest.importorskip("pyspark", reason="PySpark is not installed")


@pytest.fixture
def data(tmp_path: Path) -> str:
    for partition in range(2):
        with kafkalog.open(tmp_path / f"orders-{partition}", "a") as log:
            log.append([(b"k%d" % n, b"v%d" % n, 1_700_000_000_000 + n) for n in range(100)])
    return str(tmp_path)


def test_spark_finds_the_source_by_itself_and_reads(spark, data: str) -> None:
    frame = spark.read.format("kafkalog").option("subscribe", "orders").load(data)
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    rows = frame.orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset) for row in rows] == [(p, n) for p in range(2) for n in range(100)]
    assert bytes(rows[5].key) == b"k5" and bytes(rows[105].value) == b"v5" and rows[0].topic == "orders"
    assert rows[7].timestamp.timestamp() == 1_700_000_000.007


@pytest.mark.parametrize("on", ["false", "true"])
def test_filters_give_the_same_whether_spark_hands_them_over_or_not(spark, data: str, on: str) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", on)
    frame = spark.read.format("kafkalog").option("subscribe", "orders").load(data)
    kept = frame.where("partition = 1 and offset >= 90 and timestamp > '2023-11-14 22:13:20.092'").collect()
    assert [(row.partition, row.offset) for row in kept] == [(1, n) for n in range(93, 100)]
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")
