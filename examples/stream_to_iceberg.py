"""A stream on Spark from a log into an Iceberg table, each order once, whenever it is killed.

    python stream_to_iceberg.py shop lake
    python stream_to_iceberg.py shop lake --follow

Spark reads the topic `orders` of the data directory `shop`, a micro-batch at a time, and writes each one as a Parquet
file into the directory of the table `shop.orders`. pyiceberg then adds the file to the table, whose catalog is in
`lake`, so Spark needs no jar for Iceberg. Without `--follow` the program ends when the table has all orders.

Why each order is there once: the commit that adds a file also says up to which offsets the table has the orders. A
start reads them from the table and continues there, so Spark's checkpoint need not outlive the program. A file that has
no commit is not part of the table. If another program commits to the table, a second stream for one, the next batch
fails: start the stream again.

orders_to_table.py appends the orders, runs this program, kills it and compares: `--spark`.
It needs the extras `spark` (PySpark 4.2) and `lake`, and Java 17.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of

import kafkalog
from kafkalog.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC, TABLE = "orders", "shop.orders"
OFFSETS = "stream.offsets"  # in the summary of each snapshot
COLUMNS = ("partition", "offset", "timestamp", "value.product", "value.cents")
SCHEMA = pyarrow.schema({
    "partition": pyarrow.int32(), "offset": pyarrow.int64(), "timestamp": pyarrow.timestamp("us", "UTC"),
    "product": pyarrow.string(), "cents": pyarrow.int64(),
})  # fmt: skip
PROPERTIES = {"commit.retry.num-retries": "0"}  # what another program commits may be the same orders
CONF = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS", "spark.driver.memory": "1g"}
FOLLOW_EVERY = "0.2 seconds"


def create_table(catalog: SqlCatalog) -> Table:
    """Return the table, which is created if it is missing."""
    catalog.create_namespace_if_not_exists(TABLE.partition(".")[0])
    return catalog.create_table_if_not_exists(TABLE, SCHEMA, properties=PROPERTIES)


def next_offsets(table: Table, partitions: int) -> dict[str, int]:
    """Return the offsets at which the stream continues: those of the newest snapshot that has some; -2: the start."""
    found: dict[str, int] = {}
    snapshot = table.current_snapshot()
    if snapshot is not None:
        summaries = (one.summary.additional_properties for one in ancestors_of(snapshot, table.metadata) if one.summary)
        text = next((one[OFFSETS] for one in summaries if OFFSETS in one), None)
        if text is None:
            raise SystemExit(f"{TABLE} has rows, but no offsets of this stream: give it another directory")
        found = json.loads(text)
    return {str(number): found.get(str(number), -2) for number in range(partitions)}


def end_offsets(checkpoint: str, batch_id: int) -> dict[str, int]:
    """Return the offsets at which a batch ends; Spark writes them down before it runs the batch."""
    lines = (Path(checkpoint) / "offsets" / str(batch_id)).read_text().splitlines()
    (found,) = (json.loads(line)[TOPIC] for line in lines if line.startswith(f'{{"{TOPIC}"'))
    return dict(found)


def commit(batch: "DataFrame", table: Table, offsets: dict[str, int]) -> None:
    """Write a batch to one file, and add it to the table together with the offsets at which it ends."""
    place = f"{table.location()}/data/{uuid.uuid4().hex}"
    batch.coalesce(1).write.parquet(place)
    files = [f"{place}/{one.name}" for one in Path(place.removeprefix("file://")).glob("part-*.parquet")]
    table.add_files(files, snapshot_properties={OFFSETS: json.dumps(offsets)})
    print(f"{table.name()[-1]}: up to {offsets}", flush=True)


def stream(spark: "SparkSession", data: Path, table: Table, batch_offsets: int, follow: bool) -> None:
    """Run the stream: to the present end of the topic, or until it is killed."""
    from pyspark.errors import StreamingQueryException

    with kafkalog.open_dirs(data) as dirs:
        start = {TOPIC: next_offsets(table, len(dirs.logs(TOPIC)))}
    source = spark.readStream.format("kafkalog").option("subscribe", TOPIC).option("value", "json")
    source = source.option("isolationLevel", "read_committed").option("startingOffsets", json.dumps(start))
    orders = source.option("maxOffsetsPerTrigger", batch_offsets).load(str(data)).select(*COLUMNS)
    with tempfile.TemporaryDirectory(prefix="stream-") as checkpoint:
        writer = orders.writeStream.option("checkpointLocation", checkpoint)
        writer = writer.foreachBatch(lambda batch, number: commit(batch, table, end_offsets(checkpoint, number)))
        writer = writer.trigger(processingTime=FOLLOW_EVERY) if follow else writer.trigger(availableNow=True)
        try:
            writer.start().awaitTermination()
        except StreamingQueryException as error:
            sys.exit(f"the stream failed: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description="A stream on Spark from a log into an Iceberg table.")
    parser.add_argument("data", type=Path, metavar="DATA", help="the data directory of the log")
    parser.add_argument("lake", type=Path, metavar="LAKE", help="the directory of the table and its catalog")
    parser.add_argument("--follow", action="store_true", help="keep running")
    parser.add_argument("--batch", type=int, default=1_000_000, metavar="N", help="the most orders in a commit")
    parser.add_argument("--master", help="Spark's master; by default all cores of this machine")
    given = parser.parse_args()
    lake = given.lake.absolute()
    lake.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog("default", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}")
    with contextlib.closing(catalog), spark_session(given.master, CONF, name="orders to Iceberg") as spark:
        stream(spark, given.data.absolute(), create_table(catalog), given.batch, given.follow)


if __name__ == "__main__":
    try:
        main()
    except kafkalog.KafkalogError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
