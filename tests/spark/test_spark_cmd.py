"""`kafkalog spark`: its jobs are listed, quick to ask about, and say in one line what is missing."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalog.cli.spark_cmd import command
from tests import commands
from tests.spark.conftest import why_not
from tests.spark.jobs import job
from tests.tools.test_verify_damage import write_log
from tests.trees import PACKAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETUP = "import sys, functools, kafkalog.spark.session as session, kafkalog.spark.java as java\n"
RUN = "from kafkalog.cli.main import run\nsys.exit(run(['spark', 'verify', sys.argv[1]]))\n"
NO_JAVA = "session.find_java = functools.partial(java.find_java, {}, ())\n"
NO_PYSPARK = "sys.modules['pyspark'] = None\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    from tests.raw_batches import batches

    write_log(tmp_path / "data" / "t-0", batches(0, 10, 5))
    return tmp_path / "data"


def test_every_job_is_listed_with_a_line() -> None:
    output = commands.ok("spark", "--help").decode()
    jobs = {"compact", "export", "import", "index", "ingest", "reindex", "retain", "stats", "sync", "verify"}
    assert command.commands.keys() == jobs | {"archive"}
    for name, one in command.commands.items():
        assert f"  {name} " in output and one.help
        assert name == "archive" or "--master" in commands.ok("spark", name, "--help").decode()


def test_asking_for_help_imports_nothing_of_spark() -> None:
    code = "import sys, kafkalog.cli.spark_cmd; assert not {'pyspark', 'py4j', 'pyarrow', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=commands.ROOT)


def test_python_m_is_the_same_command(data: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kafkalog.spark.jobs", "--help"], capture_output=True, text=True, cwd=commands.ROOT
    )
    assert done.returncode == 0 and "verify" in done.stdout
    absent = subprocess.run(
        [sys.executable, PACKAGE / "spark" / "jobs" / "__main__.py", "verify", data / "nowhere"],
        capture_output=True, text=True, env=commands.environment(),
    )  # fmt: skip
    assert absent.returncode == 1 and "no such file or directory" in absent.stderr


@pytest.mark.parametrize(
    ("without", "said"),
    [(NO_PYSPARK, "pip install 'kafkalog[spark]'"), (NO_JAVA, "Spark needs Java 17 or newer, but no Java was found")],
)
def test_what_is_missing_is_told_in_one_line(data: Path, without: str, said: str) -> None:
    if without == NO_JAVA:
        pytest.importorskip("pyspark")
    done = subprocess.run(
        [sys.executable, "-c", SETUP + without + RUN, data], capture_output=True, text=True, cwd=commands.ROOT,
        env=commands.environment(),
    )  # fmt: skip
    assert done.returncode == 1 and done.stdout == ""
    assert said in done.stderr and done.stderr.startswith("kafkalog: ") and done.stderr.count("\n") == 1


def test_executors_without_the_package_are_told_how_to_get_it(
    spark: "SparkSession",
    data: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python workers of their own, which cannot import kafkalog."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text("import sys\nsys.modules['kafkalog'] = None\n")
    monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", str(tmp_path / "hidden"))
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)  # not a fork of one that has the package
    for name in ("compact", "verify", "reindex", "retain"):
        done = job(capfd, name, data)
        assert (done.status, done.out) == (1, "")
        assert "cannot import kafkalog" in done.err and "install it on every node" in done.err
        assert done.err.count("\n") == 1


def children(pid: int) -> list[int]:
    """The processes that a process has started, with their own."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    found = [int(one) for one in path.read_text().split()] if path.exists() else []
    return [*found, *(below for one in found for below in children(one))]


def is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "java\n"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.spark
def test_ctrl_c_ends_the_job_and_its_virtual_machine(data: Path) -> None:
    """Whenever it comes: while Spark starts, while tasks run. A virtual machine of its own."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with commands.started("spark", "verify", "--master", "local[2]", data) as running:
        java: list[int] = []
        while not java and running.poll() is None:
            java = [pid for pid in children(running.pid) if is_java(pid)]
            time.sleep(0.05)
        assert java, running.communicate()
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=120)
    assert (running.returncode, out, err) == (130, b"", b"\n")
    end = time.monotonic() + 60
    while any(map(is_java, java)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(is_java, java))


@pytest.mark.slow
@pytest.mark.spark
def test_a_master_that_is_none_is_told_in_a_line(data: Path) -> None:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    done = commands.kafkalog("spark", "verify", "--master", "nonsense", data)
    assert done.returncode == 1 and done.stdout == b"" and done.stderr.count(b"\n") == 1
    assert b"Spark could not start" in done.stderr and b"check that nonsense is a Spark master" in done.stderr
