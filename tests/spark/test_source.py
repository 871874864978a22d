"""The source as Spark finds it."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")


def test_spark_finds_the_source_by_itself(spark, tmp_path: Path) -> None:
    frame = spark.read.format("kafkalog").schema("offset bigint").load(str(tmp_path))
    assert frame.columns == ["offset"]
