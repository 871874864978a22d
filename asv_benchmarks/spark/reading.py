"""Bars of reading: beside Spark's Kafka source and ready-made batches, plain and compressed, and one narrow column."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from asv_benchmarks.measure import Row
from asv_benchmarks.spark import queries
from asv_benchmarks.spark.contest import race, rate, ratio_bar
from asv_benchmarks.spark.queries import KAFKA, OURS, READY, Sources
from asv_benchmarks.spark.topics import Topic

# query -> the bar beside spark-sql-kafka on a topic of one partition, and of two
BARS = {
    "count": (3.0, 2.0),
    "sum of value lengths": (3.0, 2.5),
    "filter and aggregate": (3.0, 2.5),
    "to Parquet": (1.5, 1.4),
}
READY_BAR = 0.8
COMPRESSED_BAR = 2.0
NARROW_BAR = 8.0


def works(scratch: Path) -> dict[str, Callable[[Any], Any]]:
    """Return the queries by name."""
    to_parquet = functools.partial(queries.parquet, to=scratch / "parquet")
    return dict(zip(BARS, (queries.count, queries.lengths, queries.filtered, to_parquet), strict=True))


def plain_bars(sources: Sources, topic: Topic, scratch: Path) -> list[Row]:
    """Return the bars of all queries on an uncompressed topic."""
    found = []
    for name, query in works(scratch).items():
        spent = race(_contestants(sources.frames(topic.name, topic.rows), query))
        what = f"{name}, {topic.partitions} partition{'s' * (topic.partitions > 1)}"
        found.append(ratio_bar(what, spent, KAFKA, BARS[name][topic.partitions - 1], topic.rows))
        found.append(ratio_bar(what, spent, READY, READY_BAR, topic.rows))
    return found


def compressed_bars(sources: Sources, topics: Sequence[Topic]) -> list[Row]:
    """Return the bars of the sum of value lengths, which needs the values decompressed, and of a count."""
    found = []
    for topic in topics:
        frames = sources.frames(topic.name, topic.rows)
        del frames[READY]
        for name, query in (("count", queries.count), ("sum of value lengths", queries.lengths)):
            spent = race(_contestants(frames, query))
            found.append(ratio_bar(f"{name}, {topic.codec}", spent, KAFKA, COMPRESSED_BAR, topic.rows))
    return found


def narrow_bars(sources: Sources, topic: Topic) -> list[Row]:
    """Return the bars of a count of one column of fixed width, by the option and by a schema."""
    frame = sources.spark.read.format("kafkalog").schema("offset bigint").option("subscribe", topic.name)
    contestants = {
        "columns=offset": lambda: sources.ours(topic.name, columns="offset").count(),
        "the schema 'offset bigint'": lambda: frame.load(str(sources.data)).count(),
    }
    spent = race(contestants)
    return [Row(f"count with {name}", rate(spent[name], topic.rows), NARROW_BAR, "M rows/s") for name in contestants]


def _contestants(
    frames: dict[str, Callable[[], Any]], query: Callable[[Any], Any]
) -> dict[str, Callable[[], Any]]:
    order = [name for name in (KAFKA, OURS, READY) if name in frames]
    return {name: functools.partial(_ask, frames[name], query) for name in order}


def _ask(frame: Callable[[], Any], query: Callable[[Any], Any]) -> Any:
    return query(frame())
