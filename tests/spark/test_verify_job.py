"""The job `verify` says what `kafkalog verify` says, word for word, of sound trees and of damaged ones."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import IllegalArgument, NotAPartition, PartitionNotFound
from kafkalog.spark.jobs.verify import verify
from kafkalog.tools.verify.directories import verify as verify_here
from tests import commands
from tests.raw_batches import batches
from tests.spark.conftest import why_not
from tests.spark.jobs import job
from tests.tools.test_verify_damage import LOG, write_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = "00000000000000000050.log"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two data directories, five partitions, one of them with two segments."""
    for n in range(3):
        write_log(tmp_path / "a" / f"t-{n}", batches(0, 10, 5))
    for n in range(2):
        write_log(tmp_path / "b" / f"u-{n}", batches(0, 4, 5))
    write_log(tmp_path / "a" / "t-1", batches(50, 8, 5), name=SECOND)
    return tmp_path


def spoil(path: Path, position: int = 70) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def damage(tree: Path) -> None:
    """A batch whose checksum is wrong, a missing index, a torn end, bytes that are no checkpoint."""
    spoil(tree / "a" / "t-1" / LOG)
    (tree / "a" / "t-0" / LOG).with_suffix(".index").unlink()
    with open(tree / "b" / "u-1" / LOG, "ab") as file:
        file.write(b"half a batch")
    (tree / "b" / "recovery-point-offset-checkpoint").write_text("nonsense\n")


@pytest.mark.parametrize("options", [{}, {"deep": True}, {"indexes_only": True}], ids=str)
def test_the_report_is_that_of_one_machine(spark: "SparkSession", tree: Path, options: dict[str, bool]) -> None:
    paths = [tree / "a", tree / "b"]
    assert verify(spark, paths, **options) == verify_here(paths, **options)
    assert verify(spark, paths, **options).ok
    damage(tree)
    there, here = verify(spark, paths, **options), verify_here(paths, **options)
    assert list(there.lines()) == list(here.lines()) and there == here and not there.ok


def test_partitions_and_files_may_be_given_too(spark: "SparkSession", tree: Path) -> None:
    damage(tree)
    paths = [tree / "a" / "t-1", tree / "a" / "t-0" / LOG, tree / "b"]
    assert verify(spark, paths) == verify_here(paths)
    assert verify(spark, tree / "a" / "t-2") == verify_here(tree / "a" / "t-2")


def test_paths_are_told_as_they_were_given(
    spark: "SparkSession", tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(tree)
    monkeypatch.chdir(tree)
    assert verify(spark, ["a", "b/"]) == verify_here(["a", "b/"])
    monkeypatch.chdir("a")
    assert verify(spark, ".") == verify_here(".")


def test_the_golden_style_of_bad_paths(spark: "SparkSession", tree: Path) -> None:
    with pytest.raises(PartitionNotFound, match="no such file or directory"):
        verify(spark, tree / "nowhere")
    (tree / "empty").mkdir()
    with pytest.raises(NotAPartition, match="no partition in the directory"):
        verify(spark, tree / "empty")
    with pytest.raises(IllegalArgument, match="omit one of them"):
        verify(spark, tree / "a", deep=True, indexes_only=True)


def test_the_command_prints_the_same_and_gives_the_same_status(
    spark: "SparkSession", tree: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sound = job(capfd, "verify", tree / "a", tree / "b")
    assert (sound.status, sound.err) == (0, "")
    assert sound.out == commands.ok("verify", tree / "a", tree / "b").decode()
    damage(tree)
    for flags in ([], ["-J"], ["-q"], ["--deep"], ["--indexes"]):
        there, here = job(capfd, "verify", *flags, tree / "a"), commands.kafkalog("verify", *flags, tree / "a")
        assert (there.status, there.out) == (here.returncode, here.stdout.decode()) and there.err == ""
    assert json.loads(job(capfd, "verify", "-J", tree / "a").out.splitlines()[-1])["damage"] == 1


def test_wrong_usage_and_absent_paths_need_no_spark(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkalog.spark.session.spark_session", None)
    assert job(capfd, "verify").status == 2
    assert job(capfd, "verify", "--deep", "--indexes", tmp_path).status == 2
    assert job(capfd, "verify", "--master", "", tmp_path).status == 2
    assert job(capfd, "verify", "--conf", "nothing", tmp_path).status == 2
    absent = job(capfd, "verify", tmp_path / "nowhere")
    assert absent.status == 1 and "no such file or directory" in absent.err


@pytest.mark.slow
@pytest.mark.spark
def test_both_commands_from_a_shell(tree: Path) -> None:
    """A virtual machine of its own: what Spark says about itself is not in the output."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    damage(tree)
    here = commands.kafkalog("verify", tree / "a")
    there = commands.kafkalog("verify", "--spark", "local[2]", tree / "a", JAVA_HOME=os.environ.get("JAVA_HOME", ""))
    assert (there.returncode, there.stdout, there.stderr) == (here.returncode, here.stdout, b"")
