"""What Spark finds by itself: a top-level package named `pyspark_*` with a `DefaultSource` needs no registration."""

from kafkalog.spark.source import KafkalogDataSource as DefaultSource

__all__ = ["DefaultSource"]
