"""A write of which one task is so slow that Spark runs it a second time beside itself."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS = 3
ROWS = 300
SLOW = 1
SLOW_S = 600


def write_slowly(spark: "SparkSession", data: str, marks: str) -> None:
    """Write to the data directory `data`; each attempt of a task leaves a file named after it in `marks`."""

    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        Path(marks, f"{task.partitionId()}.{task.attemptNumber()}").touch()
        while task.partitionId() == SLOW and not Path(marks, f"{SLOW}.0").exists():
            time.sleep(0.05)  # a busy machine may start the second attempt first
        yield from batches
        if task.partitionId() == SLOW and task.attemptNumber() == 0:
            time.sleep(SLOW_S)  # the rows are with the sink by now, which waits for their end

    rows = spark.range(0, ROWS, 1, TASKS).selectExpr("'t' AS topic", "string(id) AS value")
    slow = rows.mapInArrow(slowly, rows.schema)
    slow.write.format("kafkalog").mode("append").save(data)
