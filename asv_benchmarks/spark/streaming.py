"""Bars of streams: how long a micro-batch of few records takes, beside Spark's own source that makes as many rows."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafkalog
from asv_benchmarks.measure import Row

RECORDS = 100
BATCHES = 10
WARM = 4
MOST_TIMES = 2.0
"""Bar: at most so many times what Spark's own source takes."""
PARTITIONS = (1, 8)
PATIENCE_S = 300


def stream_bars(spark: Any, scratch: Path) -> list[Row]:
    """Return the bars of micro-batches of topics of one partition and of eight, from trigger to commit."""
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", RECORDS).option("numPartitions", 1)
    peer = _batch_ms(rate.load(), scratch / "checkpoint-rate", None)
    found = []
    for partitions in PARTITIONS:
        data = scratch / f"streamed{partitions}"
        with kafkalog.open_dirs(data, "a") as dirs:
            dirs.create_topic("t", partitions, {"retention.ms": "-1"})
            logs = dirs.logs("t")

            def feed(logs: Any = logs) -> None:
                for log in logs:
                    log.append([(b"%08d" % n, bytes(100)) for n in range(RECORDS // len(logs))])
                    log.flush()

            stream = spark.readStream.format("kafkalog").option("subscribe", "t").option("startingOffsets", "earliest")
            spent = _batch_ms(stream.load(str(data)), scratch / f"checkpoint{partitions}", feed)
        what = f"a micro-batch of {RECORDS} records, {partitions} partition{'s' * (partitions > 1)}"
        found.append(
            Row(what, spent, MOST_TIMES * peer, "ms", less_is_better=True, peers={"Spark's rate-micro-batch": peer})
        )
    return found


def _batch_ms(frame: Any, checkpoint: Path, feed: Callable[[], None] | None) -> float:
    """Return the median time of the micro-batches that have rows; `feed` makes a topic's next rows."""
    if feed is not None:
        feed()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        seen, until = 0, time.monotonic() + PATIENCE_S
        while seen < WARM + BATCHES:
            times = [one["durationMs"]["triggerExecution"] for one in query.recentProgress if one["numInputRows"]]
            if len(times) > seen and feed is not None:
                feed()
            seen = len(times)
            if query.exception() is not None or time.monotonic() > until:
                raise RuntimeError(f"the stream does not go on: {query.exception()}")
            time.sleep(0.005)
    finally:
        query.stop()
    return float(statistics.median(times[WARM:]))
