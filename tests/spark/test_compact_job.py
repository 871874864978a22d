"""The job `compact`: what `kafkalog compact` cleans, over many directories; dry by default."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord, DirectoryLocked, PartitionNotFound, UnknownTopicOrPartition
from kafkalog.spark.jobs import compact as module
from kafkalog.spark.jobs.compact import compact
from kafkalog.tools.compact.directories import compact as compact_here
from tests import commands
from tests.spark.compacted import make_tree
from tests.spark.jobs import job
from tests.tools.test_compact import NOW, records
from tests.tools.test_retain import content

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Three data directories with compacted topics, some partitions clean, one topic that is not compacted."""
    return make_tree(tmp_path / "tree")


def names(report: Any, root: Path) -> list[str]:
    return [line.replace(str(root), "ROOT") for line in report.lines()]


def test_a_dry_run_says_what_one_machine_would_and_changes_nothing(spark: "SparkSession", tree: Path) -> None:
    paths = [tree / name for name in "abc"]
    before = content(tree)
    report = compact(spark, paths, now_ms=NOW)
    assert report == compact_here(paths, now_ms=NOW)
    assert len(report.cleaned) == 4 and len(report.kept) == 1 and content(tree) == before
    given: dict[str, Any] = {"topics": ["t"], "settings": {"min.compaction.lag.ms": "20"}, "map_bytes": 24 * 6}
    assert compact(spark, paths, now_ms=NOW + 30, **given) == compact_here(paths, now_ms=NOW + 30, **given)


def test_applied_the_same_goes_and_the_rest_stays_sound(spark: "SparkSession", tree: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(tree, other)
    there = compact(spark, [tree / name for name in "abc"], apply=True, now_ms=NOW)
    here = compact_here([other / name for name in "abc"], apply=True, now_ms=NOW)
    assert names(there, tree) == names(here, other) and there.applied and len(there.cleaned) == 4
    logs = [{name: data for name, data in content(one).items() if name.endswith(".log")} for one in (tree, other)]
    assert logs[0] == logs[1]
    assert all(kafkalog.verify(tree / name, deep=True).ok for name in "abc")
    assert not compact(spark, [tree / name for name in "abc"], apply=True, now_ms=NOW).cleaned


def test_a_directory_in_use_is_refused_before_anything_is_cleaned(spark: "SparkSession", tree: Path) -> None:
    with kafkalog.open(tree / "b" / "new-0", "a"):
        before = content(tree / "a")
        assert len(compact(spark, [tree / "a", tree / "b"], now_ms=NOW).cleaned) == 4
        with pytest.raises(DirectoryLocked, match=r"nothing was cleaned anywhere .*tree/b/\.lock"):
            compact(spark, [tree / "a", tree / "b"], apply=True, now_ms=NOW)
        assert content(tree / "a") == before


def test_what_fails_in_one_partition_does_not_keep_the_others(spark: "SparkSession", tree: Path) -> None:
    """CLN-28, CLN-39: the damaged one is as it was, the error names its file."""
    path = tree / "a" / "t-1" / f"{2:020d}.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CorruptRecord, match=f"{2:020d}.log"):
        compact(spark, [tree / "a", tree / "b"], now_ms=NOW)
    path.write_bytes(whole)
    real = module.run_tasks

    def steps(session: Any, work: Any, items: Any, what: str, tell: Any) -> Any:
        if what == "compact: clean":
            path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        return real(session, work, items, what, tell)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "run_tasks", steps)
        with pytest.raises(CorruptRecord, match=f"{2:020d}.log"):
            compact(spark, [tree / "a", tree / "b"], apply=True, now_ms=NOW)
    assert path.read_bytes() != whole
    path.write_bytes(whole)
    left = compact(spark, [tree / "a", tree / "b"], now_ms=NOW)
    assert [(one.topic, one.partition) for one in left.cleaned] == [("t", 1)]


def test_a_task_that_is_lost_after_its_work_loses_nothing_of_the_report(
    spark: "SparkSession", tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module.run_tasks

    def twice(session: Any, work: Any, items: Any, what: str, tell: Any) -> Any:
        if what == "compact: clean":
            real(session, work, items, what, tell)
        return real(session, work, items, what, tell)

    expected = compact(spark, [tree / "a", tree / "b"], now_ms=NOW)
    monkeypatch.setattr(module, "run_tasks", twice)
    assert compact(spark, [tree / "a", tree / "b"], apply=True, now_ms=NOW).cleaned == expected.cleaned
    assert records(tree / "a" / "t-0") == [(1, b"b", b"1"), (2, b"a", b"2")]


def test_bad_calls(spark: "SparkSession", tree: Path) -> None:
    with pytest.raises(PartitionNotFound):
        compact(spark, tree / "nowhere")
    with pytest.raises(UnknownTopicOrPartition):
        compact(spark, tree / "a", topics=["nobody"])


def test_the_command_prints_the_same(spark: "SparkSession", tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    given = ("--now", str(NOW), tree / "a", tree / "b", tree / "c")
    for flags in ([], ["-J"], ["-t", "t"], ["--from-start"], ["--cleanup-policy", "compact", "--map-bytes", "480"]):
        there = job(capfd, "compact", *flags, *given)
        assert there == (0, commands.ok("compact", *flags, *given).decode(), "")
    done = job(capfd, "compact", "--apply", *given)
    assert done.status == 0 and done.out.endswith("removed\n")
    assert job(capfd, "compact", "--now", "yesterday", tree / "a").status == 2
    assert job(capfd, "compact", tree / "nowhere").status == 1
    assert job(capfd, "compact").status == 2
