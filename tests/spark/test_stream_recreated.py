"""A stream and the identity of its topics: another topic of the same name is a loss, a copy of the topic is not."""

import os
import shutil
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import OffsetOutOfRange
from kafkalog.storage.names import PARTITION_METADATA

pytest.importorskip("pyspark", reason="PySpark is not installed")

from kafkalog.spark.batch_plan import plan_batch
from kafkalog.spark.damage import DataLoss
from kafkalog.spark.reading import arrow_batches
from kafkalog.spark.stream import StreamReader
from tests.spark.test_stream_reader import append, latest, read, reader
from tests.spark.topics import source_options


def create(data: Path, records: int) -> None:
    with kafkalog.open_dirs([data], "a") as dirs:
        dirs.create_topic("orders", partitions=1)
    if records:
        append(data, records)


def recreate(data: Path, records: int) -> None:
    shutil.rmtree(data / "orders-0")
    (data / "kafkalog.topics.json").unlink()
    create(data, records)


def pass_time(stream: StreamReader) -> None:
    stream._clock.advance(1000)  # type: ignore[attr-defined]


@pytest.mark.parametrize("has_id", [True, False])
def test_a_copy_that_replaces_the_partition_is_no_loss(tmp_path: Path, has_id: bool) -> None:
    create(tmp_path, 50)
    partition = tmp_path / "orders-0"
    if not has_id:
        (partition / PARTITION_METADATA).unlink()
    stream = reader(tmp_path)
    end = latest(stream, stream.initialOffset())
    shutil.copytree(partition, tmp_path / "copy")
    shutil.rmtree(partition)
    (tmp_path / "copy").rename(partition)
    append(tmp_path, 5)
    assert (partition / PARTITION_METADATA).exists() == has_id
    pass_time(stream)
    assert latest(stream, end) == {"orders": {"0": 55}}


def test_a_topic_created_again_before_any_of_it_was_read_is_no_loss(tmp_path: Path) -> None:
    create(tmp_path, 0)
    stream = reader(tmp_path)
    begin = stream.initialOffset()
    assert begin == {"orders": {"0": 0}} == latest(stream, begin)
    recreate(tmp_path, 20)
    pass_time(stream)
    end = latest(stream, begin)
    append(tmp_path, 1)
    assert (end, latest(stream, end)) == ({"orders": {"0": 20}}, {"orders": {"0": 21}})


def test_reading_continues_where_the_log_of_the_new_topic_starts(tmp_path: Path) -> None:
    create(tmp_path, 50)
    stream = reader(tmp_path, failOnDataLoss="false")
    end = latest(stream, stream.initialOffset())
    recreate(tmp_path, 70)
    with kafkalog.open(tmp_path / "orders-0", "a") as log:
        log.delete_before(30)
    pass_time(stream)
    with pytest.warns(DataLoss, match="created again after it was read up to 50: reading continues at 30"):
        end = latest(stream, end)
    assert (end, latest(stream, end)) == ({"orders": {"0": 30}}, {"orders": {"0": 70}})


def test_a_postponed_batch_does_not_hide_that_the_topic_was_created_again(tmp_path: Path) -> None:
    create(tmp_path, 50)
    stream = reader(tmp_path, failOnDataLoss="false", minOffsetsPerTrigger=10, maxTriggerDelay="10s")
    end = latest(stream, stream.initialOffset())
    assert end == {"orders": {"0": 50}}
    recreate(tmp_path, 70)
    pass_time(stream)
    with pytest.warns(DataLoss, match="created again"):
        assert latest(stream, end) == end
    stream._clock.advance(10_000)  # type: ignore[attr-defined]
    with pytest.warns(DataLoss, match="reading continues at 0"):
        assert latest(stream, end) == {"orders": {"0": 0}}


def test_tasks_of_a_micro_batch_do_not_read_another_topic(tmp_path: Path) -> None:
    create(tmp_path, 50)
    stream = reader(tmp_path)
    begin = stream.initialOffset()
    end = latest(stream, begin)
    recreate(tmp_path, 70)
    with pytest.raises(OffsetOutOfRange, match="deleted and created again: its id was"):
        read(stream, begin, end)


def test_tasks_of_a_batch_do_not_read_another_topic(tmp_path: Path) -> None:
    create(tmp_path, 50)
    options = source_options(tmp_path)
    (part,) = plan_batch(options)
    recreate(tmp_path, 70)
    with pytest.raises(OffsetOutOfRange, match="deleted and created again.*failOnDataLoss") as caught:
        list(arrow_batches(part, ("offset",), options))
    assert (caught.value.path, caught.value.offset) == (str(tmp_path / "orders-0"), 0)
    lenient = source_options(tmp_path, failOnDataLoss="false")
    with pytest.warns(DataLoss, match="offsets 0 to 49 are missing: the topic was deleted and created again"):
        assert list(arrow_batches(part, ("offset",), lenient)) == []


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_that_is_replaced_while_a_task_reads_fails_the_task(tmp_path: Path, fail: str) -> None:
    create(tmp_path, 50)
    options = source_options(tmp_path, failOnDataLoss=fail)
    (part,) = plan_batch(options)
    batches = arrow_batches(part, ("offset",), options)
    assert next(batches).num_rows == 50
    recreate(tmp_path, 70)
    with pytest.raises(OffsetOutOfRange, match="deleted and created again"):
        list(batches)


@pytest.mark.parametrize("content", [None, b"version: 0\ntopic_id: ?\n"])
def test_a_batch_of_a_topic_without_a_readable_id_is_read(tmp_path: Path, content: bytes | None) -> None:
    create(tmp_path, 50)
    metadata = tmp_path / "orders-0" / PARTITION_METADATA
    options = source_options(tmp_path)
    (known,) = plan_batch(options)
    os.unlink(metadata) if content is None else metadata.write_bytes(content)
    (unknown,) = plan_batch(options)
    for part in (known, unknown):
        assert sum(one.num_rows for one in arrow_batches(part, ("offset",), options)) == 50
