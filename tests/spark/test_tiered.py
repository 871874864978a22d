"""Spark reads tiered topics whole, in batches and in streams, without a broker."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.test_stream import to_the_end
from tests.tiered.test_plugin_objects import STORES, describe, read_all, unpack, write_data
from tests.tiered.test_readers import make_data, make_log
from tests.tiered_store import values_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'kafkalog[fs]'")


def test_a_tiered_topic_in_a_batch_and_in_a_stream(spark: "SparkSession", tmp_path: Path) -> None:
    data, expected = make_data(tmp_path), values_of(make_log())
    options = {"subscribe": "orders", "tiered": str(tmp_path / "tiered.json"), "columns": "offset,value"}
    frame = spark.read.format("kafkalog").options(**options, maxRecordsPerPartition="30").load(str(data))
    assert frame.rdd.getNumPartitions() > 2
    assert sorted((row.offset, bytes(row.value)) for row in frame.collect()) == expected
    part = spark.read.format("kafkalog").options(**options, startingOffsets='{"orders":{"0":17}}').load(str(data))
    assert sorted(row.offset for row in part.collect()) == list(range(17, 80))
    stream = spark.readStream.format("kafkalog").options(**options, startingOffsets="earliest").load(str(data))
    to_the_end(stream.writeStream.format("parquet").option("path", str(tmp_path / "out")), tmp_path / "checkpoint")
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((row.offset, bytes(row.value)) for row in rows) == expected


def test_a_wrong_key_fails_the_job_and_names_the_object(spark: "SparkSession", tmp_path: Path) -> None:
    data = make_data(tmp_path)
    description = json.loads((tmp_path / "tiered.json").read_text())
    (tmp_path / "other.json").write_text(json.dumps(description | {"keys": {}}))
    reader = spark.read.format("kafkalog").options(subscribe="orders", tiered=str(tmp_path / "other.json"))
    with pytest.raises(Exception, match="private key was not given"):
        reader.load(str(data)).collect()


@pytest.mark.parametrize("store", STORES)
def test_segments_that_the_plugin_wrote_and_the_local_one(spark: "SparkSession", tmp_path: Path, store: str) -> None:
    objects = unpack(tmp_path / "objects")
    data, source = tmp_path / "data", objects / "source" / "orders-0"
    write_data(objects, store, data)
    options = {"subscribe": "orders", "tiered": str(describe(objects, store)), "maxRecordsPerPartition": "30"}
    for isolation in ("read_uncommitted", "read_committed"):
        read = {**options, "isolationLevel": isolation}
        frame = spark.read.format("kafkalog").options(**read).load(str(data)).select("offset", "key", "value")
        assert frame.rdd.getNumPartitions() > 2
        found = sorted((row.offset, bytes(row.key or b""), bytes(row.value or b"")) for row in frame.collect())
        assert found == [(one[0], one[2] or b"", one[3] or b"") for one in read_all(source, isolation)]
