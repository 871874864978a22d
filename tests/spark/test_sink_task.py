"""A sink task without Spark: each row becomes a record of the right partition, or an error that names the row."""

import os
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog._core.bytes.murmur import partition_for_key
from kafkalog.errors import (
    IllegalArgument,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopic,
    KafkalogError,
    PartitionNotFound,
    RecordTooLarge,
    StorageError,
    UnknownTopicOrPartition,
    UnsupportedCompression,
)
from kafkalog.landing.commit import Committer
from kafkalog.landing.ledger import read_ledger
from kafkalog.records.format import CompressionType
from kafkalog.spark.option_table import SINK_OPTIONS
from kafkalog.spark.sink_options import SinkOptions
from kafkalog.spark.sink_task import check_columns, stage_rows
from tests.faults import FaultFS, each_failure
from tests.spark.sink_cases import NOW_MS, QUERY, found, staged_names

pa = pytest.importorskip("pyarrow")

COLUMNS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def table(rows: list[dict[str, Any]], *names: str) -> Any:
    schema = pa.schema([field for field in COLUMNS if not names or field.name in names])
    return pa.Table.from_pylist(rows, schema).to_batches(max_chunksize=3)


def write(directory: Path, batches: Any, **options: Any) -> None:
    """Stages as one task and commits."""
    parsed = SinkOptions.parse({"path": str(directory), **options})
    task = stage_rows(batches, parsed, QUERY, 0, 0, 0)
    Committer(str(directory)).commit(QUERY, 0, [task])


def test_rows_are_records_with_all_their_fields(tmp_path: Path) -> None:
    rows = [
        {"key": b"k", "value": b"v", "topic": "a", "partition": 1, "timestamp": NOW_MS * 1000 + 999,
         "headers": [{"key": "h", "value": b"1"}, {"key": "n", "value": None}]},
        {"key": None, "value": None, "topic": "b", "partition": None, "timestamp": None, "headers": None},
        {"key": b"", "value": b"", "topic": "a", "partition": 0, "timestamp": 0, "headers": []},
    ]  # fmt: skip
    write(tmp_path, table(rows), partitions="2")
    with kafkalog.open_dirs(tmp_path) as dirs:
        one = next(iter(dirs["a", 1]))
        assert (one.key, one.value, one.timestamp) == (b"k", b"v", NOW_MS)
        assert [(name, value) for name, value in one.headers] == [("h", b"1"), ("n", None)]
        two = next(iter(dirs["a", 0]))
        assert (two.key, two.value, two.timestamp, list(two.headers)) == (b"", b"", 0, [])
        (three,) = [record for log in dirs.logs("b") for record in log]
        assert (three.key, three.value, list(three.headers)) == (None, None, [])
        assert three.timestamp > NOW_MS


def test_keys_go_where_kafkas_producers_put_them(tmp_path: Path) -> None:
    rows = [{"key": b"key %d" % n, "value": b"%d" % n} for n in range(200)]
    write(tmp_path, table(rows, "key", "value"), topic="t", partitions="5")
    for number in range(5):
        with kafkalog.open(tmp_path / f"t-{number}") as log:
            keys = [bytes(record.key or b"") for record in log]
        assert keys == [row["key"] for row in rows if partition_for_key(row["key"], 5) == number]
        assert keys


def test_the_option_topic_wins_over_the_column(tmp_path: Path) -> None:
    write(tmp_path, table([{"value": b"x", "topic": "column"}], "value", "topic"), topic="option")
    assert found(tmp_path, "option") == [b"x"]
    assert not (tmp_path / "column-0").exists()


def test_the_option_topic_wins_over_a_column_of_any_type(tmp_path: Path) -> None:
    rows = pa.table({"value": [b"x"], "topic": pa.array([5], pa.int32())})
    check_columns(rows.schema, "t")
    write(tmp_path, rows.to_batches(), topic="t")
    assert found(tmp_path, "t") == [b"x"]


def test_rows_without_a_key_of_small_batches_go_round_the_partitions(tmp_path: Path) -> None:
    options = SinkOptions.parse({"path": str(tmp_path), "topic": "t", "partitions": "3"})
    for batch_id in range(6):
        task = stage_rows(table([{"value": b"%d" % batch_id}], "value"), options, QUERY, batch_id, 0, 0)
        Committer(str(tmp_path)).commit(QUERY, batch_id, [task])
    assert [found(tmp_path, "t", n) for n in range(3)] == [[b"0", b"3"], [b"1", b"4"], [b"2", b"5"]]


def test_text_is_a_value_as_well(tmp_path: Path) -> None:
    write(tmp_path, pa.table({"value": ["ä", None]}).to_batches(), topic="t")
    assert found(tmp_path, "t") == ["ä".encode(), b""]


def test_a_topic_that_is_there_keeps_its_partitions_and_its_codec(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("t", 2, {"compression.type": "lz4"})
    write(tmp_path, table([{"value": b"x" * 500, "partition": 1}] * 9, "value", "partition"), topic="t",
          partitions="7", compression="zstd")  # fmt: skip
    with kafkalog.open_dirs(tmp_path) as dirs:
        assert dirs.topics["t"].partitions == (0, 1)
        assert {batch.header.compression for batch in dirs["t", 1].batches()} == {int(CompressionType.LZ4)}
        assert len(list(dirs["t", 1])) == 9


@pytest.mark.parametrize("text", ["gzip:9", "snappy", "lz4", "zstd:3"])
def test_the_option_compression_is_what_is_written(tmp_path: Path, text: str) -> None:
    write(tmp_path, table([{"value": b"x" * 500}] * 9, "value"), topic="t", compression=text)
    with kafkalog.open(tmp_path / "t-0") as log:
        codec = CompressionType[text.partition(":")[0].upper()]
        assert {batch.header.compression for batch in log.batches()} == {int(codec)}
        assert [bytes(record.value or b"") for record in log] == [b"x" * 500] * 9


def test_more_than_is_gathered_at_once_keeps_its_order(tmp_path: Path) -> None:
    values = [b"%07d" % n + b"x" * 5000 for n in range(6000)]
    batches = pa.table({"value": pa.array(values, pa.binary())}).to_batches(max_chunksize=700)
    write(tmp_path, batches, topic="t")
    assert found(tmp_path, "t") == values


# What cannot be written


BAD_ROWS = [
    ([{"value": b"x", "topic": None}], {}, IllegalArgument, r"row 0 has no topic.*name the topic"),
    ([{"value": b"x", "topic": "a/b"}], {}, InvalidTopic, r"a/b"),
    ([{"value": b"x", "topic": ".."}], {}, InvalidTopic, r"\.\."),
    ([{"value": b"x", "partition": 0}, {"value": b"x", "partition": 3}], {"topic": "t", "partitions": "3"},
     UnknownTopicOrPartition, r"row 1 is for partition 3 of 't', which has the partitions 0 to 2.*null leaves"),
    ([{"value": b"x", "partition": -1}], {"topic": "t"}, UnknownTopicOrPartition, r"partition -1"),
    ([{"value": b"x", "timestamp": -5000}], {"topic": "t"}, InvalidTimestamp, r"before 1970"),
    ([{"value": b"x" * 2_000_000}], {"topic": "t"}, RecordTooLarge, r"max\.message\.bytes"),
    ([{"value": b"x", "headers": [{"key": None, "value": b""}]}], {"topic": "t"}, InvalidRecord, r"no name"),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "options", "kind", "text"), BAD_ROWS)
def test_a_row_that_cannot_be_a_record_is_named(
    tmp_path: Path, rows: list[dict[str, Any]], options: dict[str, str], kind: type[KafkalogError], text: str
) -> None:
    with pytest.raises(kind, match=text):
        write(tmp_path, table(rows, *rows[0]), **options)
    assert staged_names(tmp_path) == []


def test_records_that_the_topics_settings_refuse_are_told_while_nothing_is_decided(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("keyed", 1, {"cleanup.policy": "compact"})
        dirs.create_topic("young", 1, {"message.timestamp.before.max.ms": 1000})
    with pytest.raises(InvalidRecord, match="key"):
        write(tmp_path, table([{"key": None, "value": b"x"}], "key", "value"), topic="keyed")
    with pytest.raises(InvalidTimestamp):
        write(tmp_path, table([{"value": b"x", "timestamp": 5}], "value", "timestamp"), topic="young")
    assert staged_names(tmp_path) == []


@pytest.mark.parametrize("compression", ["none", "gzip", "lz4", "zstd"])
def test_a_row_that_no_codec_makes_small_enough_decides_nothing(tmp_path: Path, compression: str) -> None:
    noise = table([{"value": os.urandom(2_000_000)}], "value")
    with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes"):
        write(tmp_path, noise, topic="t", compression=compression)
    assert staged_names(tmp_path) == []
    assert read_ledger(str(tmp_path)).intent is None
    write(tmp_path, table([{"value": b"x" * 2_000_000}], "value"), topic="t", compression="zstd")


def test_a_limit_that_no_batch_keeps_is_told(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("t", 1, {"max.message.bytes": 50})
    with pytest.raises(RecordTooLarge, match="takes 50"):
        write(tmp_path, table([{"value": b"x"}], "value"), topic="t")


WRONG_COLUMNS = [
    ({"key": pa.binary()}, "t", r"value"),
    ({"value": pa.int64()}, "t", r"value"),
    ({"value": pa.binary(), "key": pa.float64()}, "t", r"key"),
    ({"value": pa.binary(), "topic": pa.int32()}, None, r"topic"),
    ({"value": pa.binary(), "partition": pa.string()}, "t", r"partition"),
    ({"value": pa.binary(), "timestamp": pa.string()}, "t", r"timestamp"),
    ({"value": pa.binary(), "headers": pa.string()}, "t", r"headers"),
    ({"value": pa.binary()}, None, r"no topic is named.*give the option topic, or a column"),
]


@pytest.mark.parametrize(("columns", "topic", "text"), WRONG_COLUMNS)
def test_wrong_columns_are_told_when_the_write_is_planned(
    columns: dict[str, Any], topic: str | None, text: str
) -> None:
    with pytest.raises(IllegalArgument, match=text):
        check_columns(pa.schema(list(columns.items())), topic)


def test_a_data_directory_whose_parent_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises((PartitionNotFound, StorageError), match="no/data"):
        write(tmp_path / "no" / "data", table([{"value": b"x"}], "value"), topic="t")


def test_a_partitions_own_directory_is_no_data_directory(tmp_path: Path) -> None:
    kafkalog.open(tmp_path / "t-0", "a").close()
    with pytest.raises(IllegalArgument, match="this is a partition directory, not a data directory"):
        write(tmp_path / "t-0", table([{"value": b"x"}], "value"), topic="t")


def test_a_full_disk_at_any_call_leaves_no_staged_file(tmp_path: Path) -> None:
    batches = table([{"value": b"x" * 100}] * 20, "value")
    options = SinkOptions.parse({"path": str(tmp_path), "topic": "t"})
    for nth in each_failure():
        fs = FaultFS()
        rule = fs.fail("open", "pwrite", "fsync", "rename", nth=nth)
        try:
            stage_rows(batches, options, QUERY, 0, 0, 0, fs=fs)
        except StorageError:
            assert staged_names(tmp_path) == []
        if not rule.fired:
            break
    assert nth > 4


# Options

PATH = {"path": "/x"}
BAD_OPTIONS = [
    ({}, IllegalArgument, r"no path is given.*save\("),
    ({**PATH, "topci": "t"}, IllegalArgument, r"no option 'topci'.*did you mean topic\?"),
    ({**PATH, "compresion": "zstd"}, IllegalArgument, r"did you mean compression\?"),
    ({**PATH, "compression": "zip"}, UnsupportedCompression, r"unknown codec 'zip'"),
    ({**PATH, "partitions": "0"}, IllegalArgument, r"partitions is '0'"),
    ({**PATH, "partitions": "1" * 5000}, IllegalArgument, r"partitions is '1{80}'"),
    ({**PATH, "partitions": "many"}, IllegalArgument, r"partitions is 'many'"),
    ({**PATH, "topic": "a b"}, InvalidTopic, r"a b"),
    ({**PATH, "jobId": "../x"}, IllegalArgument, r"jobId has 1 to 120 of"),
    ({**PATH, "lockWait": "soon"}, IllegalArgument, r"lockWait is 'soon'.*15m"),
    ({**PATH, "stagingAge": "-1d"}, IllegalArgument, r"stagingAge"),
    ({"path": "s3://bucket/x"}, IllegalArgument, r"mount"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "kind", "text"), BAD_OPTIONS)
def test_a_wrong_option_is_told(options: dict[str, str], kind: type[KafkalogError], text: str) -> None:
    with pytest.raises(kind, match=text):
        SinkOptions.parse(options)


def test_options_have_the_defaults_that_the_table_says() -> None:
    parsed = SinkOptions.parse({"PATH": "file:/a%20b", "TOPIC": "t", "LockWait": "2m"})
    assert (parsed.path, parsed.topic, parsed.lock_wait_ms) == ("/a b", "t", 120_000)
    defaults = {option.name: option.default for option in SINK_OPTIONS}
    assert (defaults["partitions"], defaults["compression"]) == ("1", "none")
    assert (defaults["lockWait"], defaults["stagingAge"]) == ("1m", "1d")
    parsed = SinkOptions.parse(PATH)
    assert (parsed.partitions, parsed.compression.codec, parsed.job_id) == (1, 0, None)
    assert (parsed.lock_wait_ms, parsed.staging_age_ms) == (60_000, 86_400_000)


def test_options_of_kafka_clients_are_passed_over_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    SinkOptions.parse({**PATH, "kafka.bootstrap.servers": "x:1"})
    assert "kafka.bootstrap.servers" in caplog.text


def test_a_type_that_arrow_lacks_is_refused(tmp_path: Path) -> None:
    types = pytest.importorskip("pyspark.sql.types", reason="PySpark is not installed")
    from kafkalog.spark.source import KafkalogDataSource

    for kind in (types.ArrayType(types.NullType(), containsNull=False), types.CalendarIntervalType()):  # `array()`
        schema = types.StructType().add("value", "string").add("headers", kind)
        with pytest.raises(IllegalArgument, match="a type that Arrow lacks: .*cast it"):
            KafkalogDataSource({"path": str(tmp_path), "topic": "t"}).writer(schema, overwrite=False)
