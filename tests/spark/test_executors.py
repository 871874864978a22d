"""Probes of executors and their verdicts, and the line of Spark's long errors that is reported."""

import ast
import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

import pytest

from kafkalog import __version__
from kafkalog.errors import JobFailed, MissingRequirement, PartitionNotFound
from kafkalog.spark.executors import Probed, check_answers, check_executors, probe
from kafkalog.spark.failures import failed, last_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRACE = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 4222, in process
    serializer.dump_stream(out_iter, outfile)
             ^^^^^^^^^^^
ValueError: boom: twice
 SQLSTATE: 38000
	at org.apache.spark.Somewhere(Somewhere.scala:1)
"""


def test_a_probe_says_who_it_is_and_what_it_misses(tmp_path: object) -> None:
    (said,) = probe([str(tmp_path), f"{tmp_path}/nowhere"])([0])
    one = Probed(*said)
    assert one.version == __version__ and one.import_error == "" and one.missing == (f"{tmp_path}/nowhere",)


def test_a_probe_runs_where_there_is_no_kafkalog() -> None:
    """It travels by value: an executor without the package could not find a function of its modules."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    code = (
        "import sys; sys.modules['kafkalog'] = None; import pyspark.cloudpickle as pickle;"
        "print(list(pickle.loads(sys.stdin.buffer.read())([0])))"
    )
    travelling = cloudpickle.dumps(probe([]))
    done = subprocess.run([sys.executable, "-c", code], input=travelling, capture_output=True)
    assert done.returncode == 0, done.stderr
    (said,) = ast.literal_eval(done.stdout.decode())
    assert said[1] is None and "kafkalog" in said[2]
    with pytest.raises(MissingRequirement, match="cannot import kafkalog"):
        check_answers([Probed(*said)], "driver")


def test_executors_that_are_ready_pass() -> None:
    check_answers([Probed("a", __version__, "", ())] * 2, "driver")
    check_answers([], "driver")


def test_one_without_the_package_is_told_how_to_get_it() -> None:
    with pytest.raises(MissingRequirement) as caught:
        check_answers([Probed("a", __version__, "", ()), Probed("b", None, "No module named 'kafkalog'", ())], "d")
    said = str(caught.value)
    assert "executor on b cannot import kafkalog (No module named 'kafkalog')" in said
    assert f"kafkalog[spark]=={__version__}" in said and "spark.archives" in said and "\n" not in said


def test_another_version_is_refused() -> None:
    with pytest.raises(MissingRequirement, match=r"executor on b has kafkalog 0\.0\.9, but the driver on d has"):
        check_answers([Probed("b", "0.0.9", "", ())], "d")


def test_one_that_does_not_see_the_files_is_told() -> None:
    with pytest.raises(PartitionNotFound, match=r"executor on b cannot see .*\(file /mnt/x\).*every node mounts"):
        check_answers([Probed("b", __version__, "", ("/mnt/x",))], "d")


def test_the_line_of_an_error_that_names_it() -> None:
    assert last_line(TRACE) == "ValueError: boom: twice"
    assert last_line("Job aborted due to stage failure: lost\nDriver stacktrace:\n") == (
        "Job aborted due to stage failure: lost"
    )
    planning = "[PYTHON_DATA_SOURCE_ERROR] Failed to plan: Traceback (most recent call last):\n  File \"x\", line 1\n"
    assert last_line(f"{planning}kafkalog.errors.CorruptRecord: a: b (file c)\n") == "CorruptRecord: a: b (file c)"
    assert last_line("") == "no reason was given"


def refuse_connection(*_: object) -> Any:
    raise ConnectionRefusedError(111, "Connection refused")


def test_a_lost_connection_is_the_end_of_the_virtual_machine() -> None:
    protocol = pytest.importorskip("py4j.protocol", reason="PySpark is not installed")
    while_it_waited = "An error occurred while calling o40.collect"
    for error in (
        ConnectionRefusedError(111, "Connection refused"),
        protocol.Py4JNetworkError("Answer is empty"),
        protocol.Py4JError(while_it_waited),
    ):
        raised = failed(error, "the job 'x' failed")
        assert isinstance(raised, JobFailed)
        assert str(raised).startswith("the job 'x' failed: Spark's virtual machine ended. Hint: it may have had")
    traced = failed(protocol.Py4JError(f"{while_it_waited}. Trace:\npy4j.Py4JException: no such method\n"), "it failed")
    assert isinstance(traced, JobFailed) and "virtual machine ended" not in str(traced)


def test_what_java_can_no_longer_say_is_not_asked_for_in_vain() -> None:
    protocol = pytest.importorskip("py4j.protocol", reason="PySpark is not installed")

    class Raised(protocol.Py4JJavaError):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.java_exception = type("Throwable", (), {"getMessage": refuse_connection})()

        __str__ = refuse_connection

    raised = failed(Raised(), "it failed")
    assert isinstance(raised, JobFailed) and str(raised).startswith("it failed: Spark's virtual machine ended")


def test_an_error_of_nobody_is_left_as_it_is() -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    for error in (ZeroDivisionError("1/0"), FileNotFoundError(2, "no such file")):
        assert failed(error, "it failed") is error


def test_probes_without_a_virtual_machine_fail_as_a_job() -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    context = type("Context", (), {"defaultParallelism": 2, "setJobDescription": refuse_connection})()
    with pytest.raises(JobFailed, match="the executors cannot run a task: Spark's virtual machine ended"):
        check_executors(cast("SparkSession", type("Session", (), {"sparkContext": context})()))
