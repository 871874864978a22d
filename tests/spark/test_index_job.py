"""The job `index` builds the key indexes that `build_key_index` builds, of whole trees."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kafkalog
from kafkalog.errors import IllegalArgument, PartitionNotFound, UnknownTopicOrPartition
from kafkalog.spark.jobs.index import index
from tests.spark.jobs import job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = [b"k%d" % n for n in range(8)]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two data directories with three partitions, each of three closed segments and an active one."""
    for name in ("a/t-0", "a/t-1", "b/u-0"):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with kafkalog.open(path, "a") as log:
            for part in range(3):
                log.append([(key, b"%d" % part) for key in KEYS[part:]])
                log.roll()
            log.append([(KEYS[3], b"last")])
    return tmp_path / "tree"


def test_look_ups_use_what_the_job_built(spark: "SparkSession", tree: Path, tmp_path: Path) -> None:
    before = sorted(tree.rglob("*"))
    report = index(spark, [tree / "a", tree / "b"], tmp_path / "store")
    assert report.ok and list(report.segments.values()) == [3, 3, 3] and len(report.indexes) == 9
    assert sum(info.records for _, info in report.indexes) == 3 * (8 + 7 + 6)
    assert sorted(tree.rglob("*")) == before
    for name in ("a/t-0", "a/t-1", "b/u-0"):
        with kafkalog.open(tree / name, key_index=tmp_path / "store") as log:
            assert log.key_index() == tuple(info for path, info in report.indexes if path == str(tree / name))
            assert log.get_many(KEYS) == [[one for one in log if one.key == key][-1] for key in KEYS]
            assert log._keys is not None
            assert [part.index is not None for part in log._keys.parts.current()] == [True] * 4
            assert len({part.secret for part in log._keys.parts.current()[:-1]}) == 1


def test_what_fits_is_kept_and_what_does_not_is_built(spark: "SparkSession", tree: Path, tmp_path: Path) -> None:
    index(spark, tree / "a", tmp_path / "store", topics=["t"])
    times = {file: file.stat().st_mtime_ns for file in (tmp_path / "store").rglob("*.keyindex")}
    assert len(times) == 6
    lost = min(times)
    lost.write_bytes(b"cut")
    with kafkalog.open(tree / "a" / "t-1", "a") as log:
        log.delete_before(8)
    assert len(index(spark, tree / "a", tmp_path / "store").indexes) == 5
    after = {file: file.stat().st_mtime_ns for file in (tmp_path / "store").rglob("*.keyindex")}
    assert len(after) == 5 and {file for file in after if after[file] != times[file]} == {lost}
    index(spark, tree / "a", tmp_path / "store", rebuild=True)
    assert all(file.stat().st_mtime_ns > time for file, time in after.items())


def test_a_damaged_segment_is_a_problem(spark: "SparkSession", tree: Path, tmp_path: Path) -> None:
    path = tree / "a" / "t-0" / f"{8:020}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    report = index(spark, [tree / "a", tree / "b"], tmp_path / "store")
    assert not report.ok and len(report.indexes) == 8 and str(path) in report.problems[0]


def test_wrong_places(spark: "SparkSession", tree: Path, tmp_path: Path) -> None:
    with pytest.raises(IllegalArgument, match="data directory"):
        index(spark, tree / "a", tree / "a" / "store")
    with pytest.raises(PartitionNotFound):
        index(spark, tree / "nowhere", tmp_path / "store")
    with pytest.raises(UnknownTopicOrPartition):
        index(spark, tree / "a", tmp_path / "store", topics=["nobody"])
    assert not (tmp_path / "store").exists()


def test_the_command(
    spark: "SparkSession", tree: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = job(capfd, "index", tree / "b", "--store", tmp_path / "store")
    assert done.status == 0 and "u-0: 3 segments, 21 records, " in done.out
    done = job(capfd, "index", tree / "a", tree / "b", "--store", tmp_path / "store", "-J")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line.get("indexes") for line in lines] == [3, 3, 3, 9] and lines[-1]["problems"] == []
    assert job(capfd, "index", tree).status == 2
