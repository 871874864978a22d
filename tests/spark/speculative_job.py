"""A driver of the tests: a write of which one task is so slow that Spark runs it a second time beside itself.

    python -m tests.spark.speculative_job MASTER DATA MARKS [NAME=VALUE ...]

DATA is the data directory that is written to. Each attempt of a task leaves a file named after it in MARKS.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

TASKS = 3
ROWS = 300
SLOW = 1
SLOW_S = 600


def main(master: str, data: str, marks: str, *conf: str) -> None:
    builder = SparkSession.builder.master(master).appName("a slow task")
    for setting in conf:
        name, _, value = setting.partition("=")
        builder = builder.config(name, value)
    spark = builder.getOrCreate()

    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        Path(marks, f"{task.partitionId()}.{task.attemptNumber()}").touch()
        yield from batches
        if task.partitionId() == SLOW and task.attemptNumber() == 0:
            time.sleep(SLOW_S)  # the rows are with the sink by now, which waits for their end

    rows = spark.range(0, ROWS, 1, TASKS).selectExpr("'t' AS topic", "string(id) AS value")
    slow = rows.mapInArrow(slowly, rows.schema)
    slow.write.format("kafkalog").mode("append").save(data)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
