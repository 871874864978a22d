"""A driver's program for the tests of clusters: reads a topic, copies it, and tells where its tasks ran, as JSON.

    python cluster_job.py MASTER FROM TO [name=value ...]
"""

import json
import os
import sys
import time

from pyspark.sql import functions as f

import kafkalog
from kafkalog.spark.executors import check_executors
from kafkalog.spark.session import spark_session


def where(_: int) -> tuple[str, str]:
    """The executor that a task runs in, and where it has the package from."""
    import kafkalog._core.batch.scan

    time.sleep(0.5)  # so that no executor has two tasks before the other one has its first
    return os.getcwd(), kafkalog._core.batch.scan.__file__


def main(master: str, source: str, target: str, conf: dict[str, str]) -> None:
    with spark_session(master, {"spark.driver.memory": "512m", **conf}, name="cluster") as spark:
        check_executors(spark, [source, os.path.dirname(target)])
        there = spark.sparkContext.parallelize(range(2), 2).map(where).collect()
        rows = spark.read.format("kafkalog").option("subscribe", "t").load(source)
        rows.select("key", "value", "topic").write.format("kafkalog").mode("append").save(target)
        copied = spark.read.format("kafkalog").option("subscribe", "t").load(target)
        found = [one.agg(f.count("value"), f.sum(f.crc32("value"))).collect()[0] for one in (rows, copied)]
        print(json.dumps({"there": there, "sums": [[*one] for one in found]}))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:4], dict(one.split("=", 1) for one in sys.argv[4:]))
    except kafkalog.KafkalogError as error:
        sys.exit(str(error))
