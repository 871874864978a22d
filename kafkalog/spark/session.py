"""A Spark session for a job: the one that runs already, that of spark-submit, or a new one that suits the work."""

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
from typing import IO, TYPE_CHECKING, Any, Final

from kafkalog.errors import IllegalArgument, IllegalState, JobFailed, KafkalogError, MissingPackage
from kafkalog.spark.executors import failed, has_ended, is_of_spark, java_message
from kafkalog.spark.java import find_java
from kafkalog.util.interrupts import deferred_interrupts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
SETTINGS: Final = {
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
}
"""What a session of ours has unless it is told otherwise."""
SETTINGS_ON_ONE_HOST: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""And besides where all of Spark runs on this host (local, local-cluster): nothing listens to the outside."""
_ONE_HOST: Final = re.compile(r"local(-cluster)?(\[.*\])?")
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
PATIENCE_S: Final = 30.0
"""How long a virtual machine may take to end."""
GONE_S: Final = 2.0
"""How long after its last word one that was killed is found to be gone."""
_REASON: Final = re.compile(r"^(?:Exception in |Error: |Caused by: |[\w.]+(?:Exception|Error): ).*$", re.MULTILINE)
"""The lines of what a virtual machine says that name an error; the last one is the deepest cause."""
_MOST_SAID: Final = 1 << 20


def need_pyspark() -> None:
    """MissingPackage where the extra is not installed."""
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if find_spec(name) is None]
    if missing:
        raise MissingPackage(
            f"work on Spark needs {', '.join(missing)}, not installed here", hint="pip install 'kafkalog[spark]'"
        )


def settings_for(master: str | None, conf: Mapping[str, str]) -> dict[str, str]:
    """The settings of a new session: ours for such a master, those in `conf` over them."""
    return {**SETTINGS, **(SETTINGS_ON_ONE_HOST if is_on_one_host(master) else {}), **conf}


def is_on_one_host(master: str | None) -> bool:
    """True for a master all of whose executors are on this host."""
    return master is not None and _ONE_HOST.fullmatch(master) is not None


@contextmanager
def spark_session(
    master: str | None = None, conf: Mapping[str, str] | None = None, *, name: str = "kafkalog", verbose: bool = False
) -> Iterator[SparkSession]:
    """The session to work with; it is stopped at the end if it was made here.

    A session that runs in this process is taken as it is. Under spark-submit the master is the one given there;
    otherwise it is `master`, by default all cores of this machine. What Spark's virtual machine says on stderr is
    shown where it is `verbose`, and otherwise when it cannot start.

    MissingRequirement without PySpark or Java 17, IllegalState where a session with another master runs, JobFailed
    where Spark cannot start (such as an unknown master), or its virtual machine ended while it was needed.
    """
    need_pyspark()
    running = _running(master)
    if running is not None:
        yield running
        return
    chosen = master if master is not None or _SUBMITTED in os.environ else LOCAL
    handler = signal.getsignal(signal.SIGINT)
    with tempfile.TemporaryFile() as said:
        spark, gateway = _started(chosen, dict(conf or {}), name, None if verbose else said)
    try:
        yield spark
    except Exception as error:
        if has_ended(error) and _is_gone(gateway):
            raise failed(error, "the work cannot go on") from error
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
        raise failed(error, "the Spark session of this process cannot be taken") from error
    its: str = running.sparkContext.master
    if master is not None and master != its:
        raise IllegalState(
            f"a Spark session with the master {its} runs in this process, not one with {master}",
            hint="leave the master out, or stop that session first",
        )
    return running


def _started(
    master: str | None, conf: dict[str, str], name: str, said: IO[bytes] | None
) -> tuple[SparkSession, Any]:
    """A new session, and the virtual machine that was made for it; None where there was one."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    settings = settings_for(master, conf)
    made = SparkConf()
    for key, value in settings.items():
        made.set(key, value)
    if master is not None:
        made.setMaster(master)
    if _SUBMITTED not in os.environ or not made.contains("spark.app.name"):
        made.setAppName(name)
    gateway = None
    try:
        if _SUBMITTED not in os.environ and SparkContext._gateway is None:
            with deferred_interrupts(), deferred_interrupts(signal.SIGTERM):  # else nobody knows whom to end
                gateway = _launch(made, master, said)
        return SparkSession(SparkContext(conf=made, gateway=gateway)), gateway
    except BaseException as error:
        words = _words(error, said) if isinstance(error, Exception) else ""
        _end(gateway)
        if isinstance(error, KafkalogError) or not (isinstance(error, OSError) or is_of_spark(error)):
            raise
        raise JobFailed(f"Spark could not start: {words}", hint=_hint(master)) from error


def _launch(conf: Any, master: str | None, said: IO[bytes] | None) -> Any:
    """A virtual machine for this process, on a Java that is new enough, with what it says kept in `said`."""
    from pyspark.java_gateway import launch_gateway

    os.environ["JAVA_HOME"] = find_java().home
    if is_on_one_host(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return launch_gateway(conf, {} if said is None else {"stderr": said})


def _stop(spark: SparkSession) -> None:
    """Stops a session; one whose virtual machine is gone is forgotten, so that a later one can be made."""
    from pyspark.sql import SparkSession

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM", RuntimeWarning)
        try:
            spark.stop()
        except Exception:  # what the work came to is told, not that this could not be stopped
            with suppress(Exception):
                spark.sparkContext.stop()  # Java's side is let go of by now: the rest is Python's
            SparkSession._instantiatedSession = SparkSession._activeSession = None


def _is_gone(gateway: Any) -> bool:
    """Whether a virtual machine that was made here has ended."""
    if gateway is None:
        return False
    try:
        gateway.proc.wait(GONE_S)
    except TimeoutExpired:
        return False
    return True


def _end(gateway: Any) -> None:
    """Ends a virtual machine that was made here; a later session gets a new one."""
    from pyspark import SparkContext

    if gateway is None:
        return
    try:
        with suppress(Exception):  # it may be gone already
            gateway.shutdown()
        gateway.proc.stdin.close()  # the virtual machine ends with its input
        gateway.proc.wait(PATIENCE_S)
    except TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    finally:
        SparkContext._gateway = SparkContext._jvm = None


def _words(error: Exception, said: IO[bytes] | None) -> str:
    """What went wrong, in a line: the deepest cause that Java names, else the end of what the machine said."""
    text = java_message(error)
    if text is not None:
        return " ".join(text.split())
    told = " ".join(str(error).split())
    if said is not None:
        said.seek(0, os.SEEK_END)
        said.seek(max(0, said.tell() - _MOST_SAID))
        reasons = _REASON.findall(said.read().decode("utf-8", "replace"))
        told = "; ".join([told, *(" ".join(reason.split()) for reason in reasons[-1:])])
    return told


def _hint(master: str | None) -> str:
    if master is None or is_on_one_host(master):
        return "check the settings given with --conf, and that this host has memory for spark.driver.memory"
    return f"check that {master} is a Spark master that this host reaches, and the settings given with --conf"


def check_master(master: str | None) -> None:
    """IllegalArgument for what is no name of a master at all, and for a Spark Connect server."""
    if master is None:
        return
    if master.startswith("sc://"):
        raise IllegalArgument(
            f"{master} is a Spark Connect server, which runs queries and no jobs",
            hint="give the cluster's master; `format(\"kafkalog\")` works through Spark Connect, too",
        )
    if not master.strip() or any(char.isspace() for char in master):
        raise IllegalArgument(f"{master!r} is no Spark master", hint="local[*], spark://host:7077, yarn or k8s://...")
