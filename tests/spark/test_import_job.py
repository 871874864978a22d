"""The job `import`: what was exported comes back, with its offsets where there is room for them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kafkalog
from kafkalog.errors import FormatError, IllegalArgument
from kafkalog.spark.jobs.export import export
from kafkalog.spark.jobs.import_ import import_
from tests.spark.jobs import job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_all(log: Path) -> list[tuple[Any, ...]]:
    with kafkalog.open(log) as opened:
        return [(rec.offset, rec.timestamp, rec.key, rec.value, rec.headers) for rec in opened]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    data = tmp_path / "src"
    for name in ("a-0", "a-2", "b-0"):
        with kafkalog.open(data / name, "a", retention_ms=-1) as log:
            for n in range(0, 300, 30):
                log.append([(None if i % 7 == 0 else b"k", None if i % 5 == 0 else b"%d" % i, i * 10**7,
                             [("h", None)] * (i % 2)) for i in range(n, n + 30)])  # fmt: skip
            log.delete_before(20)
    return data


def test_an_export_comes_back_with_its_offsets(spark: "SparkSession", source: Path, tmp_path: Path) -> None:
    export(spark, source, tmp_path / "out", file_bytes=4096)
    report = import_(spark, tmp_path / "out", tmp_path / "data", compression="zstd", job_id="j")
    assert (report.records, report.partitions, report.kept, report.landed) == (840, 3, True, True)
    for name in ("a-0", "a-2", "b-0"):
        assert read_all(tmp_path / "data" / name) == read_all(source / name)
    made = sorted(path.name for path in (tmp_path / "data").iterdir() if path.is_dir())
    assert made == ["a-0", "a-1", "a-2", "b-0"]
    assert kafkalog.verify([tmp_path / "data"]).ok
    again = import_(spark, tmp_path / "out", tmp_path / "data", job_id="j")
    assert (again.records, again.landed) == (0, False)
    with pytest.raises(IllegalArgument, match="a-0 is not empty, so the records cannot keep their offsets"):
        import_(spark, tmp_path / "out", tmp_path / "data", offsets="keep")
    more = import_(spark, tmp_path / "out", tmp_path / "data")
    assert (more.records, more.kept) == (840, False)
    found = read_all(tmp_path / "data" / "a-2")
    assert [one[1:] for one in found[:280]] == [one[1:] for one in found[280:]]
    assert [one[0] for one in found] == list(range(20, 580))


def test_any_parquet_by_its_columns_is_appended(
    spark: "SparkSession", tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = pa.table({"id": ["x", None], "body": ["1", None], "at": pa.array([-1, 5], pa.int64())})
    pq.write_table(table, tmp_path / "in.parquet")
    columns = ("--column", "key=id", "--column", "value=body", "--column", "timestamp=at")
    done = job(capfd, "import", tmp_path / "in.parquet", "-d", tmp_path / "data", "-t", "t", *columns)
    assert (done.status, done.out, done.err) == (0, "2 records of 1 file appended\n", "")
    assert read_all(tmp_path / "data" / "t-0") == [(0, -1, b"x", b"1", ()), (1, 5, None, None, ())]
    wrong = job(capfd, "import", tmp_path / "in.parquet", "-d", tmp_path / "data", "-t", "t")
    assert wrong.status == 2
    assert "no column 'value'" in wrong.err


def test_json_lines_are_appended_once(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"payload": str(n), "ts": n}) + "\n" for n in range(100)))
    for _ in range(2):
        import_(spark, tmp_path / "in.jsonl", tmp_path / "data", "t", job_id="j")
    assert [one[:4] for one in read_all(tmp_path / "data" / "t-0")] == [(n, n, None, b"%d" % n) for n in range(100)]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"offsets": "old"}, IllegalArgument, "give auto, keep, new"),
        ({"columns": {"vale": "x"}}, IllegalArgument, "parts are value"),
        ({"format": "csv"}, IllegalArgument, "ingest"),
        ({"offsets": "keep"}, IllegalArgument, "some rows lack topic, partition or offset"),
        ({"topic": None}, IllegalArgument, "the rows have no topic"),
        ({"format": "json"}, FormatError, "not a record"),
        ({"format": "json", "topic": None}, IllegalArgument, "name the topic"),
    ],
)
def test_what_cannot_be_imported_is_told(
    spark: "SparkSession", tmp_path: Path, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    pq.write_table(pa.table({"value": ["1"]}), tmp_path / "in.parquet")
    with pytest.raises(error, match=message):
        import_(spark, tmp_path / "in.parquet", tmp_path / "data", **{"topic": "t", **given})
