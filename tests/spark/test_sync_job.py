"""The job `sync`: the rows of `kafkalog table sync`, in files of tasks; each once, whatever fails or is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyiceberg", reason="the extra `lake` is not installed")
pytest.importorskip("deltalake", reason="the extra `lake` is not installed")

import pyarrow as pa

import kafkalog.spark.jobs.sync as job_module
from kafkalog.errors import CorruptRecord, IllegalArgument, JobFailed, PartitionNotFound
from kafkalog.lake.failures import TableChanged
from kafkalog.lake.sync import sync_topic
from kafkalog.spark.jobs.sync import sync
from kafkalog.values import Decoded
from tests.commands import ROOT, environment
from tests.lake.tables import FORMATS, Lake, query, write
from tests.spark.jobs import job
from tests.transactional import made

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTS = {0: 300, 1: 200, 2: 100}


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", request.param)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "data", COUNTS)
    return tmp_path / "data"


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task for each few batches, and a commit for each two tasks."""
    monkeypatch.setattr(job_module, "MIN_TASK_BYTES", 1 << 10)
    monkeypatch.setattr(job_module, "FILES_PER_COMMIT", 1)
    monkeypatch.setattr(job_module, "FILES_PER_TASK", 1)
    monkeypatch.setattr(job_module, "TASKS_A_CORE", 1)


def places(counts: dict[int, int] = COUNTS) -> list[tuple[int, int]]:
    return [(number, offset) for number, count in counts.items() for offset in range(count)]


def assert_no_other_files(lake: Lake) -> None:
    listed = {path.rpartition("/")[2] for path, _ in lake.files()}
    assert {one.name for one in lake.stored()} == listed


@pytest.mark.parametrize("partition_by", [(), ("day(timestamp)",)])
def test_rows_are_those_of_a_sync_without_spark(
    spark: SparkSession, data: Path, lake: Lake, tmp_path: Path, partition_by: tuple[str, ...], small_tasks: None
) -> None:
    plain = Lake(tmp_path / "plain", lake.format)
    given: dict[str, Any] = {"value": "json", "partition_by": partition_by, "target_file_bytes": 1 << 14}
    sync_topic(data, "orders", plain.target, **given)
    commits = sync(spark, data, "orders", lake.target, **given)
    assert sum(one.records for one in commits) == 600 and len(commits) > 1
    assert commits[-1].next_offsets == COUNTS and lake.snapshots() - plain.snapshots() == len(commits) - 1
    found = lake.read_files() if lake.format == "iceberg" else lake.read()
    wanted = plain.read_files() if lake.format == "iceberg" else plain.read()
    by = [("partition", "ascending"), ("offset", "ascending")]
    assert found.sort_by(by).equals(wanted.sort_by(by)) and lake.places() == places()
    assert query(lake.read(), "SELECT sum(value.id) FROM rows") == query(plain.read(), "SELECT sum(value.id) FROM rows")
    assert_no_other_files(lake)


def test_both_syncs_go_on_after_each_other(spark: SparkSession, data: Path, lake: Lake) -> None:
    sync(spark, data, "orders", lake.target)
    assert sync(spark, data, "orders", lake.target) == sync_topic(data, "orders", lake.target) == []
    write(data, {0: 5, 1: 0, 2: 5}, 300)
    assert [one.records for one in sync_topic(data, "orders", lake.target)] == [10]
    write(data, {0: 1, 1: 0, 2: 0}, 400)
    (commit,) = sync(spark, data, "orders", lake.target)
    assert commit.records == commit.files == 1 and lake.places() == places({0: 306, 1: 200, 2: 105})


class Failing:
    """A decoder whose task fails at the records of one partition, as by a fault of Python's own."""

    arrow_type = pa.binary()

    def decode(self, column: Any) -> Decoded:
        if len(column) == COUNTS[2]:
            raise RuntimeError("this task fails")
        return Decoded(column, None, 0)


def in_turn(work: Callable[[Callable[[], Any]], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a job run its tasks through `work`, which is given the function that runs them."""
    run = job_module.run_tasks
    monkeypatch.setattr(job_module, "run_tasks", lambda *given: work(lambda: run(*given)))


def test_a_damaged_batch_fails_the_job_and_leaves_nothing(
    spark: SparkSession, data: Path, lake: Lake, small_tasks: None
) -> None:
    write(data, {0: 0, 1: 10, 2: 0}, 200)
    segment = data / "orders-1" / f"{0:020}.log"
    content = bytearray(segment.read_bytes())
    content[100] ^= 1
    segment.write_bytes(content)
    with pytest.raises(CorruptRecord):
        sync(spark, data, "orders", lake.target, target_file_bytes=1 << 14)
    assert_no_other_files(lake)
    skipped: list[Any] = []
    sync(spark, data, "orders", lake.target, on_damage="skip", skipped=skipped, target_file_bytes=1 << 13)
    assert {one.path for one in skipped} == {str(segment)} and lake.places() == [
        place for place in places({**COUNTS, 1: 210}) if place[0] != 1 or place[1] >= 200
    ]


def test_a_task_that_spark_gives_up_leaves_nothing(spark: SparkSession, data: Path, lake: Lake) -> None:
    with pytest.raises(JobFailed):
        sync(spark, data, "orders", lake.target, value=Failing())
    assert lake.stored() == [] and lake.exists()
    sync(spark, data, "orders", lake.target)
    assert lake.places() == places()


def test_files_of_a_task_that_ran_twice_are_not_committed(
    spark: SparkSession, data: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = []

    def twice(run: Callable[[], Any]) -> Any:
        run()
        found = run()
        stored.append(len(lake.stored()))
        return found

    in_turn(twice, monkeypatch)
    (commit,) = sync(spark, data, "orders", lake.target)
    assert stored == [2 * commit.files] and lake.places() == places()
    assert_no_other_files(lake)


def test_another_sync_that_was_faster_stays_alone(
    spark: SparkSession, data: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(spark, data, "orders", lake.target)
    write(data, dict.fromkeys(COUNTS, 10), 300)

    def after(run: Callable[[], Any]) -> Any:
        found = run()
        sync_topic(data, "orders", lake.target)
        return found

    in_turn(after, monkeypatch)
    with pytest.raises(TableChanged):
        sync(spark, data, "orders", lake.target)
    assert lake.places() == places({number: count + 10 for number, count in COUNTS.items()})
    assert_no_other_files(lake)


@pytest.mark.crash
@pytest.mark.parametrize("is_committed", [False, True])
def test_a_driver_killed_before_and_after_its_commit(
    spark: SparkSession, data: Path, lake: Lake, is_committed: bool
) -> None:
    line = [sys.executable, "-m", "tests.spark.killed_sync", str(data), lake.target, str(int(is_committed))]
    done = subprocess.run(line, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(lake.stored()) == 1 and lake.snapshots() == is_committed
    commits = sync(spark, data, "orders", lake.target)
    assert len(commits) == (not is_committed) and lake.places() == places()
    assert_no_other_files(lake)


def test_a_stream_of_transactions_cut_between_tasks(
    spark: SparkSession, lake: Lake, tmp_path: Path, small_tasks: None
) -> None:
    partition = tmp_path / "data" / "orders-0"
    partition.mkdir(parents=True)
    kinds = ("data", "plain", "data", "abort", "data", "commit", "roll")
    log = made([(kinds[n % 7], n // 7 % 3, 4) for n in range(140)] + [("data", 9, 3), ("plain", 0, 3)])
    log.write(partition)
    commits = sync(spark, tmp_path / "data", "orders", lake.target, target_file_bytes=1 << 10)
    assert len(commits) > 1 and [offset for _, offset in lake.places()] == log.committed()


def test_the_command(
    spark: SparkSession, data: Path, lake: Lake, capfd: pytest.CaptureFixture[str]
) -> None:
    done = job(capfd, "sync", "-d", data, "-t", "orders", "-s", "value=json", lake.target)
    assert done.status == 0 and done.out.startswith("600 records in 1 file, ")
    assert query(lake.read(), "SELECT sum(value.id)::INT FROM rows") == [(sum(offset for _, offset in places()),)]
    done = job(capfd, "sync", "-d", data, "-t", "orders", "-s", "value=json", lake.target, "-J")
    assert done.status == 0 and done.out == "" and "has all records" in done.err


def test_what_a_task_cannot_be_given(spark: SparkSession, data: Path, lake: Lake, tmp_path: Path) -> None:
    class Local(Failing):
        def __init__(self) -> None:
            self.own = threading.Lock()

    with pytest.raises(IllegalArgument, match="sent to a task"):
        sync(spark, data, "orders", lake.target, value=Local())
    with pytest.raises(PartitionNotFound):
        sync(spark, tmp_path / "nowhere", "orders", lake.target)
    assert not lake.exists()
