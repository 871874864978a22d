"""The job `ingest`: files of each format become records, once for each job id."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kafkalog
from kafkalog.errors import (
    FormatError,
    IllegalArgument,
    InvalidPartitions,
    InvalidTopic,
    JobFailed,
    KafkalogError,
    StorageError,
)
from kafkalog.spark.jobs.ingest import ingest
from kafkalog.spark.jobs.row_columns import RowColumns, format_of
from tests.spark.jobs import job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[bytes | None, bytes | None]


def records(data: Path, name: str = "t-0") -> list[Row]:
    with kafkalog.open(data / name) as log:
        return [(rec.key, rec.value) for rec in log]


def staged_files(data: Path) -> list[str]:
    """Files of tasks that are still there."""
    return [name for name in os.listdir(data) if name.startswith("kafkalog-stage")]


def test_text_in_order_over_many_tasks_with_a_report(spark: "SparkSession", tmp_path: Path) -> None:
    lines = [b"hello lagou %d" % n for n in range(5000)]
    (tmp_path / "in.txt").write_bytes(b"\n".join(lines) + b"\n")
    report = ingest(spark, tmp_path / "in.txt", tmp_path / "data", "t", split_bytes=8000)
    assert (report.records, report.files, report.landed) == (5000, 1, True)
    assert records(tmp_path / "data") == [(None, line) for line in lines]
    assert staged_files(tmp_path / "data") == []
    assert kafkalog.verify([tmp_path / "data"]).ok


def test_a_job_id_lands_once(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\nb\n")
    first = ingest(spark, tmp_path / "in.txt", tmp_path / "data", "t", job_id="load-1")
    again = ingest(spark, tmp_path / "in.txt", tmp_path / "data", "t", job_id="load-1")
    assert (first.landed, again.landed, again.records) == (True, False, 0)
    assert records(tmp_path / "data") == [(None, b"a"), (None, b"b")]
    ingest(spark, tmp_path / "in.txt", tmp_path / "data", "t")
    assert len(records(tmp_path / "data")) == 4


def test_csv_by_columns_and_as_rows(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text('id,name,at\n1,"Ada, Countess",2026-01-02T03:04:05.678Z\n2,"two ""words""",1700000000000\n')
    columns = RowColumns(value="name", key="id", timestamp="at")
    ingest(spark, path, tmp_path / "data", "t", columns=columns)
    with kafkalog.open(tmp_path / "data" / "t-0") as log:
        assert [(rec.key, rec.value, rec.timestamp) for rec in log] == [
            (b"1", b"Ada, Countess", 1767323045678), (b"2", b'two "words"', 1700000000000),
        ]  # fmt: skip
    ingest(spark, path, tmp_path / "data", "rows")
    assert [json.loads(value or b"") for _, value in records(tmp_path / "data", "rows-0")] == [
        {"id": "1", "name": "Ada, Countess", "at": "2026-01-02T03:04:05.678Z"},
        {"id": "2", "name": 'two "words"', "at": "1700000000000"},
    ]
    ingest(spark, path, tmp_path / "data", "bare", header=False, columns=RowColumns(value="_c1"))
    assert [value for _, value in records(tmp_path / "data", "bare-0")][0] == b"name"


def test_a_quoted_empty_field_of_csv_is_an_empty_text(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text('k,v,at,p\n"","","",""\nx,"",5,0\n,y,,\n')
    columns = RowColumns(value="v", key="k", timestamp="at", partition="p")
    ingest(spark, path, tmp_path / "data", "t", columns=columns)
    assert records(tmp_path / "data") == [(b"", b""), (b"x", b""), (None, b"y")]
    ingest(spark, path, tmp_path / "data", "rows")
    assert json.loads(records(tmp_path / "data", "rows-0")[1][1] or b"") == {"k": "x", "v": "", "at": "5", "p": "0"}
    path.write_text('k,v\nx,\ny,""\n')
    with pytest.raises(IllegalArgument, match="a row has a missing or null value"):
        ingest(spark, path, tmp_path / "data", "nulls", columns=RowColumns(value="v", key="k"))
    ingest(spark, path, tmp_path / "data", "nulls", columns=RowColumns(value="v", key="k"), nulls=True)
    assert records(tmp_path / "data", "nulls-0") == [(b"x", None), (b"y", b"")]


def test_json_lines_as_they_are_and_by_fields(spark: "SparkSession", tmp_path: Path) -> None:
    lines = ['{"u": "x", "n": 1,  "deep": {"a": [1, 2]}}', '{"n": 2, "u": "y"}']
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(lines) + "\n\n")
    ingest(spark, path, tmp_path / "data", "t", columns=RowColumns(key="u"))
    assert records(tmp_path / "data") == [(b"x", lines[0].encode()), (b"y", lines[1].encode())]
    ingest(spark, path, tmp_path / "data", "n", columns=RowColumns(value="n", topic=None))
    assert records(tmp_path / "data", "n-0") == [(None, b"1"), (None, b"2")]
    with pytest.raises(IllegalArgument, match="a row has a missing or null value"):
        ingest(spark, path, tmp_path / "data", "x", columns=RowColumns(value="deep"))
    ingest(spark, path, tmp_path / "data", "x", columns=RowColumns(value="deep"), nulls=True)
    assert records(tmp_path / "data", "x-0") == [(None, b'{"a": [1, 2]}'), (None, None)]
    path.write_text('{"n": 1.10, "v": 12345678901234567890.5}\n \t\n{"n": 1e400, "v": true}\n')
    ingest(spark, path, tmp_path / "data", "exact", columns=RowColumns(value="v", key="n"))
    assert records(tmp_path / "data", "exact-0") == [(b"1.10", b"12345678901234567890.5"), (b"1e400", b"true")]
    ingest(spark, path, tmp_path / "data", "whole", columns=RowColumns(key="v"))
    assert records(tmp_path / "data", "whole-0") == [
        (b"12345678901234567890.5", b'{"n": 1.10, "v": 12345678901234567890.5}'), (b"true", b'{"n": 1e400, "v": true}'),
    ]  # fmt: skip


def test_parquet_with_topics_and_partitions_of_its_own(spark: "SparkSession", tmp_path: Path) -> None:
    table = pa.table({
        "k": pa.array([b"a", None, b"c"]), "v": pa.array([b"1", b"2", b"3"]), "to": ["x", "y", "x"],
        "p": pa.array([1, 0, 0], pa.int64()), "at": pa.array([1000, 2000, 3000], pa.timestamp("ms", "UTC")),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "in.parquet")
    columns = RowColumns("v", "k", "at", "to", "p")
    path = tmp_path / "in.parquet"
    report = ingest(spark, path, tmp_path / "data", columns=columns, partitions=2, compression="zstd")
    assert report.records == 3
    assert records(tmp_path / "data", "x-1") == [(b"a", b"1")]
    assert records(tmp_path / "data", "x-0") == [(b"c", b"3")]
    assert records(tmp_path / "data", "y-0") == [(None, b"2")]
    assert (tmp_path / "data" / "y-1").is_dir()


@pytest.mark.parametrize(
    ("name", "given", "error", "message"),
    [
        ("a.csv", {"columns": RowColumns(value="nam")}, IllegalArgument, "did you mean name"),
        ("a.csv", {"columns": RowColumns(partition="name")}, (IllegalArgument, JobFailed), "name|Ada|cast"),
        ("a.csv", {"columns": RowColumns(timestamp="name")}, JobFailed, "Ada"),
        ("bad.csv", {}, JobFailed, r"(?i)malformed|bad\.csv"),
        ("bad.csv", {"columns": RowColumns(value="name")}, JobFailed, r"(?i)malformed|bad\.csv"),
        ("bad.jsonl", {"columns": RowColumns(key="a")}, JobFailed, "(?i)malformed"),
        ("bad.parquet", {}, JobFailed, "Parquet|parquet|footer|FOOTER"),
        ("a.txt", {"columns": RowColumns(key="a")}, IllegalArgument, "text has no column 'a'"),
        ("a.txt", {"format": "xml"}, IllegalArgument, "give text, csv, json, parquet"),
        ("a.txt", {"topic": "a/b"}, InvalidTopic, "not allowed"),
        ("a.txt", {"topic": None}, IllegalArgument, "no topic is named"),
        ("a.txt", {"partitions": 0}, InvalidPartitions, "partitions is 0, it must be 1 to"),
        ("a.txt", {"compression": "zst"}, Exception, "did you mean zstd"),
        ("a.csv", {"key_delimiter": b"="}, IllegalArgument, "is for text"),
        ("missing.txt", {}, StorageError, "missing"),
        ("nothing", {}, FormatError, "no files"),
        (".", {}, IllegalArgument, "several formats"),
    ],
)  # fmt: skip
def test_what_cannot_be_ingested_is_told_and_nothing_is_written(
    spark: "SparkSession", tmp_path: Path, name: str, given: dict[str, Any], error: Any, message: str
) -> None:
    inputs = tmp_path / "inputs"
    (inputs / "nothing").mkdir(parents=True)
    (inputs / "a.csv").write_text("id,name\n1,Ada\n")
    (inputs / "bad.csv").write_text("id,name\n1,Ada,too,many\n")
    (inputs / "bad.jsonl").write_text('{"a": 1}\n{"a": \n')
    (inputs / "bad.parquet").write_text("no parquet at all")
    (inputs / "a.txt").write_text("line\n")
    with pytest.raises(error, match=message):
        ingest(spark, inputs / name, tmp_path / "data", **{"topic": "t", **given})
    assert not (tmp_path / "data").exists() or not [n for n in os.listdir(tmp_path / "data") if "lock" not in n]


def test_each_named_file_is_read_and_no_other(spark: "SparkSession", tmp_path: Path) -> None:
    columns = RowColumns(value="v", key="k")
    for name, text in [("x[1].csv", "k,v\n1,a\n"), ("x1.csv", "k,v\n2,b\n"), ("_x.csv", "k,v\n3,c\n")]:
        (tmp_path / name).write_text(text)
    ingest(spark, tmp_path / "x[1].csv", tmp_path / "data", "t", columns=columns)
    assert records(tmp_path / "data") == [(b"1", b"a")]
    with pytest.raises(IllegalArgument, match="Spark passes over"):
        ingest(spark, [tmp_path / "x1.csv", tmp_path / "_x.csv"], tmp_path / "data", "t", columns=columns)
    for name in ("a:b.csv", "a:b.json"):
        (tmp_path / name).write_text('{"k": 1, "v": 2}\n')
        with pytest.raises(IllegalArgument, match="cannot open a file with a colon.*rename it"):
            ingest(spark, tmp_path / name, tmp_path / "data", "t", columns=columns)
    (tmp_path / "y.csv").write_text("v,k\nd,4\n")
    with pytest.raises(JobFailed, match="y.csv|header"):  # its columns are in another order
        ingest(spark, [tmp_path / "x1.csv", tmp_path / "y.csv"], tmp_path / "data", "t", columns=columns)
    assert records(tmp_path / "data") == [(b"1", b"a")]


def test_a_wrong_time_or_partition_fails_whatever_spark_s_casts_do(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"bad": "x1", "high": "4294967296", "v": "a"}\n')
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        for given, message in [
            ({"timestamp": "bad"}, "not a time: x1"), ({"partition": "bad"}, "not a partition: x1"),
            ({"partition": "high"}, "partition 4294967296"),
        ]:  # fmt: skip
            with pytest.raises(KafkalogError, match=message):
                ingest(spark, tmp_path / "in.json", tmp_path / "data", "t", columns=RowColumns(value="v", **given))
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_names_tell_the_format() -> None:
    assert format_of(["a.CSV", "b.tsv"]) == "csv"
    assert format_of(["a.ndjson", "b.jsonl"]) == "json"
    assert format_of(["a.log", "b"]) == "text"
    assert format_of([]) == "text"


def test_the_command_writes_and_says_what(
    spark: "SparkSession", tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.txt").write_text("a=1;b=2;c")
    given = (tmp_path / "in.txt", "-d", tmp_path / "data", "-t", "t", "-D", ";", "-K", "=", "--job-id", "j")
    done = job(capfd, "ingest", *given)
    assert (done.status, done.out, done.err) == (0, "appended 3 records of 1 file\n", "")
    assert records(tmp_path / "data") == [(b"a", b"1"), (b"b", b"2"), (None, b"c")]
    assert job(capfd, "ingest", *given).out == "job j is already in the logs: nothing was appended\n"
    assert json.loads(job(capfd, "ingest", *given, "-J").out)["landed"] is False
    wrong = job(capfd, "ingest", tmp_path / "in.txt", "-d", tmp_path / "data", "-t", "t", "--key", "a")
    assert wrong.status == 2
    assert "text has no column" in wrong.err
