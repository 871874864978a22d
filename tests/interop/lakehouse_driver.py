"""The driver that is killed: streams of a topic into an Iceberg and a Delta table, in a Spark that has the two.

    python lakehouse_driver.py ROOT CLASS_PATH JAVA_OPTIONS

The topic `orders` is in ROOT/data. The tables are in ROOT/lake, those of Iceberg in the local catalog that `kafkalog
table sync` uses. With ROOT/stop it ends the streams, writes tables in batches, and puts what it reads of all tables
into ROOT/read.json.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

COLUMNS = "partition, offset, string(key) AS key, string(value) AS value, timestamp"
TABLES = ("streamed", "written", "synced", "compacted")


def settings(root: Path, class_path: str, java: str) -> dict[str, str]:
    local = {
        "driver.extraClassPath": class_path, "log.level": "ERROR",
        "ui.enabled": "false", "ui.showConsoleProgress": "false",
        "driver.host": "127.0.0.1", "driver.bindAddress": "127.0.0.1", "driver.memory": "1g",
        "driver.extraJavaOptions": f"{java} -Djava.io.tmpdir={root}/local", "local.dir": f"{root}/local",
        "python.authenticate.socketTimeout": "120s", "databricks.delta.snapshotPartitions": "1",
    }  # fmt: skip
    tables = {
        "extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions,"
        "io.delta.sql.DeltaSparkSessionExtension",
        "catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "catalog.default": "org.apache.iceberg.spark.SparkCatalog", "catalog.default.type": "jdbc",
        "catalog.default.uri": f"jdbc:sqlite:{root}/lake/catalog.db?busy_timeout=60000",
        "catalog.default.warehouse": f"file://{root}/lake", "catalog.default.cache-enabled": "false",
        "catalog.default.jdbc.schema-version": "V1",
        "shuffle.partitions": "1", "session.timeZone": "UTC", "warehouse.dir": f"{root}/warehouse",
    }  # fmt: skip
    named = {f"spark.{name}": value for name, value in local.items()}
    return named | {f"spark.sql.{name}": value for name, value in tables.items()}


def orders(reader: Any, root: Path) -> Any:
    """The topic as a frame, of a batch or of a stream."""
    source = reader.format("kafkalog").option("subscribe", "orders").option("startingOffsets", "earliest")
    return source.load(str(root / "data")).selectExpr(*COLUMNS.split(", "))


def streams(spark: SparkSession, root: Path) -> list[Any]:
    """Both queries, started, or resumed from their checkpoints."""
    types = "partition int, offset bigint, key string, value string, timestamp timestamp"
    spark.sql("CREATE NAMESPACE IF NOT EXISTS `default`.shop")
    spark.sql(f"CREATE TABLE IF NOT EXISTS `default`.shop.streamed ({types}) USING iceberg")

    def writer(format: str) -> Any:
        stream = orders(spark.readStream, root).writeStream.format(format)
        return stream.option("checkpointLocation", str(root / "checkpoints" / format))

    iceberg = writer("iceberg").toTable("`default`.shop.streamed")
    return [iceberg, writer("delta").start(str(root / "lake" / "streamed"))]


def frame(spark: SparkSession, root: Path, format: str, name: str) -> Any:
    if format == "iceberg":
        return spark.table(f"`default`.shop.{name}")
    return spark.read.format("delta").load(str(root / "lake" / name))


def main(root: Path, class_path: str, java: str) -> None:
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings(root, class_path, java).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    queries = streams(spark, root)
    while not (root / "stop").exists():
        for query in queries:
            if not query.isActive:
                raise SystemExit(f"a query ended by itself: {query.exception()}")
        time.sleep(0.05)
    for query in queries:
        query.stop()
    batch = orders(spark.read, root)
    batch.writeTo("`default`.shop.written").using("iceberg").create()
    batch.write.format("delta").save(str(root / "lake" / "written"))
    found = {
        f"{format} {name}": [
            list(row) for row in frame(spark, root, format, name).selectExpr(
                "partition", "offset", "string(key)", "string(value)", "unix_millis(timestamp)"
            ).orderBy("partition", "offset").collect()
        ]
        for format in ("iceberg", "delta") for name in TABLES
    }  # fmt: skip
    (root / "read.tmp").write_text(json.dumps(found))
    (root / "read.tmp").rename(root / "read.json")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
