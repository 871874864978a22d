"""A Spark session to measure in: some threads of one JVM, on the loopback, with Spark's own Kafka source in it."""

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asv_benchmarks.peers.dropping_sink import DroppingSink
from asv_benchmarks.peers.ready_batches import ReadyBatches
from tests.interop import toolchain

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def session(scratch: Path, *, cores: int = 2, kafka: bool = True, memory: str = "2g") -> Iterator[Any]:
    """Yield a SparkSession on `local[cores]`; kafka: with the jars of spark-sql-kafka. Its JVM ends with the block."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{cores}]").appName("kafkalog bench")
    for name, value in _settings(scratch, kafka, memory).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for peer in (ReadyBatches, DroppingSink):
        spark.dataSource.register(peer)
    try:
        yield spark
    finally:
        _stop(spark)


def _settings(scratch: Path, kafka: bool, memory: str) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
    }
    settings["spark.ui.showConsoleProgress"] = "false"
    if kafka:
        settings["spark.jars"] = ",".join(map(str, toolchain.spark_jars()))
    return settings


def _stop(spark: Any) -> None:
    from pyspark import SparkContext

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # PySpark leaves its sockets to the collector
        spark.stop()
        gateway = SparkContext._gateway
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends with its input
        gateway.proc.wait(60)
        SparkContext._gateway = SparkContext._jvm = None
