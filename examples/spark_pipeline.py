"""Orders in a log become totals for each half hour: by Spark, exactly once, also after the checkpoint is lost.

    python spark_pipeline.py --data shop --events 100000 --report report.png
    python spark_pipeline.py --data shop --events 100000 --lose-checkpoint

The events of the topic `orders` (some come late, a few much too late) are read as a stream. Spark sums them up by half
hour and product, under a watermark. Each micro-batch gives the totals that it changed to a Parquet table and, under the
key `half hour product`, to the compacted topic `totals`. A batch job then reads both, and draws a picture. Kill the
program whenever you like and run it again: it goes on, and nothing is counted twice or left out.

Why that is exact:
- Spark writes down what a batch reads before it runs it. A batch that is run again has the same state and gives the
  same rows.
- In the table a batch is a directory, which the batch replaces whole.
- In the topic a batch lands once: `jobId` names it, and the sink's ledger knows what landed. Its totals and one record
  more, `progress`, come in one write, which lands whole or not at all. `progress` says up to which offsets the totals
  count the orders, and which windows the watermark has closed.
- So the topic is all there is to know. Without the checkpoint the stream starts at the offsets in `progress`, leaves
  out what belongs to closed windows, and the totals of the open ones go through the same aggregation as the orders do:
  a total is a row that counts for many orders. What the table has beyond `progress` is taken away first.

Two programs must not work on one directory: end the old one before you take its checkpoint away.
It needs the extras `spark` and `viz`, and Java 17.
"""

import argparse
import json
import os
import random
import secrets
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kafkalog
from kafkalog.landing.commit import Committer
from kafkalog.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDERS, TOTALS, PROGRESS = "orders", "totals", "progress"
PARTITIONS = 2
WINDOW_MS, DELAY_MS = 30 * 60_000, 30 * 60_000  # an order may be half an hour late
MONDAY_MS = 1_767_571_200_000  # 2026-01-05T00:00Z, when the shop opens
STEP_MS = 20_000  # an order every twenty seconds in each partition
TOO_LATE_MS = 12 * 3_600_000
PRODUCTS = {"bread": 320, "cheese": 1450, "honey": 890, "olives": 640, "tea": 1175, "wine": 2350}  # cents for one
BATCHES = 5  # micro-batches for all the events
ORDERS_A_WRITE = 1000
TOTAL = "start timestamp, product string, orders long, cents long, largest long, last timestamp"
CONF = {
    "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g", "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}  # fmt: skip


@dataclass(frozen=True)
class Places:
    """Paths of the pipeline's files: all in one directory."""

    log: Path
    table: Path
    checkpoint: Path


@dataclass(frozen=True)
class Start:
    """Start of a checkpoint: its name, its first batch, the offsets to start at, the windows closed by then."""

    name: str
    batch: int
    offsets: dict[str, int]
    watermark_ms: int

    @property
    def oldest_ms(self) -> int:
        """Start of the oldest open window: one ends after the watermark."""
        return self.watermark_ms - self.watermark_ms % WINDOW_MS


# the events


def order(chance: random.Random, partition: int, number: int) -> tuple[bytes, bytes, int]:
    """The key, value and time of an order; the same ones for the same chance and number."""
    product, pieces, late = chance.choice([*PRODUCTS]), chance.randint(1, 5), chance.random()
    time_ms = MONDAY_MS + number * STEP_MS
    if late < 0.05:
        time_ms -= int(late / 0.05 * 25 * 60_000)
    elif late < 0.06 and time_ms - TOO_LATE_MS >= MONDAY_MS:
        time_ms -= TOO_LATE_MS
    value = {"order": f"{partition}-{number}", "product": product, "cents": pieces * PRODUCTS[product]}
    return f"customer {chance.randint(1, 500)}".encode(), json.dumps(value).encode(), max(time_ms, MONDAY_MS)


def produce(directory: Path, events: int) -> None:
    """Brings the topic to so many events, on from those it has, and makes the topic of the totals."""
    with kafkalog.open_dirs(directory, "a") as dirs:
        if ORDERS not in dirs.topics:
            dirs.create_topic(ORDERS, PARTITIONS, {"retention.ms": -1})
        if TOTALS not in dirs.topics:
            dirs.create_topic(TOTALS, 1, {"cleanup.policy": "compact"})
        for log in dirs.logs(ORDERS):
            partition = int(log.name.rpartition("-")[2])
            end = events // PARTITIONS + (partition < events % PARTITIONS)
            while (first := log.end_offset) < end:
                begin = first - first % ORDERS_A_WRITE
                chance = random.Random(f"{partition} {begin}")
                made = [order(chance, partition, n) for n in range(begin, begin + ORDERS_A_WRITE)]
                log.append([(key, value, time_ms) for key, value, time_ms in made[first - begin : end - begin]])


# the stream


def begin(spark: "SparkSession", places: Places) -> Start:
    """Return the start of the checkpoint; if it is missing, build it from the topic."""
    from pyspark.sql import functions as f

    note = places.checkpoint / "start.json"
    if note.exists():
        return Start(**json.loads(note.read_text()))
    Committer(str(places.log)).roll_forward()  # what a killed program had begun to land
    newest = newest_records(spark, places.log)
    reached = newest.where(f.col("key") == PROGRESS).select("value").collect()
    found: dict[str, Any] = {"batch": -1, "offsets": {}, "watermark_ms": 0}
    if reached:
        found = json.loads(reached[0].value)
    offsets = {str(number): found["offsets"].get(str(number), -2) for number in range(PARTITIONS)}  # -2: the earliest
    start = Start(secrets.token_hex(8), found["batch"] + 1, offsets, found["watermark_ms"])
    for path in places.table.glob("batch=*"):
        if int(path.name.removeprefix("batch=")) >= start.batch:
            shutil.rmtree(path)
    part = places.checkpoint.with_name(places.checkpoint.name + ".part")
    for leftover in (part, places.checkpoint):
        shutil.rmtree(leftover, ignore_errors=True)
    is_open = f.col("start") >= f.timestamp_millis(f.lit(start.oldest_ms))
    totals_of(newest).where(is_open).coalesce(1).write.parquet(str(part / "open"))
    (part / "start.json").write_text(json.dumps(asdict(start)))
    os.rename(part, places.checkpoint)
    if reached:
        count = spark.read.parquet(str(places.checkpoint / "open")).count()
        print(f"no checkpoint: on after batch {found['batch']} with {count} open totals, from {found['offsets']}")
    return start


def newest_records(spark: "SparkSession", log: Path) -> "DataFrame":
    """The newest value of each key in the topic of totals, as text: what compaction leaves of it."""
    from pyspark.sql import functions as f

    found = spark.read.format("kafkalog").option("subscribe", TOTALS).load(str(log))
    newest = found.groupBy("key").agg(f.max_by("value", "offset").alias("value"))
    return newest.select(f.col("key").cast("string"), f.col("value").cast("string"))


def totals_of(newest: "DataFrame") -> "DataFrame":
    """The totals among those records, as rows."""
    from pyspark.sql import functions as f

    rows = newest.where(f.col("key") != PROGRESS)
    return rows.select(f.from_json("value", TOTAL).alias("total")).select("total.*")


def running_totals(spark: "SparkSession", places: Places, start: Start, events_a_batch: int) -> "DataFrame":
    """The totals as a stream: orders, and the totals that a lost checkpoint knew, in one aggregation."""
    from pyspark.sql import functions as f

    source = spark.readStream.format("kafkalog").option("subscribe", ORDERS)
    source = source.option("startingOffsets", json.dumps({ORDERS: start.offsets}))
    orders = source.option("maxOffsetsPerTrigger", events_a_batch).load(str(places.log)).select(
        f.col("timestamp").alias("time"),
        f.from_json(f.col("value").cast("string"), "product string, cents long").alias("order"),
    ).where(f.col("time") >= f.timestamp_millis(f.lit(start.oldest_ms))).select(
        "time", "order.product", f.lit(1).cast("long").alias("orders"), "order.cents",
        f.col("order.cents").alias("largest"),
    )  # fmt: skip
    before = spark.readStream.schema(TOTAL).parquet(str(places.checkpoint / "open"))
    rows = orders.union(before.select(f.col("last").alias("time"), "product", "orders", "cents", "largest"))
    window = f.window("time", f"{WINDOW_MS} milliseconds")
    totals = rows.withWatermark("time", f"{DELAY_MS} milliseconds").groupBy(window, "product").agg(
        f.sum("orders").alias("orders"), f.sum("cents").alias("cents"), f.max("largest").alias("largest"),
        f.max("time").alias("last"),
    )  # fmt: skip
    return totals.select(f.col("window.start").alias("start"), "product", "orders", "cents", "largest", "last")


def reached_by(checkpoint: Path, batch_id: int) -> dict[str, Any]:
    """Up to which offsets a batch reads, and the watermark it runs with: Spark has noted both before it ran it."""
    lines = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    notes = [json.loads(line) for line in lines if line.startswith("{")]
    (offsets,) = (note[ORDERS] for note in notes if ORDERS in note)
    (watermark_ms,) = (note["batchWatermarkMs"] for note in notes if "batchWatermarkMs" in note)
    return {"offsets": offsets, "watermark_ms": watermark_ms}


def land(totals: "DataFrame", batch_id: int, places: Places, start: Start) -> None:
    """Gives a batch to the table and to the topic; given again, it changes nothing."""
    from pyspark.sql import functions as f

    spark, number = totals.sparkSession, start.batch + batch_id
    reached = reached_by(places.checkpoint / "spark", batch_id)
    reached["watermark_ms"] = max(reached["watermark_ms"], start.watermark_ms)
    totals = totals.persist()
    totals.coalesce(1).write.mode("overwrite").parquet(str(places.table / f"batch={number:06d}"))
    key = f.concat_ws(" ", f.date_format("start", "yyyy-MM-dd'T'HH:mm"), "product")
    records = totals.select(key.alias("key"), f.to_json(f.struct(*totals.columns)).alias("value"))
    note = spark.createDataFrame([(PROGRESS, json.dumps({"batch": number, **reached}))], "key string, value string")
    write = records.union(note).coalesce(1).write.format("kafkalog").option("topic", TOTALS)
    write.option("jobId", f"{start.name}-{batch_id}").mode("append").save(str(places.log))
    print(f"batch {number}: {totals.count()} totals, orders up to {reached['offsets']}", flush=True)
    totals.unpersist()


def stream(spark: "SparkSession", places: Places, events: int) -> None:
    """Runs the stream over all there is."""
    from pyspark.errors import StreamingQueryException

    start = begin(spark, places)
    writer = running_totals(spark, places, start, max(1, -(-events // BATCHES))).writeStream
    writer = writer.foreachBatch(lambda totals, batch_id: land(totals, batch_id, places, start))
    writer = writer.option("checkpointLocation", str(places.checkpoint / "spark")).outputMode("update")
    try:
        writer.trigger(availableNow=True).start().awaitTermination()
    except StreamingQueryException as error:
        sys.exit(f"the stream failed: {error}")


# the report


def report(spark: "SparkSession", places: Places, picture: Path | None) -> None:
    """Compares the table with the topic, prints what was sold, and draws it."""
    from pyspark.sql import functions as f

    table = spark.read.parquet(str(places.table))
    newest = table.groupBy("start", "product").agg(f.max_by(f.struct("orders", "cents", "largest", "last"), "batch"))
    rows = newest.toDF("start", "product", "total").select("start", "product", "total.*").persist()
    in_topic = totals_of(newest_records(spark, places.log)).persist()
    if rows.exceptAll(in_topic).unionAll(in_topic.exceptAll(rows)).count():
        sys.exit("the table and the topic do not say the same")
    with kafkalog.open_dirs(places.log) as dirs:
        events = sum(log.end_offset - log.start_offset for log in dirs.logs(ORDERS))
    sums = rows.groupBy("product").agg(f.sum("orders").alias("orders"), f.sum("cents").alias("cents"))
    sold = sums.orderBy(f.desc("cents")).collect()
    counted = sum(row.orders for row in sold)
    print(f"{events} orders, {counted} counted in {rows.count()} totals, {events - counted} came too late")
    for row in sold:
        print(f"{row['product']:8} {row.orders:8} orders {row.cents / 100:14,.2f}")
    if picture is not None:
        draw(rows.orderBy("start").collect(), [row["product"] for row in sold], picture)
        print(f"the picture is in {picture}")


def draw(rows: list[Any], products: list[str], picture: Path) -> None:
    """Draws what each half hour brought in, product upon product."""
    from matplotlib.figure import Figure

    starts = sorted({row.start for row in rows})
    cents = {(row.start, row["product"]): row.cents for row in rows}
    figure = Figure(figsize=(10, 5), layout="constrained")
    axes = figure.subplots()
    axes.stackplot(
        starts, [[cents.get((start, product), 0) / 100 for start in starts] for product in products], labels=products
    )
    axes.set_title("Sold in each half hour")
    axes.legend(loc="upper left", ncols=len(products))
    axes.margins(x=0, y=0.15)
    figure.savefig(picture)


def main() -> None:
    parser = argparse.ArgumentParser(description="Orders, their totals for each half hour, and a picture, by Spark.")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="where all of it is kept")
    parser.add_argument("--events", type=int, default=100_000, metavar="N", help="bring the orders to so many")
    parser.add_argument("--lose-checkpoint", action="store_true", help="take the stream's checkpoint away first")
    parser.add_argument("--report", type=Path, metavar="FILE", help="the picture: .png, .svg or .pdf")
    parser.add_argument("--master", help="Spark's master; by default all cores of this machine")
    arguments = parser.parse_args()
    data = arguments.data.absolute()
    places = Places(data / "log", data / "totals.parquet", data / "checkpoint")
    data.mkdir(parents=True, exist_ok=True)
    if arguments.lose_checkpoint:
        shutil.rmtree(places.checkpoint, ignore_errors=True)
    produce(places.log, arguments.events)
    with spark_session(arguments.master, CONF, name="orders") as spark:
        stream(spark, places, arguments.events)
        report(spark, places, arguments.report)


if __name__ == "__main__":
    try:
        main()
    except kafkalog.KafkalogError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
