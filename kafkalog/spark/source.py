"""The data source `kafkalog`, as Spark asks for it."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

__all__ = ["KafkalogDataSource"]


class KafkalogDataSource(DataSource):
    """`spark.read.format("kafkalog")`: Kafka's log directories as the columns of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        """The name that `format` takes."""
        return "kafkalog"
