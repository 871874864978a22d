"""Spark session for a job: the running one, that of spark-submit, or a new one with suitable settings."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from subprocess import TimeoutExpired
from typing import IO, TYPE_CHECKING, Final

from kafkalog.errors import IllegalArgument, IllegalState, JobFailed, KafkalogError, MissingPackage
from kafkalog.spark.failures import failed, has_ended, is_of_spark, java_message
from kafkalog.spark.java import find_java
from kafkalog.util.interrupts import deferred_interrupts

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
SETTINGS: Final = {
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
}
"""Default settings of a new session."""
SETTINGS_ON_ONE_HOST: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""Additional settings if all of Spark runs on this host (local, local-cluster): it accepts no outside connections."""
_ONE_HOST: Final = re.compile(r"local(-cluster)?(\[.*\])?")
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
STOP_WAIT_S: Final = 30.0
"""Seconds that a virtual machine may take to end."""
EXIT_WAIT_S: Final = 2.0
"""Seconds after its last output within which a killed virtual machine is found to be gone."""
_REASON: Final = re.compile(r"^(?:Exception in |Error: |Caused by: |[\w.]+(?:Exception|Error): ).*$", re.MULTILINE)
"""Lines of a virtual machine's output that name an error; the last one is the deepest cause."""
_MAX_OUTPUT_BYTES: Final = 1 << 20


def need_pyspark() -> None:
    """Raise MissingPackage if the extra is not installed."""
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if find_spec(name) is None]
    if missing:
        raise MissingPackage(
            f"Spark jobs need {', '.join(missing)}, not installed here", hint="pip install 'kafkalog[spark]'"
        )


def settings_for(master: str | None, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a new session: the defaults for this master, overridden by `conf`."""
    return {**SETTINGS, **(SETTINGS_ON_ONE_HOST if is_on_one_host(master) else {}), **conf}


def is_on_one_host(master: str | None) -> bool:
    """Return True for a master whose executors all run on this host."""
    return master is not None and _ONE_HOST.fullmatch(master) is not None


@contextmanager
def spark_session(
    master: str | None = None, conf: Mapping[str, str] | None = None, *, name: str = "kafkalog", verbose: bool = False
) -> Iterator[SparkSession]:
    """Yield the session to work with; stop it at the end if it was created here.

    A session that runs in this process is used as it is. Under spark-submit the master is the one given there;
    otherwise it is `master`, by default all cores of this machine. The stderr of Spark's virtual machine is displayed
    if `verbose`; otherwise its error is reported if it cannot start.

    Raises MissingRequirement without PySpark or Java 17, IllegalState if a session with another master is running,
    JobFailed if Spark cannot start (such as for an unknown master) or its virtual machine ends while it is needed.
    """
    need_pyspark()
    running = _running(master)
    if running is not None:
        yield running
        return
    chosen = master if master is not None or _SUBMITTED in os.environ else LOCAL
    handler = signal.getsignal(signal.SIGINT)
    with tempfile.TemporaryFile() as output:
        spark, gateway = _start(chosen, dict(conf or {}), name, None if verbose else output)
    try:
        yield spark
    except Exception as error:
        if has_ended(error) and _has_exited(gateway):
            raise failed(error, "the job cannot continue") from error
        raise
    finally:
        try:
            _stop(spark)
        finally:
            _end(gateway)
            if handler is not None and signal.getsignal(signal.SIGINT) is not handler:
                signal.signal(signal.SIGINT, handler)


def _running(master: str | None) -> SparkSession | None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context
    if context is None:
        return None
    try:
        running = SparkSession.getActiveSession() or SparkSession(context)  # another thread's is the process's, too
    except Exception as error:
        raise failed(error, "the Spark session of this process cannot be used") from error
    running_master: str = running.sparkContext.master
    if master is not None and master != running_master:
        raise IllegalState(
            f"this process runs a Spark session with the master {running_master}, not {master}",
            hint="omit the master, or stop that session first",
        )
    return running


def _start(
    master: str | None, conf: dict[str, str], name: str, output: IO[bytes] | None
) -> tuple[SparkSession, JavaGateway | None]:
    """Return a new session and the virtual machine started for it; None if there was one already."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    settings = settings_for(master, conf)
    spark_conf = SparkConf()
    for key, value in settings.items():
        spark_conf.set(key, value)
    if master is not None:
        spark_conf.setMaster(master)
    if _SUBMITTED not in os.environ or not spark_conf.contains("spark.app.name"):
        spark_conf.setAppName(name)
    gateway = None
    try:
        if _SUBMITTED not in os.environ and SparkContext._gateway is None:
            with deferred_interrupts(), deferred_interrupts(signal.SIGTERM):  # else no one could end it
                gateway = _launch(spark_conf, master, output)
        return SparkSession(SparkContext(conf=spark_conf, gateway=gateway)), gateway
    except BaseException as error:
        words = _describe_error(error, output) if isinstance(error, Exception) else ""
        _end(gateway)
        if isinstance(error, KafkalogError) or not (isinstance(error, OSError) or is_of_spark(error)):
            raise
        raise JobFailed(f"Spark could not start: {words}", hint=_hint(master)) from error


def _launch(conf: SparkConf, master: str | None, output: IO[bytes] | None) -> JavaGateway:
    """Start a virtual machine for this process on a recent enough Java, with its stderr written to `output`."""
    from pyspark.java_gateway import launch_gateway

    os.environ["JAVA_HOME"] = find_java().home
    if is_on_one_host(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return launch_gateway(conf, {} if output is None else {"stderr": output})


def _stop(spark: SparkSession) -> None:
    """Stop a session; one whose virtual machine is gone is discarded, so that a later session can be created."""
    from pyspark.sql import SparkSession

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM", RuntimeWarning)
        try:
            spark.stop()
        except Exception:  # the result of the work is reported, not this failure to stop
            with suppress(Exception):
                spark.sparkContext.stop()  # Java's side is already gone: the remainder is Python's
            SparkSession._instantiatedSession = SparkSession._activeSession = None


def _has_exited(gateway: JavaGateway | None) -> bool:
    """Return True if a virtual machine that was started here has ended."""
    if gateway is None:
        return False
    try:
        gateway.proc.wait(EXIT_WAIT_S)
    except TimeoutExpired:
        return False
    return True


def _end(gateway: JavaGateway | None) -> None:
    """End a virtual machine that was started here; a later session gets a new one."""
    from pyspark import SparkContext

    if gateway is None:
        return
    try:
        with suppress(Exception):  # it may be gone already
            gateway.shutdown()
        gateway.proc.stdin.close()  # the virtual machine ends with its input
        gateway.proc.wait(STOP_WAIT_S)
    except TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    finally:
        SparkContext._gateway = SparkContext._jvm = None


def _describe_error(error: Exception, output: IO[bytes] | None) -> str:
    """Describe an error in one line: the deepest cause that Java names, else the last error in the output."""
    text = java_message(error)
    if text is not None:
        return " ".join(text.split())
    text = " ".join(str(error).split())
    if output is not None:
        output.seek(0, os.SEEK_END)
        output.seek(max(0, output.tell() - _MAX_OUTPUT_BYTES))
        reasons = _REASON.findall(output.read().decode("utf-8", "replace"))
        text = "; ".join([text, *(" ".join(reason.split()) for reason in reasons[-1:])])
    return text


def _hint(master: str | None) -> str:
    if master is None or is_on_one_host(master):
        return "check the settings given with --conf, and that this host has enough memory for spark.driver.memory"
    return f"check that {master} is a Spark master that this host can reach, and the settings given with --conf"


def check_master(master: str | None) -> None:
    """Raise IllegalArgument for text that is not a master's name, and for a Spark Connect server."""
    if master is None:
        return
    if master.startswith("sc://"):
        raise IllegalArgument(
            f"{master} is a Spark Connect server, which runs queries but no jobs",
            hint="give the cluster's master; `format(\"kafkalog\")` works through Spark Connect, too",
        )
    if not master.strip() or any(char.isspace() for char in master):
        raise IllegalArgument(f"{master!r} is not a Spark master", hint="local[*], spark://host:7077, yarn or k8s://...")
