"""The streaming reader for PySpark 4.1, asked as that asks it, without Spark's JVM."""

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import IllegalArgument, OffsetOutOfRange
from tests.mock_time import MockClock
from tests.spark.topics import make_topic

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from kafkalog.spark.options import SourceOptions
from kafkalog.spark.source import BatchReader, KafkalogDataSource
from kafkalog.spark.unlimited_stream import UnlimitedStreamReader


def reader(data: Path, **given: str) -> UnlimitedStreamReader:
    options = {"path": str(data), "subscribe": "orders", "startingOffsets": "earliest", **given}
    parsed = SourceOptions.parse(options, streaming=True)
    return UnlimitedStreamReader(parsed, parsed.columns, clock=MockClock())


def offsets(of: Any) -> Any:
    """Offsets as they come back from a checkpoint."""
    return json.loads(json.dumps(of))


def read(stream: UnlimitedStreamReader, start: Any, end: Any) -> list[tuple[int, int]]:
    copies = [(pickle.loads(pickle.dumps(stream)), part) for part in stream.partitions(start, end)]
    rows = [row for copy, part in copies for batch in copy.read(part) for row in batch.to_pylist()]
    return [(row["partition"], row["offset"]) for row in rows]


def append(data: Path, records: int, partition: int = 0) -> None:
    with kafkalog.open(data / f"orders-{partition}", "a") as log:
        log.append([b"more"] * records)


def test_each_record_is_read_once_also_after_restarts(tmp_path: Path) -> None:
    make_topic(tmp_path, partitions=2)
    stream = reader(tmp_path)
    begin, got = offsets(stream.initialOffset()), []
    for restart in (False, True, False, True):
        if restart:
            stream = reader(tmp_path)
        end = offsets(stream.latestOffset())
        got += read(stream, begin, end)
        assert offsets(stream.latestOffset()) == end, "nothing is new"
        begin = end
        append(tmp_path, 7, partition=1)
    wanted = [(0, n) for n in range(100)] + [(1, n) for n in range(100 + 3 * 7)]
    assert sorted(got) == wanted


def test_a_planned_batch_is_planned_again_after_a_restart(tmp_path: Path) -> None:
    make_topic(tmp_path, partitions=1)
    stream = reader(tmp_path)
    begin, end = offsets(stream.initialOffset()), offsets(stream.latestOffset())
    append(tmp_path, 5)
    again = reader(tmp_path)
    assert read(again, begin, end) == [(0, n) for n in range(100)]
    assert offsets(again.latestOffset()) == {"orders": {"0": 105}}


def test_what_was_lost_while_no_query_ran_is_reported(tmp_path: Path) -> None:
    make_topic(tmp_path, partitions=1)
    end = offsets(reader(tmp_path).latestOffset())
    shutil.rmtree(tmp_path / "orders-0")
    make_topic(tmp_path, partitions=1, batches=1)
    stream = reader(tmp_path)
    now = offsets(stream.latestOffset())
    assert now != end
    with pytest.raises(OffsetOutOfRange, match="orders-0 was read up to 100 and went back"):
        stream.partitions(end, now)


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger"])
def test_limits_need_a_newer_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    make_topic(tmp_path, partitions=1)
    monkeypatch.delattr(DataSourceStreamReader, "getDefaultReadLimit", raising=False)
    columns = StructType().add("value", "binary")
    source = KafkalogDataSource({"path": str(tmp_path), "subscribe": "orders", option: "10"})
    with pytest.raises(IllegalArgument, match=f"{option} needs PySpark 4.2 or newer"):
        source.streamReader(columns)
    found = KafkalogDataSource({"path": str(tmp_path), "subscribe": "orders"}).streamReader(columns)
    assert isinstance(found, UnlimitedStreamReader)


def test_a_batch_without_a_range_has_no_partition_there(tmp_path: Path) -> None:
    make_topic(tmp_path, partitions=1)
    options = SourceOptions.parse({"path": str(tmp_path), "subscribe": "orders"}, streaming=False)
    assert [*BatchReader(options, options.columns).read(None)] == []
