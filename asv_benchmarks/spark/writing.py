"""The sink beside Spark's own Kafka sink on a real broker: the same rows of 100 bytes, from one Parquet table.

Beside it a Python sink that drops what it gets: no sink in Python is faster.
"""

from pathlib import Path
from typing import Any

from asv_benchmarks.measure import Row
from asv_benchmarks.spark.contest import race, ratio_bar
from asv_benchmarks.spark.queries import KAFKA, OURS, Sources
from asv_benchmarks.spark.topics import VALUE_BYTES, Topic

LESS = 2
"""The Kafka sink is slow: it gets a part of the rows that others read."""
TASKS = 2
NOTHING = "a sink that drops"


def sink_bars(sources: Sources, topic: Topic, work: Path) -> list[Row]:
    """Batch writes by key to as many partitions as `topic` has: the broker's own, and a new one for us, synced."""
    rows = topic.rows // LESS
    made = sources.spark.range(0, rows, 1, TASKS)
    table = str(work / "rows to write")
    columns = ["string(id) AS key", f"rpad(concat('value ', id), {VALUE_BYTES}, '.') AS value"]
    made.selectExpr(*columns).write.parquet(table)
    frame = sources.spark.read.parquet(table)
    data = work / "sink"
    data.mkdir()
    spent = race({
        OURS: lambda: ours(frame, topic, data),
        KAFKA: lambda: kafka(frame, topic, sources.bootstrap),
        NOTHING: lambda: nothing(frame),
    })  # fmt: skip
    work_done = f"sink, {topic.partitions} partitions"
    return [
        ratio_bar(work_done, spent, KAFKA, 4, rows),
        ratio_bar(work_done, spent, NOTHING, 0.6, rows),
    ]


def ours(frame: Any, topic: Topic, data: Path) -> None:
    options = {"topic": topic.name, "partitions": topic.partitions}
    frame.write.format("kafkalog").options(**options).mode("append").save(str(data))


def kafka(frame: Any, topic: Topic, bootstrap: str) -> None:
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic.name}
    frame.write.format("kafka").options(**options).mode("append").save()


def nothing(frame: Any) -> None:
    frame.write.format("dropping").mode("append").save()
