"""The session of a job: its settings, the one that runs already, and what keeps Spark from starting."""

import sys
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import IllegalArgument, IllegalState, MissingRequirement
from kafkalog.spark.session import check_master, need_pyspark, settings_for, spark_session

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
    with pytest.raises(IllegalArgument, match="is no Spark master"):
        check_master(master)


def test_a_spark_connect_server_is_told_apart() -> None:
    with pytest.raises(IllegalArgument, match="is a Spark Connect server"):
        check_master("sc://localhost")


def test_the_session_that_runs_is_taken_and_left_running(spark: "SparkSession") -> None:
    with spark_session() as taken, spark_session("local[2]") as again:
        assert taken is again is spark
    assert spark.range(3).count() == 3


def test_one_with_another_master_is_not_mistaken_for_it(spark: "SparkSession") -> None:
    with pytest.raises(IllegalState, match=r"the master local\[2\] runs in this process, not one with spark://a:1"):
        with spark_session("spark://a:1"):
            pass
