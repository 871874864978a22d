"""The job `reindex`: the indexes that recovery would write, from logs alone; dry by default, safe in any failure."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog
from kafkalog.errors import DirectoryLocked, IllegalArgument, JobFailed, NotAPartition, PartitionNotFound
from kafkalog.manager.log_dir import is_locked
from kafkalog.spark.jobs import reindex as module
from kafkalog.spark.jobs.reindex import _plan, reindex, sweep
from kafkalog.tools.repair.directories import repair
from kafkalog.tools.repair.directory import DirectoryRepair, find_groups
from kafkalog.tools.repair.plan import RepairOptions
from kafkalog.tools.verify.directories import verify
from kafkalog.util.fileio import OS
from tests.raw_batches import batches
from tests.spark.jobs import job
from tests.tools.test_repair import MARKER, content
from tests.tools.test_repair import tree as tree_of
from tests.tools.test_verify_damage import ABORT, LOG, txn_batch, write_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONLY_INDEXES = {"all_indexes": True, "truncate_tail": False, "checkpoints": False}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two data directories: indexes that are gone, wrong and right, aborted transactions, a torn end, damage."""
    root = tmp_path / "tree"
    parts = batches(0, 40, 5)
    gone = write_log(root / "a" / "gone-0", parts)
    for suffix in (".index", ".timeindex"):
        gone.with_suffix(suffix).unlink()
    index = write_log(root / "a" / "wrong-0", parts).with_suffix(".index")
    index.write_bytes(bytes([*index.read_bytes()[:4], 0, 0, 0, 9, *index.read_bytes()[8:]]))
    first = root / "a" / "txn-0" / LOG
    first.parent.mkdir()
    first.write_bytes(txn_batch(0, 9) + txn_batch(1, 8) + txn_batch(2, 9, marker=ABORT))
    first.with_name("00000000000000000003.log").write_bytes(txn_batch(3, 8, marker=ABORT))
    torn = write_log(root / "b" / "torn-0", parts)
    torn.write_bytes(torn.read_bytes()[:-7])
    bad = bytearray(write_log(root / "b" / "middle-0", parts).read_bytes())
    bad[len(parts[0]) + 70] ^= 1
    (root / "b" / "middle-0" / LOG).write_bytes(bad)
    for name in ("a", "b"):
        (root / name / ".kafka_cleanshutdown").write_bytes(MARKER)
    return root


def report_lines(report: Any, root: Path) -> list[str]:
    """The report's lines without the last one; a job changes indexes alone, and says nothing of the next opening."""
    lines = list(replace(report, openings=()).lines())
    return [line.replace(str(root), "ROOT") for line in lines[:-1]]


def staged_indexes(root: Path) -> list[Path]:
    return list(root.rglob("*.repair*"))


def test_a_dry_run_says_what_repair_would_and_changes_nothing(spark: "SparkSession", tree: Path) -> None:
    before = tree_of(tree)
    report = reindex(spark, [tree / "a", tree / "b"])
    assert tree_of(tree) == before
    assert report == replace(repair([tree / "a", tree / "b"], **ONLY_INDEXES), openings=())
    assert len(report.changes) > 5 and report.left and not report.ok and not report.applied
    wrong = reindex(spark, tree / "a", only_wrong=True)
    assert wrong == replace(repair(tree / "a", truncate_tail=False, checkpoints=False), openings=())


def test_applied_the_files_are_those_that_repair_makes(spark: "SparkSession", tree: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(tree, other)
    before = content(tree)
    there = reindex(spark, [tree / "a", tree / "b"], apply=True, backup_dir=tmp_path / "kept")
    here = repair([other / "a", other / "b"], apply=True, backup_dir=tmp_path / "kept too", **ONLY_INDEXES)
    assert report_lines(there, tree) == report_lines(here, other)
    assert there.applied and len(there.changes) == len(here.changes)
    assert content(tree) == content(other) != before
    assert content(tmp_path / "kept").keys() == content(tmp_path / "kept too").keys()
    assert not staged_indexes(tree)
    assert (tree / "a" / ".kafka_cleanshutdown").read_bytes() == MARKER
    logs = {name: data for name, data in before.items() if name.endswith(".log")}
    assert {name: data for name, data in content(tree).items() if name.endswith(".log")} == logs
    assert verify(tree / "a").ok and not is_locked(str(tree / "a"), fs=OS)
    assert not reindex(spark, [tree / "a", tree / "b"]).changes


def test_a_directory_in_use_is_refused_before_anything_is_changed_anywhere(
    spark: "SparkSession", tree: Path
) -> None:
    with kafkalog.open(tree / "b" / "new-0", "a"):
        before = content(tree / "a")
        for apply in (False, True):
            with pytest.raises(DirectoryLocked, match=r"in use.*tree/b/\.lock"):
                reindex(spark, [tree / "a", tree / "b"], apply=apply)
        assert content(tree / "a") == before


def around(monkeypatch: pytest.MonkeyPatch, step: Callable[[Callable[[], Any]], Any]) -> None:
    """`step` is called in the place of the tasks, with what runs them."""
    real = module.run_tasks
    monkeypatch.setattr(module, "run_tasks", lambda *given: step(lambda: real(*given)))


def test_all_locks_are_held_while_tasks_run_and_nothing_is_in_place_yet(
    spark: "SparkSession", tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(tree)
    leftover = tree / "a" / "gone-0" / f"{0:020d}.index.repair-0123abcd-89ef0123"
    leftover.touch()

    def step(run: Callable[[], Any]) -> Any:
        assert not leftover.exists()
        assert is_locked(str(tree / "a"), fs=OS) and is_locked(str(tree / "b"), fs=OS)
        done = run()
        now = content(tree)
        assert {name: now[name] for name in before} == before
        aside = [name for name in now if ".repair-" in name]
        assert aside and now.keys() - before.keys() <= {*aside, "a/.lock", "b/.lock"}
        return done

    around(monkeypatch, step)
    assert reindex(spark, [tree / "a", tree / "b"], apply=True, backup_dir=tmp_path / "kept").changes
    assert not staged_indexes(tree)


def test_tasks_that_run_twice_change_nothing_more(
    spark: "SparkSession", tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = reindex(spark, tree / "a")
    around(monkeypatch, lambda run: (run(), run())[1])
    report = reindex(spark, tree / "a", apply=True, backup_dir=tmp_path / "kept")
    assert report.changes == expected.changes and not staged_indexes(tree) and verify(tree / "a").ok


def test_when_the_job_fails_nothing_was_changed_and_nothing_is_left(
    spark: "SparkSession", tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(tree)

    def step(run: Callable[[], Any]) -> Any:
        run()
        assert staged_indexes(tree)
        raise JobFailed("the cluster went away")

    around(monkeypatch, step)
    with pytest.raises(JobFailed):
        reindex(spark, tree / "a", apply=True, backup_dir=tmp_path / "kept")
    after = content(tree)
    assert {name: data for name, data in after.items() if name != "a/.lock"} == before
    assert not is_locked(str(tree / "a"), fs=OS) and not (tmp_path / "kept").exists()


def test_what_a_killed_job_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    leftover = tmp_path / f"{0:020d}.index.repair-0123abcd-89ef0123"
    kept = [tmp_path / f"{0:020d}.index", tmp_path / f"{0:020d}.index.repair", tmp_path / "notes.repair-me"]
    for path in (leftover, *kept):
        path.touch()
    sweep(str(tmp_path))
    assert not leftover.exists() and all(path.exists() for path in kept)
    sweep(str(tmp_path / "nowhere"))


def test_a_task_that_outlives_its_driver_leaves_alone_what_the_next_job_wrote(tree: Path) -> None:
    """The next job has the lock by then, and puts its own files into place at the end."""
    options = RepairOptions(True, False, True, False)
    (work,) = DirectoryRepair(
        str(tree / "a"), find_groups([str(tree / "a" / "gone-0")], OS)[str(tree / "a")], options, None, None, OS
    ).work()
    (mine,) = _plan([work], job="0123abcd")
    assert mine.changes and all(str(change.staged).find("-0123abcd-") > 0 for change in mine.changes)
    _plan([work], job="89abcdef")
    assert all(Path(str(change.staged)).exists() for change in mine.changes)


def test_bad_calls(spark: "SparkSession", tree: Path) -> None:
    with pytest.raises(PartitionNotFound):
        reindex(spark, tree / "nowhere")
    with pytest.raises(NotAPartition, match="with its partition"):
        reindex(spark, tree / "a" / "gone-0" / LOG)
    with pytest.raises(NotAPartition, match="no partition"):
        reindex(spark, tree)
    with pytest.raises(IllegalArgument, match="interval"):
        reindex(spark, tree / "a", index_interval_bytes=-1)
    with pytest.raises(IllegalArgument, match="inside the data directory"):
        reindex(spark, tree / "a", apply=True, backup_dir=tree / "a" / "kept")


def test_the_command(spark: "SparkSession", tree: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    dry = job(capfd, "reindex", tree / "a")
    assert dry.status == 1 and dry.err == "" and dry.out.endswith("nothing was changed: give --apply\n")
    lines = [json.loads(line) for line in job(capfd, "reindex", "-J", tree / "a").out.splitlines()]
    assert lines[0]["type"] == "change" and lines[-1]["type"] == "repair" and lines[-1]["applied"] is False
    done = job(capfd, "reindex", "--apply", "--backup-dir", tmp_path / "kept", tree / "a")
    assert done.status == 0 and "rebuilt" in done.out and done.out.count("\n") == dry.out.count("\n")
    again = job(capfd, "reindex", tree / "a")
    assert (again.status, again.out) == (0, "nothing to repair\n")
    assert job(capfd, "reindex", "-X", "index.interval.bytes=lots", tree / "a").status == 2
    assert job(capfd, "reindex", "-X", "segment.bytes=1", tree / "a").status == 2
    assert job(capfd, "reindex", tree / "nowhere").status == 1
    assert job(capfd, "reindex").status == 2
