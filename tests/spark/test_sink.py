"""The sink through Spark: batches and streams land once, in every mode that Spark's Kafka sink has."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog
from kafkalog.landing.ledger import read_ledger
from kafkalog.landing.staging import Job
from tests.spark.sink_cases import found, staged_names

pytest.importorskip("pyspark", reason="PySpark is not installed")

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALL = "string(key) as key, string(value) as value, topic, partition, timestamp, headers"


def numbers(spark: "SparkSession", count: int, tasks: int = 3) -> "DataFrame":
    return spark.range(0, count, 1, tasks).selectExpr("string(id) as key", "concat('value ', id) as value")


def save(frame: "DataFrame", directory: Path, **options: str) -> None:
    frame.write.format("kafkalog").options(**options).mode("append").save(str(directory))


def read(spark: "SparkSession", directory: Path, topic: str) -> "DataFrame":
    reader = spark.read.format("kafkalog").option("subscribe", topic).option("includeHeaders", "true")
    return reader.load(str(directory))


def read_values(directory: Path, topic: str) -> list[bytes]:
    with kafkalog.open_dirs(directory) as dirs:
        return [bytes(record.value or b"") for log in dirs.logs(topic) for record in log]


def test_a_batch_is_read_back_as_it_was_written(spark: "SparkSession", tmp_path: Path) -> None:
    frame = spark.range(1000).repartition(4).selectExpr(
        "string(id) as key", "concat('value ', id) as value", "if(id % 2 = 0, 'even', 'odd') as topic",
        "int(id % 3) as partition", "timestamp_millis(1700000000000 + id) as timestamp",
        "if(id % 5 = 0, array(named_struct('key', 'h', 'value', binary(string(id)))), null) as headers",
    )  # fmt: skip
    save(frame, tmp_path, partitions="3", compression="zstd")
    there = read(spark, tmp_path, "even,odd").selectExpr(*ALL.split(", "))
    wanted = frame.selectExpr(*ALL.split(", "))
    assert there.exceptAll(wanted).isEmpty()
    assert wanted.exceptAll(there).isEmpty()
    assert staged_names(tmp_path) == []


def test_tasks_keep_their_order(spark: "SparkSession", tmp_path: Path) -> None:
    save(numbers(spark, 5000, 7).select("value"), tmp_path, topic="t")
    assert found(tmp_path, "t") == [b"value %d" % n for n in range(5000)]


def test_a_job_id_lands_once_and_writes_without_one_each_time(spark: "SparkSession", tmp_path: Path) -> None:
    for _ in range(2):
        save(numbers(spark, 10), tmp_path, topic="t", jobId="nightly-2026-01-01")
    assert len(read_values(tmp_path, "t")) == 10
    for _ in range(2):
        save(numbers(spark, 10), tmp_path, topic="t")
    assert len(read_values(tmp_path, "t")) == 30
    assert list(read_ledger(str(tmp_path)).marks) == [Job.batch("nightly-2026-01-01")]


def test_sql_writes_too(spark: "SparkSession", tmp_path: Path) -> None:
    """Spark gives the writer of a table no options of the table: they are named with the insert."""
    spark.sql("drop table if exists sink_table")
    spark.sql("create table sink_table (value string) using kafkalog")
    try:
        spark.sql(f"insert into sink_table with ('path' = '{tmp_path}', 'topic' = 't') values ('one'), ('two')")
    finally:
        spark.sql("drop table sink_table")
    assert sorted(read_values(tmp_path, "t")) == [b"one", b"two"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda writer: writer.mode("overwrite"), "save mode overwrite is not allowed"),
        (lambda writer: writer.mode("append").option("topci", "x"), "did you mean topic"),
        (lambda writer: writer.mode("append"), "no topic is named"),
    ],
)
def test_a_write_that_cannot_be_is_refused_when_it_is_planned(
    spark: "SparkSession", tmp_path: Path, change: Callable[[Any], Any], text: str
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match=text):
        change(numbers(spark, 1).write.format("kafkalog")).save(str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_wrong_columns_are_told_with_their_name(spark: "SparkSession", tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    for columns, text in (("id as value", "value"), ("string(id) as key", "value")):
        with pytest.raises(PySparkException, match=text):
            save(spark.range(3).selectExpr(columns), tmp_path, topic="t")


def test_a_task_that_fails_for_good_leaves_nothing(spark: "SparkSession", tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    for tasks in (4, 1):
        frame = numbers(spark, 100, tasks).selectExpr("value", "if(key = '77', null, 't') as topic")
        before = staged_names(tmp_path)
        with pytest.raises(PySparkException, match="has no topic"):
            save(frame, tmp_path)
        assert not (tmp_path / "t-0").exists()
        if tasks == 1:  # another one that Spark has not ended yet may stage its file after the job has swept
            assert set(staged_names(tmp_path)) <= set(before)
    for _ in range(20):  # what such a task leaves goes with a later job, by its age
        save(numbers(spark, 10), tmp_path, topic="t", stagingAge="1ms")
        if not staged_names(tmp_path):
            break
        time.sleep(0.5)
    assert staged_names(tmp_path) == [] and len(found(tmp_path, "t")) % 10 == 0


def test_a_directory_that_is_in_use_is_told_and_nothing_stays(spark: "SparkSession", tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    with kafkalog.open(tmp_path / "t-0", "a") as log:  # another process than the one that commits
        log.append(b"mine")
        with pytest.raises(PySparkException, match="the commit waited 100 ms for the lock and appended nothing"):
            save(numbers(spark, 10), tmp_path, topic="t", lockWait="100ms")
    save(numbers(spark, 10), tmp_path, topic="t")
    assert len(found(tmp_path, "t")) == 11


# Streams


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Path]:
    """A directory that text files are put into."""
    directory = tmp_path / "in"
    directory.mkdir()
    yield directory


def write_file(source: Path, name: str, lines: int) -> list[bytes]:
    values = [f"{name} {n}" for n in range(lines)]
    hidden = source / f".{name}"
    hidden.write_text("\n".join(values) + "\n")
    hidden.rename(source / name)
    return [value.encode() for value in values]


def run(spark: "SparkSession", source: Path, directory: Path, checkpoint: Path, **options: str) -> str:
    """Write the new files of the source, one batch each; return the query's id."""
    query = (
        spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(source))
        .writeStream.format("kafkalog").options(**options).option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True).start(str(directory))
    )  # fmt: skip
    query.awaitTermination()
    return str(query.id)


def test_a_stream_goes_on_where_it_was(spark: "SparkSession", tmp_path: Path, source: Path) -> None:
    data, checkpoint = tmp_path / "data", tmp_path / "checkpoint"
    wanted = write_file(source, "a", 50) + write_file(source, "b", 70)
    first = run(spark, source, data, checkpoint, topic="t")
    assert sorted(found(data, "t")) == sorted(wanted)
    wanted += write_file(source, "c", 30)
    assert run(spark, source, data, checkpoint, topic="t") == first
    assert sorted(found(data, "t")) == sorted(wanted)
    assert read_ledger(str(data)).marks[Job.query(first)].batch_id == 2
    assert staged_names(data) == []


def test_a_batch_that_spark_does_not_know_of_lands_once(spark: "SparkSession", tmp_path: Path, source: Path) -> None:
    """As when the driver dies after our commit and before Spark's: the batch is run again."""
    data, checkpoint = tmp_path / "data", tmp_path / "checkpoint"
    wanted = write_file(source, "a", 50) + write_file(source, "b", 70)
    run(spark, source, data, checkpoint, topic="t")
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    wanted += write_file(source, "c", 30)
    run(spark, source, data, checkpoint, topic="t")
    assert sorted(found(data, "t")) == sorted(wanted)


def test_another_checkpoint_lands_the_same_batches_anew(spark: "SparkSession", tmp_path: Path, source: Path) -> None:
    data = tmp_path / "data"
    wanted = write_file(source, "a", 50)
    run(spark, source, data, tmp_path / "one", topic="t")
    run(spark, source, data, tmp_path / "two", topic="t")
    assert sorted(found(data, "t")) == sorted(wanted * 2)


def test_complete_mode_appends_the_whole_result_of_each_batch(
    spark: "SparkSession", tmp_path: Path, source: Path
) -> None:
    write_file(source, "a", 5)
    write_file(source, "b", 7)
    query = (
        spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(source))
        .groupBy().count().selectExpr("string(count) as value")
        .writeStream.format("kafkalog").option("topic", "t").option("checkpointLocation", str(tmp_path / "checkpoint"))
        .outputMode("complete").trigger(availableNow=True).start(str(tmp_path / "data"))
    )  # fmt: skip
    query.awaitTermination()
    assert len(found(tmp_path / "data", "t")) == 2
    assert found(tmp_path / "data", "t")[1] == b"12"
