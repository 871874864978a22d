"""One query through Spark's own Kafka source and through ours gives identical DataFrames, schema and rows.

The broker runs all the while, and ours reads the broker's own directory.
"""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.spark.beside_kafka import BesideKafka, Sent, same

pytest.importorskip("pyspark", reason="PySpark is not installed")

T0 = 1_700_000_000_000
CODECS = ("gzip", "snappy", "lz4", "zstd")
PER_PARTITION = 200
PLAIN, EMPTY, STAMPED, TRIMMED = "plain", "empty", "stamped.topic", "trimmed"


def make_rows(count: int, partitions: int = 1) -> list[Sent]:
    """Rows with and without key, value and headers, of one, many and no bytes; 10 ms apart in each partition."""
    keys = (b"key", None, b"", bytes(range(256)))
    values = (b"value", b"", None, "ö".encode() * 300)
    headers: tuple[Any, ...] = ((), (("a", b"1"),), (("a", b""), ("a", None), ("", b"\0\xff")), ())
    return [
        (p, T0 + 10 * i, keys[i % 4] and keys[i % 4] + b"%d" % i, values[i // 4 % 4], headers[i // 16 % 4])
        for p in range(partitions)
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def kafka(beside: BesideKafka) -> BesideKafka:
    """Topics of every kind."""
    beside.create(PLAIN, 3)
    beside.send(PLAIN, make_rows(PER_PARTITION, 2), batch_num_messages=37)  # its third partition stays empty
    beside.create(EMPTY)
    beside.create(STAMPED, message_timestamp_type="LogAppendTime")
    beside.send(STAMPED, make_rows(20))
    beside.create(TRIMMED)
    beside.send(TRIMMED, make_rows(100), batch_num_messages=11)
    beside.delete_before(TRIMMED, 0, 57)
    for codec in CODECS:
        beside.create(f"coded-{codec}")
        beside.send(f"coded-{codec}", make_rows(300), compression_type=codec, batch_num_messages=50)
    beside.wait_for_directory(EMPTY, 1)
    return beside


def test_all_rows(kafka: BesideKafka) -> None:
    rows = same(kafka, subscribe=PLAIN)
    assert len(rows) == 2 * PER_PARTITION and {row.timestampType for row in rows} == {0}
    assert {row.key is None for row in rows} == {row.value is None for row in rows} == {True, False}


def test_headers(kafka: BesideKafka) -> None:
    rows = same(kafka, subscribe=PLAIN, includeHeaders="true")
    assert {row.headers is None for row in rows} == {True, False}
    assert max(len(row.headers or ()) for row in rows) == 3


def test_compression(kafka: BesideKafka) -> None:
    rows = same(kafka, subscribePattern="^coded-.*[py]$|lz4|std", includeHeaders="true")
    assert len(rows) == 1200 and {row.topic for row in rows} == {f"coded-{codec}" for codec in CODECS}


def test_times_that_the_broker_set(kafka: BesideKafka) -> None:
    assert {row.timestampType for row in same(kafka, subscribe=STAMPED)} == {1}


def test_an_empty_topic(kafka: BesideKafka) -> None:
    assert same(kafka, subscribe=EMPTY) == []


def test_a_start_that_was_moved(kafka: BesideKafka) -> None:
    assert same(kafka, subscribe=TRIMMED)[0].offset == 57


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"subscribe": f"{PLAIN}, {TRIMMED}"}, 2 * PER_PARTITION + 43),
        ({"subscribePattern": "coded"}, 1200),  # found in a name, not the whole of it
        ({"subscribePattern": "^coded$"}, 0),
        ({"subscribePattern": "(?i)PLAIN$|stamped.*"}, 2 * PER_PARTITION + 20),
        ({"assign": json.dumps({PLAIN: [1, 2], EMPTY: [0]})}, PER_PARTITION),
    ],
)
def test_which_partitions(kafka: BesideKafka, options: dict[str, str], count: int) -> None:
    assert len(same(kafka, **options)) == count


def dump(*offsets: int) -> str:
    return json.dumps({PLAIN: {str(number): offset for number, offset in enumerate(offsets)}})


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"startingOffsets": " EARLIEST "}, 400),
        ({"startingOffsets": dump(10, -2, 0)}, 390),
        ({"startingOffsets": dump(10, 199, -2), "endingOffsets": dump(20, -1, 0)}, 11),
        ({"startingOffsets": dump(200, 0, 0), "endingOffsets": dump(200, 0, -1)}, 0),
        ({"startingOffsets": dump(36, 37, 0), "endingOffsets": dump(37, 38, 0)}, 2),
    ],
)
def test_offsets(kafka: BesideKafka, options: dict[str, str], count: int) -> None:
    assert len(same(kafka, subscribe=PLAIN, **options)) == count


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"endingTimestamp": T0 + 101}, 22),
        ({"endingTimestamp": T0 + 10**9}, 400),
        ({"startingTimestamp": T0 + 1, "startingOffsetsByTimestampStrategy": "latest"}, 398),
        ({"startingTimestamp": T0 + 10**9, "startingOffsetsByTimestampStrategy": "latest"}, 0),
        ({"startingOffsetsByTimestamp": dump(T0 + 1000, T0 + 1985, T0), "startingOffsetsByTimestampStrategy": "LATEST"},
         101),
        ({"startingOffsets": dump(0, 0, 0), "endingOffsetsByTimestamp": dump(T0 + 50, T0 + 51, T0)}, 11),
        # the one time goes before times, these before offsets
        ({"startingTimestamp": T0 + 1980, "startingOffsetsByTimestamp": dump(T0, T0, T0), "startingOffsets": "earliest",
          "startingOffsetsByTimestampStrategy": "latest"}, 4),
        ({"startingOffsetsByTimestamp": dump(T0 + 1990, T0, T0), "startingOffsets": "earliest",
          "startingOffsetsByTimestampStrategy": "latest", "endingTimestamp": T0 + 10**9,
          "endingOffsets": dump(0, 0, 0)}, 201),
    ],
)  # fmt: skip
def test_times(kafka: BesideKafka, options: dict[str, object], count: int) -> None:
    assert len(same(kafka, subscribe=PLAIN, **options)) == count


def test_a_starting_time_that_every_partition_has(kafka: BesideKafka) -> None:
    times = json.dumps({PLAIN: {"0": T0 + 5, "1": T0 + 1990}})
    assigned = json.dumps({PLAIN: [0, 1]})
    assert len(same(kafka, assign=assigned, startingOffsetsByTimestamp=times)) == 200


@pytest.mark.parametrize(("most", "options"), [(120, {"minPartitions": 7}), (50, {"maxRecordsPerPartition": 50})])
def test_spark_partitions(kafka: BesideKafka, most: int, options: dict[str, object]) -> None:
    """Ours are cut at batches where that can be, so that their number is the same only roughly."""
    same(kafka, subscribe=PLAIN, **options)
    from pyspark.sql import functions

    sizes = kafka.ours({"subscribe": PLAIN, **options}).groupBy(functions.spark_partition_id()).count().collect()
    assert len(sizes) >= 7 and max(row["count"] for row in sizes) <= most


def test_queries(kafka: BesideKafka) -> None:
    """Filters, aggregates and casts of the one are those of the other."""
    for query in (
        "SELECT partition, count(*) n, min(offset) a, max(timestamp) b, sum(length(value)) c FROM {} GROUP BY 1",
        "SELECT offset, CAST(value AS STRING) v FROM {} WHERE partition = 1 AND offset BETWEEN 30 AND 50",
        "SELECT topic, offset FROM {} WHERE key IS NULL AND timestamp > '2023-11-14 22:13:21' AND offset IN (101, 3)",
        "SELECT DISTINCT hex(key) k, timestampType t FROM {} WHERE value IS NOT NULL",
    ):
        asked = []
        for frame in (kafka.theirs({"subscribe": PLAIN}), kafka.ours({"subscribe": PLAIN})):
            frame.createOrReplaceTempView("asked")
            answer = kafka.spark.sql(query.format("asked"))
            asked.append((answer.schema, sorted(map(tuple, answer.collect()), key=repr)))
        assert asked[0] == asked[1] and asked[0][1]


def test_records_that_come_meanwhile_are_seen_by_the_next_query(kafka: BesideKafka) -> None:
    kafka.create("growing", 2)
    kafka.wait_for_directory("growing", 2)
    for expected in (0, 60, 120):
        assert len(same(kafka, subscribe="growing", includeHeaders="true")) == expected
        kafka.send("growing", make_rows(30, 2))
    kafka.add_partitions("growing", 3)
    kafka.wait_for_directory("growing", 3)
    kafka.send("growing", [(2, T0, None, b"late", ())])
    rows = same(kafka, subscribe="growing")
    assert rows[-1].timestamp == datetime.fromtimestamp(T0 / 1000, UTC).replace(tzinfo=None)
    assert len(rows) == 181
