"""Streams through Spark: triggers, restarts from a checkpoint, loss, and a writer beside them."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from tests.spark.topics import make_topic

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.errors import StreamingQueryException

PATIENCE_S = 240
Batches = list[tuple[int, list[tuple[int, int]]]]


def stream(spark: Any, data: Path, **options: Any) -> Any:
    given = {"subscribe": "orders", "startingOffsets": "earliest"} | options
    return spark.readStream.format("kafkalog").options(**given).load(str(data))


def available_now(frame: Any, checkpoint: Path) -> Batches:
    """Runs a query to the end of what is there; gives (partition, offset) of the rows of each of its batches."""
    batches: Batches = []

    def collect_batch(rows: Any, batch: int) -> None:
        found = rows.select("partition", "offset").collect()
        batches.append((batch, sorted((row.partition, row.offset) for row in found)))

    to_the_end(frame.writeStream.foreachBatch(collect_batch), checkpoint)
    return batches


def to_the_end(writer: Any, checkpoint: Path) -> None:
    """Runs a query until what is there is done. Spark gives a Python process ten seconds to start, and a busy machine
    needs more: then the query is started again.
    """
    for left in range(5, -1, -1):
        query = writer.trigger(availableNow=True).option("checkpointLocation", str(checkpoint)).start()
        try:
            assert query.awaitTermination(PATIENCE_S), "the query came to no end"
            return
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error) or not left:
                raise
        finally:
            query.stop()


@contextmanager
def running_query(frame: Any, name: str) -> Iterator[Any]:
    """The query while it runs; its rows are the table of its name."""
    query = frame.writeStream.format("memory").queryName(name).start()
    try:
        yield query
    finally:
        query.stop()


def rows(first: int, stop: int, partition: int = 0) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(first, stop)]


def offsets_logged(checkpoint: Path, batch: int) -> Any:
    """The source's line of a batch in the offset log."""
    return json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[2])


def test_batches_restarts_and_a_commit_that_was_lost(spark, tmp_path: Path) -> None:
    data, checkpoint = make_topic(tmp_path / "data", partitions=2, batches=2), tmp_path / "checkpoint"
    first = available_now(stream(spark, data, maxOffsetsPerTrigger=60), checkpoint)
    assert first == [(0, rows(0, 30) + rows(0, 30, 1)), (1, rows(30, 50) + rows(30, 50, 1))]
    assert offsets_logged(checkpoint, 0) == {"orders": {"0": 30, "1": 30}}, "as the Kafka source writes them"

    make_topic(data, "orders", partitions=1, batches=1)  # partition 0 grows
    with kafkalog.open(data / "orders-2", "a") as log:
        log.append([b"new"] * 5)
    second = available_now(stream(spark, data, startingOffsets="latest"), checkpoint)
    assert second == [(2, rows(50, 75) + rows(0, 5, 2))], "starting offsets count for the first start only"

    (checkpoint / "commits" / "2").unlink()  # the driver died between the rows and the commit
    for crc in (checkpoint / "commits").glob(".2.crc"):
        crc.unlink()
    with kafkalog.open(data / "orders-1", "a") as log:
        log.append([b"later"] * 7)
    third = available_now(stream(spark, data), checkpoint)
    assert third == [second[0], (3, rows(50, 57, 1))], "the same range again, then what is new"
    assert available_now(stream(spark, data), checkpoint) == []


def test_a_writer_beside_a_running_query(spark, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    source = spark.readStream.format("kafkalog").option("subscribe", "orders").option("includeHeaders", "true")
    with kafkalog.open(data / "orders-0", "a") as log:
        log.append([b"before"] * 10)

        def write() -> None:
            for n in range(200):
                log.append([{"value": b"v%d" % n, "headers": [("n", b"%d" % n)]}, b"plain"])
                if n % 40 == 0:
                    log.roll()

        with running_query(source.load(str(data)), "beside") as query:
            query.processAllAvailable()
            writer = threading.Thread(target=write)
            writer.start()
            writer.join()
            query.processAllAvailable()
            progress = query.lastProgress["sources"][0]
    assert spark.table("beside").columns[-1] == "headers"
    found = spark.sql("select offset, cast(value as string) v, headers from beside order by offset").collect()
    assert [row.offset for row in found] == list(range(10, 410)), "from the latest offset on, each once"
    assert [(row.v, row.headers[0].key, bytes(row.headers[0].value)) for row in found[::2]] == [
        (f"v{n}", "n", b"%d" % n) for n in range(200)
    ]
    assert all(row.headers is None for row in found[1::2])
    assert json.loads(str(progress["latestOffset"]).replace("'", '"')) == {"orders": {"0": 410}}


def test_records_that_are_lost_end_the_query_or_are_passed_over(spark, tmp_path: Path) -> None:
    data, checkpoint = make_topic(tmp_path / "data", batches=2), tmp_path / "checkpoint"
    assert available_now(stream(spark, data), checkpoint) == [(0, rows(0, 50))]
    make_topic(data, batches=2)
    with kafkalog.open(data / "orders-0", "a") as log:
        log.delete_before(80)
    with pytest.raises(StreamingQueryException, match="offsets 50 to 79 of orders-0 were deleted before they were"):
        available_now(stream(spark, data), checkpoint)
    assert not (checkpoint / "offsets" / "1").exists(), "nothing was planned"
    assert available_now(stream(spark, data, failOnDataLoss="false"), checkpoint) == [(1, rows(80, 100))]


def test_an_aggregation_and_only_the_columns_it_needs(spark, tmp_path: Path) -> None:
    """A schema of the user's own narrows what is decoded; the state is restored from the checkpoint."""
    data, checkpoint = make_topic(tmp_path / "data", partitions=2, batches=2), tmp_path / "checkpoint"

    def counts() -> dict[int, int]:
        frame = spark.readStream.format("kafkalog").schema("partition int, offset bigint").option("subscribe", "orders")
        frame = frame.option("startingOffsets", "earliest").load(str(data)).groupBy("partition").count()
        found: dict[int, int] = {}

        def collect_batch(rows: Any, batch: int) -> None:
            found.update({row.partition: row["count"] for row in rows.collect()})

        to_the_end(frame.writeStream.outputMode("complete").foreachBatch(collect_batch), checkpoint)
        return found

    assert counts() == {0: 50, 1: 50}
    make_topic(data, partitions=1, batches=1)
    assert counts() == {0: 75, 1: 50}


def test_mistakes_are_told_where_the_query_is_made(spark, tmp_path: Path) -> None:
    data = make_topic(tmp_path / "data")
    for options, match in (
        ({"endingOffsets": "latest"}, "endingOffsets does not apply to streams"),
        ({"maxOffsetsPerTriger": "7"}, "did you mean maxOffsetsPerTrigger"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon'"),
        ({"startingOffsets": '{"orders":{"0":500}}'}, "starting offset 500 of orders-0 does not exist"),
    ):
        with pytest.raises(Exception, match=match):
            available_now(stream(spark, data, **options), tmp_path / match.split()[0])
