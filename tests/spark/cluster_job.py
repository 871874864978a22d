"""A driver's program for the tests of clusters: reads a topic, copies it, and reports where its tasks ran, as JSON.

    python cluster_job.py MASTER FROM TO [NAME=VALUE ...] [-- ARGUMENT ...]

With arguments of `kafkalog`, or `slowly DATA MARKS`, this is then done in the same session.
"""

import json
import os
import sys
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

import kafkalog
from kafkalog.cli.main import run
from kafkalog.spark.executors import check_executors
from kafkalog.spark.session import spark_session
from tests.spark.speculative_job import write_slowly

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

CHECK = "spark.scheduler.barrier.maxConcurrentTasksCheck"
BOTH = {f"{CHECK}.interval": "1s", f"{CHECK}.maxFailures": "600"}
"""How a barrier waits for the second executor, which a busy machine starts late."""


def where(_: object) -> "Iterator[tuple[str, str]]":
    """The executor that a task runs in, and where it has the package from."""
    import kafkalog._core.batch.scan

    yield os.getcwd(), kafkalog._core.batch.scan.__file__


def places(spark: "SparkSession") -> list[tuple[str, str]]:
    """Return what `where` says of both executors: tasks of a barrier run at once, and none of them twice."""
    return spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(where).collect()


def main(master: str, source: str, target: str, conf: dict[str, str], then: list[str]) -> int:
    with spark_session(master, {"spark.driver.memory": "512m", **BOTH, **conf}, name="cluster") as spark:
        check_executors(spark, [source, os.path.dirname(target)])
        there = places(spark)
        rows = spark.read.format("kafkalog").option("subscribe", "t").load(source)
        rows.select("key", "value", "topic").write.format("kafkalog").mode("append").save(target)
        copied = spark.read.format("kafkalog").option("subscribe", "t").load(target)
        found = [one.agg(f.count("value"), f.sum(f.crc32("value"))).collect()[0] for one in (rows, copied)]
        print(json.dumps({"there": there, "sums": [[*one] for one in found]}), flush=True)
        if then[:1] == ["slowly"]:
            write_slowly(spark, *then[1:])
            return 0
        return run(then) if then else 0


if __name__ == "__main__":
    given = sys.argv[4:]
    at = given.index("--") if "--" in given else len(given)
    try:
        sys.exit(main(*sys.argv[1:4], dict(one.split("=", 1) for one in given[:at]), given[at + 1 :]))
    except kafkalog.KafkalogError as error:
        sys.exit(str(error))
