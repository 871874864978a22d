"""The job `retain`: what `kafkalog retain` takes, over many directories; dry by default."""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog
from kafkalog.errors import DirectoryLocked, PartitionNotFound, StorageError, UnknownTopicOrPartition
from kafkalog.spark.jobs import retain as module
from kafkalog.spark.jobs.retain import retain
from kafkalog.tools.retain.directories import retain as retain_here
from tests import commands
from tests.spark.jobs import job
from tests.tools.test_retain import DAY, NOW, content, make

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two data directories with old segments, and an unknown topic."""
    root = tmp_path / "tree"
    root.mkdir()
    make(root / "a" / "time-0", retention_ms=2 * DAY)
    make(root / "a" / "rest-0")
    make(root / "b" / "size-0", retention_bytes=140, retention_ms=-1)
    make(root / "b" / "time-1", retention_ms=2 * DAY)
    make(root / "c" / "lost-0")
    (root / "c" / "kafkalog.topics.json").unlink()
    return root


def names(report: Any, root: Path) -> list[str]:
    return [line.replace(str(root), "ROOT") for line in report.lines()]


def test_a_dry_run_says_what_one_machine_would_and_changes_nothing(spark: "SparkSession", tree: Path) -> None:
    paths = [tree / name for name in "abc"]
    before = content(tree)
    report = retain(spark, paths, now_ms=NOW + 1)
    assert report == retain_here(paths, now_ms=NOW + 1)
    assert len(report.due) == 6 and len(report.kept) == 1 and content(tree) == before
    only = retain(spark, paths, topics=["size"], settings={"retention.bytes": "0"}, now_ms=NOW)
    assert only == retain_here(paths, topics=["size"], settings={"retention.bytes": "0"}, now_ms=NOW)


def test_applied_the_same_goes_and_the_rest_stays_sound(spark: "SparkSession", tree: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(tree, other)
    there = retain(spark, [tree / name for name in "abc"], apply=True, now_ms=NOW + 1)
    here = retain_here([other / name for name in "abc"], apply=True, now_ms=NOW + 1)
    assert names(there, tree) == names(here, other) and there.applied and len(there.due) == 6
    assert content(tree).keys() == content(other).keys()
    assert kafkalog.verify(tree / "a").ok and kafkalog.verify(tree / "b").ok
    assert not retain(spark, [tree / name for name in "abc"], apply=True, now_ms=NOW + 1).due


def test_a_directory_in_use_is_refused_before_anything_is_deleted(spark: "SparkSession", tree: Path) -> None:
    with kafkalog.open(tree / "b" / "new-0", "a"):
        before = content(tree / "a")
        assert retain(spark, [tree / "a", tree / "b"], now_ms=NOW + 1).due
        with pytest.raises(DirectoryLocked, match=r"nothing was deleted anywhere .*tree/b/\.lock"):
            retain(spark, [tree / "a", tree / "b"], apply=True, now_ms=NOW + 1)
        assert content(tree / "a") == before


def test_what_fails_in_one_directory_does_not_keep_the_others(
    spark: "SparkSession", tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the delete somebody else takes directory `a`."""
    real = module.run_tasks

    def steps(session: Any, work: Any, items: Any, what: str, tell: Any) -> Any:
        if what != "retain: delete":
            return real(session, work, items, what, tell)
        with kafkalog.open(tree / "a" / "new-0", "a"):
            return real(session, work, items, what, tell)

    monkeypatch.setattr(module, "run_tasks", steps)
    with pytest.raises(DirectoryLocked):
        retain(spark, [tree / "a", tree / "b"], apply=True, now_ms=NOW + 1)
    monkeypatch.undo()
    left = retain(spark, [tree / "a", tree / "b"], now_ms=NOW + 1)
    assert {one.topic for one in left.due} == {"time"} and {one.partition for one in left.due} == {0}


def test_a_task_that_is_lost_after_its_work_loses_nothing_of_the_report(
    spark: "SparkSession", tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module.run_tasks

    def twice(session: Any, work: Any, items: Any, what: str, tell: Any) -> Any:
        if what == "retain: delete":
            real(session, work, items, what, tell)
        return real(session, work, items, what, tell)

    expected = retain(spark, [tree / "a", tree / "b"], now_ms=NOW + 1)
    monkeypatch.setattr(module, "run_tasks", twice)
    assert retain(spark, [tree / "a", tree / "b"], apply=True, now_ms=NOW + 1).due == expected.due


def test_bad_calls(spark: "SparkSession", tree: Path) -> None:
    with pytest.raises(PartitionNotFound):
        retain(spark, tree / "nowhere")
    with pytest.raises(UnknownTopicOrPartition):
        retain(spark, tree / "a", topics=["nobody"])
    with pytest.raises((PartitionNotFound, StorageError)):
        retain(spark, os.devnull)


def test_the_command_prints_the_same(spark: "SparkSession", tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    given = ("--now", str(NOW + 1), tree / "a", tree / "b", tree / "c")
    for flags in ([], ["-J"], ["-t", "time"], ["--retention-ms", "-1"], ["-X", "log.retention.hours=1"]):
        there = job(capfd, "retain", *flags, *given)
        assert there == (0, commands.ok("retain", *flags, *given).decode(), "")
    done = job(capfd, "retain", "--apply", *given)
    assert done.status == 0 and done.out.endswith("deleted\n")
    assert job(capfd, "retain", "--now", "yesterday", tree / "a").status == 2
    assert job(capfd, "retain", tree / "nowhere").status == 1
