"""The job `stats`: counts of a tree by topic and hour, keys, problems, as a table, JSON and a DataFrame."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

import kafkalog
from kafkalog.errors import JobFailed, NotAPartition, PartitionNotFound, UnknownTopicOrPartition
from kafkalog.spark.header_survey import HOUR_MS, Counts, Group
from kafkalog.spark.jobs.stats import _keys, stats
from kafkalog.spark.stats_report import KeyStats, StatsReport
from kafkalog.tools.directories import PartitionPath
from kafkalog.types import TopicPartition
from tests.spark.jobs import job
from tests.tools.test_verify_damage import LOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = 1_700_000_000_000 // HOUR_MS * HOUR_MS
RULE = {"message_timestamp_before_max_ms": 2**63 - 1}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two brokers' directories: `a` in both (the same records), `b` in one, compressed."""
    root = tmp_path / "tree"
    root.mkdir()
    for broker in ("1", "2"):
        with kafkalog.open(root / broker / "a-0", "a", **RULE) as log:
            log.append([(b"k%d" % (n % 40), b"v" * 50, T0 + n) for n in range(100)])
            log.append([(None, b"v" * 50, T0 + HOUR_MS + n) for n in range(50)])
    with kafkalog.open(root / "1" / "b-0", "a", compression_type="zstd", **RULE) as log:
        log.append([(b"only", b"x" * 1000, T0 + 10_000 * n) for n in range(10)])
    return root


def test_counts_rates_and_keys(spark: "SparkSession", tree: Path) -> None:
    report = stats(spark, [tree / "1", tree / "2"])
    assert report.ok and (report.partitions, report.segments) == (3, 3)
    topics = report.topics()
    size = (tree / "1" / "a-0" / LOG).stat().st_size
    assert (topics["a"].records, topics["a"].batches, topics["a"].bytes) == (300, 4, 2 * size)
    assert topics["a"].ratio is None and (topics["b"].ratio or 0) > 10
    assert report.keys is not None and report.keys["b"] == KeyStats(1, 0)
    assert abs(report.keys["a"].distinct - 40) <= 3 and report.keys["a"].null == 100
    assert [(topic, hour - T0) for topic, hour in report.hours()] == [("a", 0), ("a", HOUR_MS), ("b", 0)]
    assert report.hours()["a", T0].records == 200
    only = stats(spark, tree / "1", topics=["b"], keys=False)
    assert list(only.topics()) == ["b"] and only.keys is None and only.partitions == 1


def test_damage_is_a_problem_that_is_told(spark: "SparkSession", tree: Path) -> None:
    path = tree / "1" / "b-0" / LOG
    content = bytearray(path.read_bytes())
    path.write_bytes(content + (99).to_bytes(8, "big") + (1).to_bytes(4, "big") + bytes(content[12:]))
    report = stats(spark, tree / "1")
    assert not report.ok and report.topics()["b"].records == 10
    assert str(path) in report.problems[0] and f"position {len(content)}" in report.problems[0]


def test_keys_that_cannot_be_read_do_not_take_the_counts_away(spark: "SparkSession", tree: Path) -> None:
    path = tree / "1" / "b-0" / LOG
    content = bytearray(path.read_bytes())
    later = (10).to_bytes(8, "big") + bytes(content[8:])
    content[-1] ^= 1  # the header is sound, the checksum is not, and a sound batch follows
    path.write_bytes(bytes(content) + later)
    report = stats(spark, tree / "1")
    assert not report.ok and report.keys is None and report.topics()["b"].records == 20
    assert report.problems[0].startswith("keys were not counted: ") and "\n" not in report.problems[0]
    assert LOG in report.problems[0] and "position 0" in report.problems[0]


def test_a_read_that_cannot_be_planned_is_told_as_the_job_that_failed(tmp_path: Path) -> None:
    """Spark asks a source for its columns before anything is run."""
    errors = pytest.importorskip("pyspark.errors", reason="PySpark is not installed")

    class Refusing:
        @property
        def read(self) -> Any:
            raise errors.AnalysisException("no such source")

    found = [PartitionPath(TopicPartition("a", 0), str(tmp_path))]
    with pytest.raises(JobFailed, match="the records could not be read: no such source"):
        _keys(cast("SparkSession", Refusing()), found, None)


def test_bad_calls(spark: "SparkSession", tree: Path, tmp_path: Path) -> None:
    with pytest.raises(PartitionNotFound):
        stats(spark, tree / "nowhere")
    with pytest.raises(UnknownTopicOrPartition):
        stats(spark, tree / "1", topics=["nobody"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotAPartition, match="the directory has no partitions"):
        stats(spark, tmp_path / "empty")


def test_the_command(spark: "SparkSession", tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = job(capfd, "stats", tree / "1", tree / "2")
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].split()[:4] == ["TOPIC", "RECORDS", "BYTES", "RECORDS/S"] and lines[1].split()[:2] == ["a", "300"]
    assert lines[-1].startswith("2 topics, 3 partitions, 3 segments, ")
    rows = [json.loads(line) for line in job(capfd, "stats", "-J", "--no-keys", tree / "1").out.splitlines()]
    assert [one["type"] for one in rows] == ["hour", "hour", "hour", "topic", "topic", "stats"]
    assert rows[0]["hour"] == T0 and rows[3]["keys"] is None and rows[-1]["ok"] is True
    assert rows[4]["codecs"]["zstd"]["records"] == 10 and rows[4]["ratio"] > 10
    assert rows[4]["records_per_second"] is None  # one batch: no time passes
    assert rows[0]["records_per_second"] == 100 / 3600
    (tree / "1" / "b-0" / LOG).write_bytes(b"\0" * 11 + b"\x05" + b"\1" * 50)
    bad = job(capfd, "stats", "--no-keys", tree / "1")
    assert bad.status == 1 and "problem: " in bad.out
    assert job(capfd, "stats", tree / "nowhere").status == 1
    assert job(capfd, "stats").status == 2


def test_tables_are_for_people() -> None:
    groups = {
        Group("orders", 0, T0, "lz4"): Counts(2, 1_000_000, 5_000_000, 100, 250, T0, T0 + 1000),
        Group("orders", 1, -1, "none"): Counts(1, 1, 100),
    }
    report = StatsReport(groups, {"orders": KeyStats(12_345, 3)}, (), 2, 2)
    when = f"{datetime.fromtimestamp(T0 / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    lines = list(report.lines())
    assert lines[1].split() == [
        "orders", "1,000,001", "5,000,100", "1,000,001.0", "5,000,100.0", "2.50", "lz4+none", "~12,345", when,
        f"{datetime.fromtimestamp(T0 / 1000 + 1, UTC):%Y-%m-%dT%H:%M:%SZ}",
    ]  # fmt: skip
    assert [line.split()[1] for line in lines[3:6]] == ["HOUR", "-", when]
    assert lines[-1] == "1 topic, 2 partitions, 2 segments, 5,000,100 bytes, 1,000,001 records"
