"""The queries, and the frames they are asked of: the same topic through three sources."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asv_benchmarks.spark.topics import VALUE_BYTES

OURS, KAFKA, READY = "kafkalog", "spark-sql-kafka", "ready-made batches"


@dataclass(frozen=True)
class Sources:
    """The topics in directories and behind a broker; `cores` is the number of tasks of ready-made rows."""

    spark: Any
    data: Path
    bootstrap: str
    cores: int = 2

    def ours(self, topic: str, **options: object) -> Any:
        return self.spark.read.format("kafkalog").options(subscribe=topic, **options).load(str(self.data))

    def kafka(self, topic: str) -> Any:
        options = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic}
        return self.spark.read.format("kafka").options(**options).load()

    def ready(self, rows: int) -> Any:
        options = {"rows": rows, "partitions": self.cores, "value_bytes": VALUE_BYTES}
        return self.spark.read.format("readybatches").options(**options).load()

    def frames(self, topic: str, rows: int) -> dict[str, Callable[[], Any]]:
        """Return what makes each contestant's frame: planning is part of a query."""
        return {
            OURS: lambda: self.ours(topic),
            KAFKA: lambda: self.kafka(topic),
            READY: lambda: self.ready(rows),
        }


def count(frame: Any) -> int:
    return int(frame.count())


def lengths(frame: Any) -> int:
    from pyspark.sql import functions

    return int(frame.agg(functions.sum(functions.length("value"))).first()[0])


def filtered(frame: Any) -> Any:
    wanted = frame.where("offset % 10 = 3 and length(value) > 10")
    return wanted.groupBy("partition").agg({"offset": "max", "timestamp": "max"}).collect()


def parquet(frame: Any, to: Path) -> None:
    frame.write.mode("overwrite").parquet(str(to))
