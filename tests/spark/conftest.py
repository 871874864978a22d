"""One Spark session for all tests that ask for it; without Java 17 or PySpark they are skipped, with the reason."""

import functools
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalog.testing import kafka_server
from tests.interop import toolchain
from tests.interop.broker import Broker
from tests.spark.beside_kafka import QUIET, BesideKafka
from tests.spark.quick_java import quick_java, submitted
from tests.spark.warm_python import warm_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
MIN_JAVA = 17


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that asks for the session is one of Spark's, and not quick."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.slow)
        if needs_kafka_jars(item):
            item.add_marker(pytest.mark.interop)


def needs_kafka_jars(item: pytest.Item) -> bool:
    """Return True if Spark's own Kafka source is required: beside a broker, or with a kafkalog server."""
    return bool({"beside", "served"} & set(getattr(item, "fixturenames", ())))


@functools.cache
def why_not() -> str | None:
    """Why Spark cannot run here, in one line; None where it can."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")
    if java is None:
        return f"Spark needs Java {MIN_JAVA} or newer: there is no java"
    output = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    version = re.search(r'version "(\d+)', output)
    if version is None or int(version[1]) < MIN_JAVA:
        return f"Spark needs Java {MIN_JAVA} or newer: {output.splitlines()[:1]}"
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return "PySpark is not installed: pip install 'kafkalog[spark]'"
    return None


def settings(scratch: Path) -> dict[str, str]:
    """Return the settings of every session of the tests: small, quiet, on the loopback, files in `scratch`."""
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"{quick_java()} -Djava.io.tmpdir={scratch} -Dderby.system.home={scratch}",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.authenticate.socketTimeout": "120s",  # a busy machine starts a Python process slowly
    }


def kafka_jars() -> list[str]:
    """The jars of Spark's own Kafka source; none where they cannot be had, which `beside` says."""
    try:
        return [] if os.environ.get(toolchain.SKIP_VARIABLE) == "1" else list(map(str, toolchain.spark_jars()))
    except toolchain.ToolMissing:
        return []


@pytest.fixture(scope="module", autouse=True)
def _quick_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let each Spark of another process start as this one's does: with 4 s of processor time, not with 17."""
    here = [item for item in request.session.items if item.path == request.path]
    with pytest.MonkeyPatch.context() as patch:
        if any(item.get_closest_marker("spark") for item in here) and why_not() is None:
            patch.setenv("PYSPARK_SUBMIT_ARGS", submitted(f'--driver-java-options "{quick_java()}"'))
        yield


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A session on two threads, for all tests of a run."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    patch = pytest.MonkeyPatch()
    patch.setenv("PYSPARK_PYTHON", sys.executable)
    patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
    patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("kafkalog tests")
    for name, value in settings(tmp_path_factory.mktemp("spark")).items():
        builder = builder.config(name, value)
    if any(needs_kafka_jars(item) for item in request.session.items):
        builder = builder.config("spark.jars", ",".join(kafka_jars()))
    with ExitStack() as until_it_ends:
        with pytest.MonkeyPatch.context() as own:
            own.delenv("PYSPARK_SUBMIT_ARGS", raising=False)  # which would come before the settings
            own.setenv("PYSPARK_PYTHON", until_it_ends.enter_context(warm_python()))
            session = builder.getOrCreate()
        yield session
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # PySpark leaves its sockets to the collector
            session.stop()
            gateway = SparkContext._gateway
            assert gateway is not None
            gateway.shutdown()
            gateway.proc.stdin.close()  # the JVM ends with its input
            gateway.proc.wait(60)
            SparkContext._gateway = SparkContext._jvm = None
    patch.undo()


@pytest.fixture(scope="session")
def beside(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Iterator[BesideKafka]:
    """A real broker on a directory, with Spark's own Kafka source on the one and ours on the other."""
    if not kafka_jars():
        pytest.skip(f"no Kafka beside us: Java, Maven or its registry is absent, or {toolchain.SKIP_VARIABLE}=1")
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install kafkalog[test]")
    work = tmp_path_factory.mktemp("beside")
    with Broker(None, work, work / "data", QUIET) as broker:
        yield BesideKafka(spark, work / "data", broker.bootstrap)


@pytest.fixture(scope="session")
def served(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Iterator[BesideKafka]:
    """A kafkalog server with Spark's own Kafka source and sink as clients, and kafkalog's source on its directory."""
    if not kafka_jars():
        pytest.skip(f"no Kafka source of Spark: Java, Maven or its registry is absent, or {toolchain.SKIP_VARIABLE}=1")
    data = tmp_path_factory.mktemp("served") / "data"
    with kafka_server(directory=data, settings=QUIET) as server:
        yield BesideKafka(spark, data, server.bootstrap)
