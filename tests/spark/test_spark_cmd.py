"""`kafkalog spark`: its jobs are listed, quick to ask about, and say in one line what is missing."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalog.cli.spark_cmd import command
from tests import commands
from tests.spark.jobs import job
from tests.tools.test_verify_damage import write_log

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
    told = commands.ok("spark", "--help").decode()
    assert {"compact", "reindex", "retain", "verify"} <= command.commands.keys()
    for name, one in command.commands.items():
        assert f"  {name} " in told and one.help
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
        [sys.executable, commands.ROOT / "kafkalog" / "spark" / "jobs" / "__main__.py", "verify", data / "nowhere"],
        capture_output=True, text=True, env=commands.environment(),
    )  # fmt: skip
    assert absent.returncode == 1 and "no such file or directory" in absent.stderr


@pytest.mark.parametrize(
    ("without", "said"),
    [(NO_PYSPARK, "pip install 'kafkalog[spark]'"), (NO_JAVA, "Spark needs Java 17 or newer, and no Java was found")],
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


def test_compact_is_refused_by_name(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = job(capfd, "compact", data)
    assert (done.status, done.out) == (1, "")
    assert "compact is not available: this version of kafkalog has no log cleaner" in done.err
    assert job(capfd, "compact").status == 2


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
    for name in ("verify", "reindex", "retain"):
        done = job(capfd, name, data)
        assert (done.status, done.out) == (1, "")
        assert "cannot import kafkalog" in done.err and "install it on every node" in done.err
        assert done.err.count("\n") == 1
