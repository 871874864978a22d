"""Work as tasks of a job: results in order, kafkalog's errors as values, and progress."""

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import CorruptRecord, JobFailed
from kafkalog.spark.progress import JobProgress
from kafkalog.spark.tasks import Raised, results, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 60.0


def half(item: int) -> int:
    if item % 2:
        raise CorruptRecord(f"{item} is odd", path="/data/t-0", position=item)
    return item // 2


def boom(item: int) -> int:
    raise ZeroDivisionError("nobody foresaw this")


def waiting(item: int, *, sign: Path) -> bool:
    """All but the first task go on when somebody has heard of that one."""
    end = time.monotonic() + PATIENCE_S
    while item and not sign.exists() and time.monotonic() < end:
        time.sleep(0.02)
    return item == 0 or sign.exists()


def test_results_come_in_the_order_of_the_items(spark: "SparkSession") -> None:
    assert run_tasks(spark, half, [8, 2, 6, 4, 0], "halves") == [4, 1, 3, 2, 0]
    assert run_tasks(spark, half, [], "nothing") == []


def test_an_error_of_ours_keeps_its_type_and_place_and_stops_no_other_task(spark: "SparkSession") -> None:
    done = run_tasks(spark, half, [2, 3, 4], "halves")
    assert done[::2] == [1, 2] and isinstance(done[1], Raised)
    with pytest.raises(CorruptRecord, match="3 is odd") as caught:
        results(done)
    assert (caught.value.path, caught.value.position) == ("/data/t-0", 3)


def test_any_other_error_is_told_in_a_line(spark: "SparkSession") -> None:
    with pytest.raises(JobFailed, match="the job 'booms' failed: ZeroDivisionError: nobody foresaw this") as caught:
        run_tasks(spark, boom, [1], "booms")
    assert "\n" not in str(caught.value)
    assert spark.range(3).count() == 3


def test_how_far_it_is_is_told_while_it_runs(spark: "SparkSession", tmp_path: Path) -> None:
    heard: list[JobProgress] = []

    def tell(progress: JobProgress) -> None:
        heard.append(progress)
        if progress.done:
            (tmp_path / "sign").touch()

    assert all(run_tasks(spark, partial(waiting, sign=tmp_path / "sign"), [0, 1, 2], "waits", tell))
    assert [one.done for one in heard] == sorted(one.done for one in heard)
    assert {one.total for one in heard} == {3} and heard[-1] == (3, 3)


def test_what_a_session_is_set_to_is_as_it_was_afterwards(spark: "SparkSession") -> None:
    context = spark.sparkContext
    context.setJobGroup("mine", "my work")
    run_tasks(spark, half, [2], "halves")
    assert context.getLocalProperty("spark.jobGroup.id") == "mine"
    assert context.getLocalProperty("spark.job.description") == "my work"
    context.setLocalProperty("spark.jobGroup.id", None)
    context.setLocalProperty("spark.job.description", None)
