"""The session of a job: its settings, the one that runs already, and what keeps Spark from starting."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import IllegalArgument, IllegalState, MissingRequirement
from kafkalog.spark.session import check_master, need_pyspark, settings_for, spark_session
from tests import commands
from tests.spark.conftest import why_not

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]", "local-cluster[2,1,1024]"])
def test_on_one_host_nothing_listens_to_the_outside(master: str) -> None:
    settings = settings_for(master, {})
    assert settings["spark.driver.bindAddress"] == "127.0.0.1" and settings["spark.ui.enabled"] == "false"


@pytest.mark.parametrize("master", [None, "spark://a:7077", "yarn", "k8s://a"])
def test_elsewhere_the_driver_is_to_be_reached(master: str | None) -> None:
    assert "spark.driver.host" not in settings_for(master, {}) and "spark.ui.enabled" not in settings_for(master, {})


def test_what_is_given_counts() -> None:
    assert settings_for("local", {"spark.ui.enabled": "true", "a": "b"})["spark.ui.enabled"] == "true"


def test_without_pyspark_one_line_tells_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingRequirement, match=r"pip install 'kafkalog\[spark\]'") as caught:
        need_pyspark()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("master", ["", " ", "local [2]"])
def test_what_is_no_master_is_refused(master: str) -> None:
    with pytest.raises(IllegalArgument, match="is not a Spark master"):
        check_master(master)


def test_a_spark_connect_server_is_told_apart() -> None:
    with pytest.raises(IllegalArgument, match="is a Spark Connect server"):
        check_master("sc://localhost")


def test_the_session_that_runs_is_taken_and_left_running(spark: "SparkSession") -> None:
    with spark_session() as taken, spark_session("local[2]") as again:
        assert taken is again is spark
    assert spark.range(3).count() == 3


def test_one_with_another_master_is_not_mistaken_for_it(spark: "SparkSession") -> None:
    with pytest.raises(IllegalState, match=r"this process runs a Spark session with the master local\[2\], not spark://a:1"):
        with spark_session("spark://a:1"):
            pass


def test_the_session_of_another_thread_is_the_one_that_runs(spark: "SparkSession") -> None:
    def count() -> int:
        with spark_session() as taken:
            assert taken.sparkContext is spark.sparkContext
            return taken.range(3).count()

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(count).result() == 3
    assert spark.range(3).count() == 3


KILLED = """
import os, signal
from functools import partial
from pyspark import SparkContext
from kafkalog.cli.spark_options import silence_connection
from kafkalog.errors import JobFailed
from kafkalog.spark.session import spark_session
from kafkalog.spark.tasks import run_tasks

def mine(*_): pass
signal.signal(signal.SIGINT, mine)
silence_connection()
for when in ("in a job", "between jobs"):
    try:
        with spark_session("local[1]") as spark:
            machine = SparkContext._gateway.proc
            if when == "in a job":
                run_tasks(spark, partial(os.kill, machine.pid), [signal.SIGKILL], "ends", print)
            print(spark.range(3).count())
            machine.kill()
            spark.sparkContext.defaultParallelism
    except JobFailed as error:
        print(error)
    assert machine.returncode == -signal.SIGKILL
    assert SparkContext._gateway is None and SparkContext._active_spark_context is None
    assert signal.getsignal(signal.SIGINT) is mine
"""


@pytest.mark.slow
@pytest.mark.spark
def test_a_virtual_machine_that_is_killed_is_told_and_the_next_session_is_a_new_one(tmp_path: Path) -> None:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    done = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, cwd=tmp_path, env=commands.environment()
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, count, second = [line for line in done.stdout.splitlines() if not line.startswith("JobProgress")]
    assert first.startswith("the job 'ends' failed: Spark's virtual machine ended") and "too little memory" in first
    assert count == "3" and second.startswith("the job cannot continue: Spark's virtual machine ended")
