"""One stream through both sources: the same micro-batches with the same offsets in the checkpoint, the same rows."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.spark.beside_kafka import BesideKafka, Sent

pytest.importorskip("pyspark", reason="PySpark is not installed")

T0 = 1_700_000_000_000
EARLIEST = {"startingOffsets": "earliest"}


def make_rows(count: int, *partitions: int) -> list[Sent]:
    return [(p, T0 + i, b"%d" % i, b"value", (("h", b"x"),)) for p in partitions for i in range(count)]


def offsets(checkpoint: Path) -> list[Any]:
    """The end offsets of each micro-batch, as the checkpoint has them."""
    files = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return [json.loads(path.read_text().splitlines()[-1]) for path in files]


def same_offsets(kafka: BesideKafka, name: str, options: dict[str, object]) -> list[Any]:
    """The offsets of a stream to its present end through either source, once they and the rows are found the same."""
    for source in ("kafka", "kafkalog"):
        kafka.run_stream(source, options, name)
    theirs, ours = (kafka.streams / f"{name}-{source}" for source in ("kafka", "kafkalog"))
    assert offsets(ours / "checkpoint") == offsets(theirs / "checkpoint")
    assert kafka.table(ours).schema == kafka.table(theirs).schema
    rows = [sorted(map(tuple, kafka.table(one).drop("headers").collect()), key=lambda row: row[2:5])
            for one in (theirs, ours)]  # fmt: skip
    assert rows[0] == rows[1]
    return offsets(ours / "checkpoint")


def test_all_there_is_then_what_came_since(beside: BesideKafka) -> None:
    beside.create("flow", 2)
    beside.send("flow", make_rows(50, 0, 1))
    beside.send("flow", make_rows(7, 1))
    options = {"subscribe": "flow", "includeHeaders": "true", **EARLIEST}
    assert same_offsets(beside, "flow", options) == [{"flow": {"0": 50, "1": 57}}]
    beside.send("flow", make_rows(10, 0))
    beside.add_partitions("flow", 3)
    beside.wait_for_directory("flow", 3)
    beside.send("flow", make_rows(4, 2))
    assert same_offsets(beside, "flow", options)[-1] == {"flow": {"0": 60, "1": 57, "2": 4}}


def test_at_most_so_many_offsets_a_batch(beside: BesideKafka) -> None:
    """The limit is shared out among the partitions by what each of them has."""
    beside.create("limited", 3)
    beside.send("limited", [*make_rows(100, 0), *make_rows(31, 1), *make_rows(2, 2)])
    found = same_offsets(beside, "limited", {"subscribePattern": "^limited$", "maxOffsetsPerTrigger": 50, **EARLIEST})
    assert found[-1] == {"limited": {"0": 100, "1": 31, "2": 2}} and len(found) >= 3


def test_a_checkpoint_of_the_one_is_gone_on_with_by_the_other(beside: BesideKafka) -> None:
    """A query moves from broker to directory and back with its checkpoint: no row is missed, none comes twice."""
    beside.create("moved", 2)
    streamed = beside.streams
    for number, (source, before) in enumerate((("kafka", None), ("kafkalog", "kafka"), ("kafka", "kafkalog"))):
        beside.send("moved", make_rows(5 + number, 0, 1))
        if before is not None:
            target = streamed / f"moved{number}-{source}" / "checkpoint"
            shutil.copytree(streamed / f"moved{number - 1}-{before}" / "checkpoint", target)
        beside.run_stream(source, {"subscribe": "moved", **EARLIEST}, f"moved{number}")
        # not by the table's own log, which misses the batches before
        files = str(streamed / f"moved{number}-{source}" / "table" / "*.parquet")
        found = beside.spark.read.parquet(files).select("partition", "offset").collect()
        first = sum(range(5, 5 + number))
        assert sorted(map(tuple, found)) == [(p, n) for p in (0, 1) for n in range(first, first + 5 + number)]
