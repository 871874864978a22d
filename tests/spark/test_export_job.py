"""The job `export`: logs in Parquet tables, once, whatever happens meanwhile."""

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

import kafkalog
from kafkalog.errors import (
    CorruptRecord,
    IllegalArgument,
    IllegalState,
    InconsistentTopicId,
    InvalidRecord,
    NotAPartition,
    OffsetOutOfRange,
    PartitionNotFound,
    UnknownTopicOrPartition,
)
from kafkalog.exchange.manifest import ExportedFile, ExportedRange
from kafkalog.exchange.planning import FIRST_RATIO, MAX_RATIO, MIN_TASK_BYTES, log_bytes_per_byte, task_bytes
from kafkalog.spark.damage import DataLoss
from kafkalog.spark.jobs.export import export
from tests.exchange.test_damage import data_of
from tests.spark.jobs import job
from tests.storage.test_undecided import damage_last_byte
from tests.storage.test_undecided import write as write_events
from tests.transactional import Event, marker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = 86_400_000


def fill(data: Path, name: str, start: int, stop: int) -> None:
    """Records of two days, each value its offset."""
    with kafkalog.open(data / name, "a", retention_ms=-1) as log:
        for n in range(start, stop, 10):
            log.append([(b"k%d" % (i % 3), b"%d" % i, i % 2 * DAY, [("h", b"1")]) for i in range(n, n + 10)])


def rows(target: Path) -> list[dict[str, Any]]:
    """Return the rows that a reader of the table gets, by partition and offset."""
    found = ds.dataset(target, partitioning="hive").to_table().to_pylist() if any(target.glob("topic=*")) else []
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    for name in ("a-0", "a-1", "b-0"):
        fill(path, name, 0, 100)
    return path


def test_a_table_has_the_records_of_all_topics_by_topic_and_date(
    spark: "SparkSession", data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    report = export(spark, data, out)
    assert (report.records, report.files, report.before) == (300, 6, 0)
    assert sorted(str(p.relative_to(out).parent) for p in out.glob("topic=*/**/*.parquet")) == sorted(
        [f"topic=a/date=1970-01-0{day}" for day in (1, 2)] * 2 + [f"topic=b/date=1970-01-0{day}" for day in (1, 2)]
    )
    found = rows(out)
    assert [(row["topic"], row["partition"], row["offset"]) for row in found] == [
        (topic, number, n) for topic, number in (("a", 0), ("a", 1), ("b", 0)) for n in range(100)
    ]
    with kafkalog.open(data / "a-1") as log:
        ours = [(row["key"], row["value"], row["timestamp"], row["headers"]) for row in found[100:200]]
        assert ours == [(rec.key, rec.value, rec.datetime, [{"key": "h", "value": b"1"}]) for rec in log]
    table = spark.read.parquet(str(out))
    columns = ["key", "value", "partition", "offset", "timestamp", "timestampType", "headers", "topic", "date"]
    assert table.columns == columns
    assert table.where("topic = 'a' and date = '1970-01-02'").count() == 100


def test_the_next_run_takes_what_is_new_and_nothing_twice(spark: "SparkSession", data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(spark, data, out, {"subscribe": "a"})
    assert export(spark, data, out, {"subscribe": "a"}).records == 0
    fill(data, "a-1", 100, 130)
    report = export(spark, data, out)  # and another topic besides
    assert (report.records, report.before) == (130, 200)
    assert [(row["topic"], row["partition"], int(row["value"])) for row in rows(out)] == [
        *(("a", 0, n) for n in range(100)), *(("a", 1, n) for n in range(130)), *(("b", 0, n) for n in range(100)),
    ]  # fmt: skip


def test_ranges_that_were_left_out_are_filled_in_later(spark: "SparkSession", data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    middle = {"assign": '{"a":[0]}', "startingOffsets": '{"a":{"0":30}}', "endingOffsets": '{"a":{"0":60}}'}
    assert export(spark, data, out, middle).records == 30
    assert export(spark, data, out, {"assign": '{"a":[0]}'}).records == 70
    assert [row["offset"] for row in rows(out)] == list(range(100))


def test_a_range_may_be_given_by_time(spark: "SparkSession", tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "data" / "t-0", "a", retention_ms=-1) as log:
        for n in range(10):
            log.append((None, b"v", n * 1000))
    export(spark, tmp_path / "data", tmp_path / "out", {"startingTimestamp": "2500", "endingTimestamp": "7000"})
    assert [row["offset"] for row in rows(tmp_path / "out")] == [3, 4, 5, 6]


def test_many_tasks_give_the_same_records(spark: "SparkSession", tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "data" / "t-0", "a", retention_ms=-1, index_interval_bytes=1024) as log:
        for n in range(0, 4000, 20):
            log.append([(None, os.urandom(200), i) for i in range(n, n + 20)])
    report = export(spark, tmp_path / "data", tmp_path / "out", file_bytes=64 << 10)
    assert report.files > 4
    assert [row["offset"] for row in rows(tmp_path / "out")] == list(range(4000))


def test_an_error_leaves_what_was_done_and_the_next_run_takes_the_rest(
    spark: "SparkSession", data: Path, tmp_path: Path
) -> None:
    with kafkalog.open(data / "b-0", "a") as log:
        log.roll()
        log.append(b"behind it")
    segment = data / "b-0" / f"{0:020d}.log"
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CorruptRecord, match=r"b-0/0+\.log.*position"):
        export(spark, data, tmp_path / "out")
    assert [row["offset"] for row in rows(tmp_path / "out") if row["topic"] == "b"] == list(range(90))
    segment.write_bytes(whole)
    report = export(spark, data, tmp_path / "out")
    assert (report.records, report.before) == (11, 290)
    assert len(rows(tmp_path / "out")) == 301


def damage_middle(data: Path) -> Path:
    """Damages the batch of offsets 30 to 39 of a-0."""
    segment = data / "a-0" / f"{0:020d}.log"
    content = segment.read_bytes()
    at = 3 * len(content) // 10 + 70
    segment.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    return segment


def test_damage_costs_no_record_before_it_or_in_other_parts(spark: "SparkSession", data: Path, tmp_path: Path) -> None:
    segment = damage_middle(data)
    with pytest.raises(CorruptRecord, match="--on-damage skip") as caught:
        export(spark, data, tmp_path / "out")
    assert (caught.value.path, caught.value.offset, caught.value.next_sound_offset) == (str(segment), 30, 40)
    found = [row["offset"] for row in rows(tmp_path / "out")]
    assert found == [*range(30), *range(100), *range(100)]


def test_export_that_skips_damage_writes_the_rest_and_lists_it(
    spark: "SparkSession", data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    segment = damage_middle(data)
    lines = tmp_path / "lines"
    given = ("-t", "a", "--on-damage", "skip", "-X", f"corruptReport={lines}")
    done = job(capfd, "export", data, tmp_path / "out", *given)
    assert done.status == 1
    assert f"skipped: {segment}, " in done.err and "offsets 30 to 39" in done.err
    assert [row["offset"] for row in rows(tmp_path / "out")] == [*range(30), *range(40, 100), *range(100)]
    (report,) = lines.iterdir()
    assert json.loads(report.read_text())["offset"] == 30


def test_export_that_skips_damage_skips_batches_that_break_the_format(spark: "SparkSession", tmp_path: Path) -> None:
    """As the source does; a checksum that is right says nothing about the records."""
    data_of(tmp_path / "data", {1, 4}, [b"v"] * 5)
    with pytest.raises(InvalidRecord):
        export(spark, tmp_path / "data", tmp_path / "out")
    report = export(spark, tmp_path / "data", tmp_path / "out", {"onDamage": "skip"})
    assert [(one.offset, one.next_offset) for one in report.skipped] == [(5, 10), (20, 25)]
    assert [row["offset"] for row in rows(tmp_path / "out")] == [n for n in range(30) if n // 5 not in (1, 4)]


def test_export_that_goes_on_sees_a_hidden_end_of_a_transaction(spark: "SparkSession", tmp_path: Path) -> None:
    events: list[Event] = [("plain", 0, 2), ("data", 5, 2), ("commit", 5, 0), ("plain", 0, 3)]
    write_events(tmp_path / "data" / "t-0", events, has_snapshots=False)
    damage_last_byte(tmp_path / "data" / "t-0" / f"{0:020d}.log", marker(4, 5, 1))
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="of producer 5 from offset 2 on may end there"):
            export(spark, tmp_path / "data", tmp_path / "out", {"isolationLevel": "read_committed"})
        assert [row["offset"] for row in rows(tmp_path / "out")] == [0, 1]


def test_export_that_goes_on_sees_damage_at_the_end(spark: "SparkSession", data: Path, tmp_path: Path) -> None:
    """All sound records are exported then, so that no task reads the end."""
    segment = data / "b-0" / f"{0:020d}.log"
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    for _ in range(2):
        with pytest.raises(CorruptRecord, match=r"b-0/0+\.log"):
            export(spark, data, tmp_path / "out", {"subscribe": "b"})
        assert [row["offset"] for row in rows(tmp_path / "out")] == list(range(90))
    report = export(spark, data, tmp_path / "out", {"subscribe": "b", "onDamage": "skip"})
    assert (report.records, report.before, [one.path for one in report.skipped]) == (0, 90, [str(segment)])


def test_nothing_committed_is_read_that_was_aborted(spark: "SparkSession", tmp_path: Path) -> None:
    from tests.golden_cases import partitions

    aborted = "*.txnindex"
    case = next(one for one in partitions("logdir") if any(p.stat().st_size for p in one.directory.glob(aborted)))
    out = {}
    for isolation in ("read_uncommitted", "read_committed"):
        export(spark, case.directory, tmp_path / isolation, {"isolationLevel": isolation})
        with kafkalog.open(case.directory) as log:
            expected = [rec.offset for rec in log.records(isolation=isolation)]
        out[isolation] = [row["offset"] for row in rows(tmp_path / isolation)]
        assert out[isolation] == expected
    assert len(out["read_committed"]) < len(out["read_uncommitted"])


@pytest.mark.parametrize(
    ("given", "options", "error", "message"),
    [
        ("nowhere", {}, PartitionNotFound, "no such directory"),
        ("file", {}, NotAPartition, "a file, not a directory"),
        ("empty", {}, UnknownTopicOrPartition, "no partitions to export"),
        ("data", {"subscribe": "c"}, UnknownTopicOrPartition, "no topic c.*topics here: a, b"),
        ("data", {"subscribePattern": "c.*"}, UnknownTopicOrPartition, "no partitions to export"),
        ("data", {"subscribe": "a", "assign": '{"a":[0]}'}, IllegalArgument, "give one of"),
        ("data", {"isolationLevel": "read_comitted"}, IllegalArgument, "did you mean read_committed"),
        ("data", {"startingOffset": "earliest"}, IllegalArgument, "startingOffsets"),
        ("data", {"columns": "key"}, IllegalArgument, "columns is not an option of the export"),
        ("data", {"assign": '{"a":[0]}', "startingOffsets": '{"a":{"0":200}}'}, IllegalArgument, "is after its end"),
    ],
)
def test_what_cannot_be_exported_is_told(
    spark: "SparkSession", data: Path, tmp_path: Path, given: str, options: dict[str, str], error: type[Exception],
    message: str,
) -> None:  # fmt: skip
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(error, match=message):
        export(spark, tmp_path / given, tmp_path / "out", options)
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").rglob("*.parquet"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": ["valu"]}, "value"),
        ({"columns": ["topic"]}, "no column is selected besides the topic"),
        ({"compression": "zip"}, "give zstd"),
        ({"file_bytes": 0}, "give 1024 or more"),
    ],
)
def test_arguments_are_checked_first(
    spark: "SparkSession", data: Path, tmp_path: Path, arguments: Any, message: str
) -> None:
    with pytest.raises(IllegalArgument, match=message):
        export(spark, data, tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_a_log_that_is_not_the_one_that_was_exported_is_refused(
    spark: "SparkSession", data: Path, tmp_path: Path
) -> None:
    export(spark, data / "a-0", tmp_path / "out")
    with kafkalog.open(data / "a-0", "a") as log:
        log.truncate_to(50)
    with pytest.raises(IllegalState, match="up to offset 100, but now ends at 50"):
        export(spark, data / "a-0", tmp_path / "out")


def test_a_topic_that_was_made_anew_is_refused(spark: "SparkSession", data: Path, tmp_path: Path) -> None:
    for topic_id in ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"):
        (data / "a-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
        if topic_id.endswith("Q"):
            export(spark, data / "a-0", tmp_path / "out")
    with pytest.raises(InconsistentTopicId, match="the topic was recreated"):
        export(spark, data / "a-0", tmp_path / "out")


def test_records_that_retention_took_before_they_were_exported(
    spark: "SparkSession", data: Path, tmp_path: Path
) -> None:
    export(spark, data / "a-0", tmp_path / "out")
    fill(data, "a-0", 100, 150)
    with kafkalog.open(data / "a-0", "a", retention_ms=-1) as log:
        log.delete_before(120)
    with pytest.raises(OffsetOutOfRange, match="offsets 100 to 119 of a-0 were deleted"):
        export(spark, data / "a-0", tmp_path / "out")
    with pytest.warns(DataLoss, match="100 to 119"):
        assert export(spark, data / "a-0", tmp_path / "out", {"failOnDataLoss": "false"}).records == 30


def test_a_target_that_is_not_ours_is_refused(spark: "SparkSession", data: Path, tmp_path: Path) -> None:
    with pytest.raises(IllegalArgument, match="cannot be stored in the data directory"):
        export(spark, data, data)
    export(spark, data, tmp_path / "out")
    with pytest.raises(IllegalArgument, match="an export with columns"):
        export(spark, data, tmp_path / "out", columns=["value"])


def test_the_command_exports_and_says_what(
    spark: "SparkSession", data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = ("-t", "a", "--columns", "value,offset", "--no-dates", "--file-size", "64K", "--compression", "snappy")
    done = job(capfd, "export", data, tmp_path / "out", *given)
    assert (done.status, done.err) == (0, "")
    assert re.fullmatch(r"exported 200 records into 2 files, [\d,]+ bytes; 0 were exported earlier\n", done.out)
    assert set(ds.dataset(tmp_path / "out").schema.names) == {"value", "offset"}
    again = job(capfd, "export", data, tmp_path / "out", *given, "-J")
    assert json.loads(again.out) == {"records": 0, "files": 0, "bytes": 0, "before": 200}


@pytest.mark.parametrize(
    ("given", "status", "message"),
    [
        (("nowhere", "out"), 1, "nowhere"),
        (("data",), 2, "Missing argument"),
        (("data", "out", "--file-size", "much"), 2, "'much' is not a size"),
        (("data", "out", "-X", "startingOffset=earliest"), 2, "startingOffsets"),
        (("data", "out", "--isolation-level", "read_comitted"), 2, "did you mean read_committed"),
    ],
)
def test_the_command_says_what_is_wrong(
    spark: "SparkSession", data: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    given: tuple[str, ...], status: int, message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(data.parent)
    done = job(capfd, "export", *given)
    assert done.status == status
    assert message in done.err


def test_tasks_are_as_large_as_files_and_fewer_bytes_where_cores_would_wait() -> None:
    assert task_bytes(10 << 30, 4, 128 << 20, 2.0) == 256 << 20
    assert task_bytes(200 << 20, 4, 128 << 20, 2.0) == 50 << 20
    assert task_bytes(20 << 20, 64, 128 << 20, 2.0) == MIN_TASK_BYTES
    assert task_bytes(0, 4, 1024, 1.0) == 1024


@pytest.mark.parametrize(("log", "parquet", "ratio"), [(100, 50, 2.0), (100, 200, 1.0), (10**6, 10, MAX_RATIO)])
def test_how_large_files_get_is_learnt_from_those_there_are(log: int, parquet: int, ratio: float) -> None:
    file = ExportedFile("topic=t/a.parquet", "r/a.parquet", 1, parquet)
    empty = ExportedRange("t", 0, 5, 9, 10**9, None, ())
    assert log_bytes_per_byte([ExportedRange("t", 0, 0, 5, log, None, (file,)), empty]) == ratio
    assert log_bytes_per_byte([empty]) == FIRST_RATIO
