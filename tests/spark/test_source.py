"""The source through Spark: found by itself, its schema, its options, its filters, its errors."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog
from tests.spark.topics import batch_positions, first_segment, flip, make_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
DDL = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
HEADERS = "headers array<struct<key:string,value:binary>>"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_topic(tmp_path / "data", partitions=2)


@pytest.fixture
def pushing(spark: "SparkSession") -> Iterator[None]:
    """Spark hands filters over."""
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


def load(spark: "SparkSession", *paths: Path, **options: Any) -> "DataFrame":
    reader = spark.read.format("kafkalog").options(**{"subscribe": "orders", **options})
    return reader.load(str(paths[0]) if len(paths) == 1 else [str(path) for path in paths])


def places(frame: "DataFrame") -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def all_places(*partitions: int, start: int = 0, stop: int = 100) -> list[tuple[int, int]]:
    return [(partition, offset) for partition in partitions for offset in range(start, stop)]


def test_it_is_found_by_itself_and_has_the_kafka_source_s_schema(spark: "SparkSession", data: Path) -> None:
    from pyspark.sql.types import StructType

    frame = load(spark, data)
    assert frame.schema == StructType.fromDDL(DDL)
    assert load(spark, data, includeHeaders="true").schema == StructType.fromDDL(f"{DDL}, {HEADERS}")
    rows = frame.orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset) for row in rows] == all_places(0, 1)
    row = rows[105]
    assert (bytes(row.key), bytes(row.value), row.topic, row.timestampType) == (b"k5", b"v5", "orders", 0)
    assert row.timestamp.timestamp() == 1_700_000_000.005


def test_columns_by_option_and_by_the_user_s_schema(spark: "SparkSession", data: Path) -> None:
    assert load(spark, data, columns="offset,topic").first().asDict() == {"offset": 0, "topic": "orders"}
    reader = spark.read.format("kafkalog").schema("value binary, offset bigint").option("subscribe", "orders")
    frame = reader.load(str(data))
    assert frame.columns == ["value", "offset"] and frame.agg({"offset": "sum"}).first()[0] == 9900


@pytest.mark.parametrize(
    ("ddl", "message"),
    [("offset int", "the column offset is bigint, not int.*cast"), ("ofset bigint", "no column 'ofset'.*offset")],
)
def test_a_schema_that_the_source_has_not(spark: "SparkSession", data: Path, ddl: str, message: str) -> None:
    reader = spark.read.format("kafkalog").schema(ddl).option("subscribe", "orders")
    with pytest.raises(Exception, match=f"(?s){message}"):
        reader.load(str(data)).collect()


def test_several_paths_and_a_pattern(spark: "SparkSession", data: Path, tmp_path: Path) -> None:
    other = make_topic(tmp_path / "other", "payments")
    reader = spark.read.format("kafkalog").option("subscribePattern", "orders|payments")
    counts = reader.load([str(data), str(other)]).groupBy("topic").count().collect()
    assert {row.topic: row["count"] for row in counts} == {"orders": 200, "payments": 100}
    nothing = spark.read.format("kafkalog").option("subscribePattern", "nothing").load(str(data))
    assert nothing.count() == 0


def test_partition_directories_as_paths(spark: "SparkSession", data: Path) -> None:
    frame = spark.read.format("kafkalog").load(str(data / "orders-1"))
    assert places(frame) == all_places(1)


def test_limit_and_min_partitions(spark: "SparkSession", data: Path) -> None:
    assert len(load(spark, data).limit(3).collect()) == 3
    frame = load(spark, data, minPartitions="8")
    assert frame.rdd.getNumPartitions() == 8 and places(frame) == all_places(0, 1)
    assert load(spark, data, maxRecordsPerPartition="30").rdd.getNumPartitions() == 8


def test_a_view_of_sql(spark: "SparkSession", data: Path) -> None:
    options = f"(path '{data}', subscribe 'orders', columns 'offset')"
    spark.sql(f"CREATE TEMPORARY VIEW orders_log USING kafkalog OPTIONS {options}")
    try:
        assert spark.sql("SELECT count(*), max(offset) FROM orders_log").first()[:] == (200, 99)
    finally:
        spark.sql("DROP VIEW orders_log")


def test_a_table_of_sql_is_told_its_options_by_who_reads_it(spark: "SparkSession", data: Path) -> None:
    """Spark forgets the options of a table: the error names the ways that work."""
    options = f"(path '{data}', subscribe 'orders')"
    spark.sql(f"CREATE TABLE orders_table USING kafkalog OPTIONS {options}")
    try:
        with pytest.raises(Exception, match="(?s)no path is given.*TEMPORARY VIEW"):
            spark.sql("SELECT count(*) FROM orders_table").collect()
        assert spark.sql(f"SELECT count(*) FROM orders_table WITH {options}").first()[0] == 200
    finally:
        spark.sql("DROP TABLE orders_table")
    assert len(list((data / "orders-0").iterdir())) > 2  # what the table showed is not its own


@pytest.mark.parametrize(
    ("condition", "expected", "ranges"),
    [
        ("partition = 1", all_places(1), 1),
        ("partition IN (1, 7) AND topic = 'orders'", all_places(1), 1),
        ("topic = 'other'", [], 1),
        ("topic IN ('other', 'orders') AND offset >= 30 AND offset < 40", all_places(0, 1, start=30, stop=40), 2),
        ("offset = 5", [(0, 5), (1, 5)], 2),
        ("offset IN (5, 70)", [(0, 5), (0, 70), (1, 5), (1, 70)], 2),
        ("offset > 97 OR partition = 0", [*all_places(0), (1, 98), (1, 99)], 2),
        ("offset > 97 AND NOT partition = 0", [(1, 98), (1, 99)], 2),
        ("partition > 0 AND partition <= 9 AND offset <=> 3", [(1, 3)], 1),
        ("timestamp >= timestamp_millis(1700000000095)", all_places(0, 1, start=95), 2),
        ("timestamp < timestamp_millis(1700000000005)", all_places(0, 1, stop=5), 2),
        ("timestamp IS NULL", [], 1),
        ("key IS NULL", [], 2),
        ("value IS NOT NULL AND offset <= 2", all_places(0, 1, stop=3), 2),
    ],
)
def test_filters_that_are_handed_over_give_the_same_rows_from_fewer_ranges(
    spark: "SparkSession", data: Path, pushing: None, condition: str, expected: list[tuple[int, int]], ranges: int
) -> None:
    frame = load(spark, data).where(condition)
    assert places(frame) == expected
    assert frame.rdd.getNumPartitions() == ranges


def test_without_the_setting_filters_are_left_to_spark(spark: "SparkSession", data: Path) -> None:
    frame = load(spark, data).where("partition = 1 AND offset >= 90 AND timestamp > timestamp_millis(1700000000092)")
    assert places(frame) == all_places(1, start=93) and frame.rdd.getNumPartitions() == 2


def test_so_they_are_by_option(spark: "SparkSession", data: Path, pushing: None) -> None:
    frame = load(spark, data, pushFilters="never").where("partition = 1")
    assert frame.rdd.getNumPartitions() == 2 and places(frame) == all_places(1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffset": "earliest"}, "no option 'startingoffset'.*Hint: did you mean startingOffsets"),
        ({"subscribe": "order"}, "UnknownTopicOrPartition: there is no topic order .*Hint: topics here: orders"),
        ({"startingOffsets": "latest"}, "IllegalArgument: startingOffsets can't be latest for a batch"),
        ({"endingOffsets": "earliest"}, "IllegalArgument: endingOffsets can't be earliest for a batch"),
        ({"startingOffsets": '{"orders":{"0":5}'}, "IllegalArgument: startingOffsets is .*Hint: give JSON"),
        ({"assign": '{"orders":[0]}'}, "IllegalArgument: assign and subscribe are given"),
        ({"endingOffsets": '{"orders":{"0":5,"1":500}}'}, "OffsetOutOfRange: the ending offset 500 of orders-1"),
        ({"startingOffsets": '{"orders":{"0":5,"1":101}}'}, "IllegalArgument: the starting offset 101 of orders-1 is"),
    ],
)
def test_errors_say_what_is_wrong_and_how_to_mend_it(
    spark: "SparkSession", data: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=f"(?s){message}"):
        load(spark, data, **options).collect()


def test_a_path_that_does_not_exist(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(Exception, match="(?s)PartitionNotFound: there is no such directory.*missing"):
        load(spark, tmp_path / "missing").count()
    with pytest.raises(Exception, match="(?s)no topic is named.*subscribe"):
        spark.read.format("kafkalog").load(str(tmp_path)).count()


def test_a_corrupt_batch_in_the_middle_by_both_policies(spark: "SparkSession", tmp_path: Path) -> None:
    data = make_topic(tmp_path / "data", batches=6, index_interval_bytes=0)
    path = first_segment(data)
    position, size = batch_positions(path)[2]
    flip(path, position + 70)
    with pytest.raises(Exception, match=rf"(?s)CorruptRecord: .*{path}, offset 50, position {position}"):
        load(spark, data).count()
    report = tmp_path / "report"
    frame = load(spark, data, onDamage="skip", corruptReport=str(report))
    assert places(frame) == [*all_places(0, stop=50), *all_places(0, start=75, stop=150)]
    row = spark.read.json(str(report)).first()
    assert (row.file, row.position, row.bytes, row.offset, row.next_offset) == (str(path), position, size, 50, 75)


def test_a_segment_deleted_between_planning_and_reading(spark: "SparkSession", tmp_path: Path) -> None:
    """The plan of a frame is kept, so deleting between two actions is deleting after planning."""
    data = make_topic(tmp_path / "data", batches=12, internal_segment_bytes=2000)
    frames = {fail: load(spark, data, failOnDataLoss=fail).select("offset").rdd for fail in ("true", "false")}
    assert all(frame.getNumPartitions() == 1 for frame in frames.values())
    first, second, *_ = sorted((data / "orders-0").glob("*.log"))
    first.unlink()
    with pytest.raises(Exception, match="(?s)OffsetOutOfRange.*failOnDataLoss"):
        frames["true"].count()
    assert frames["false"].count() == 300 - int(second.name[:20])


def test_what_is_written_after_planning_is_not_read(spark: "SparkSession", data: Path) -> None:
    frame = load(spark, data).select("offset").rdd
    assert frame.getNumPartitions() == 2
    with kafkalog.open(data / "orders-0", "a") as log:
        log.append([b"new"] * 10)
    assert frame.count() == 200 and load(spark, data).count() == 210
