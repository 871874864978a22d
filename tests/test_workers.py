"""Distribution of the suite to processes: costly fixtures stay together, and no failure is lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("xdist", reason="pytest-xdist is not installed: pip install kafkalog[test]")

from tests import workers

ROOT = Path(__file__).parent.parent


def test_what_shares_are_named_after_is_there() -> None:
    """A file that was renamed is not left to run beside what it must not run beside."""
    assert all((ROOT / path).exists() for path, _ in workers.TOGETHER)
    shares = {share for _, share in workers.TOGETHER}
    assert all(name in shares or list(ROOT.glob(f"{name}*")) for name in workers.FIRST)


def test_one_session_of_spark_one_cluster_at_a_time_and_else_a_file() -> None:
    of_spark = {workers.share_of(f"tests/spark/test_{name}.py::test_it[a::b]") for name in ("sink", "stream")}
    assert of_spark == {"spark"}
    of_clusters = {workers.share_of(f"tests/spark/test_{name}.py::test_it") for name in ("clusters", "kills")}
    assert of_clusters == {"clusters"} == {workers.share_of("tests/examples/test_spark_pipeline.py::test_it")}
    for file in ("tests/spark/test_commit_crash.py", "tests/interop/test_write_interop.py", "tests/cli/test_main.py"):
        assert workers.share_of(f"{file}::test_it") == file
    shares = [
        "tests/test_open.py", "tests/test_model.py", "tests/cli/test_main.py", "tests/interop/test_open_interop.py",
        "spark", "clusters",
    ]  # fmt: skip
    assert sorted(shares, key=workers.rank_of) == shares[::-1]


def test_a_collected_test_has_its_place() -> None:
    """xdist compares what its processes have collected as lists."""
    tests = [f"test_{number}" for number in range(9)]
    collected = workers.Collected(tests)
    assert collected == tests and [collected.index(test) for test in tests] == list(range(9))


def run_pytest(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A suite of three files, one test of which fails, in two processes that share it as they share this one."""
    for name in ("a", "b", "c"):
        (folder / f"test_{name}.py").write_text(f"def test_{name}():\n    assert {name != 'b'}\n")
    (folder / "conftest.py").write_text("from tests.conftest import pytest_xdist_make_scheduler\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, str(folder)]
    environment = {**kept, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("arguments", [("-n", "2", "--dist", "loadfile"), ("-p", "no:xdist")])
def test_a_test_that_fails_anywhere_fails_the_run(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run_pytest(tmp_path, *arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED test_b.py::test_b" in done.stdout and "1 failed, 2 passed" in done.stdout


@pytest.mark.parametrize("crashing", ["first", "last"])
def test_a_test_that_ends_its_process_fails_once_and_the_others_run(tmp_path: Path, crashing: str) -> None:
    """A process that gets one test alone waits for another one, or for the end: the run would hang."""
    tests = "".join(
        f"def test_{name}():\n    {'os._exit(0)' if name == crashing else 'pass'}\n" for name in ("first", "last")
    )
    (tmp_path / "test_crash.py").write_text(f"import os\n{tests}")
    done = run_pytest(tmp_path, "-n", "2", "--dist", "loadfile", "--deselect", "test_b.py")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"crashed while running 'test_crash.py::test_{crashing}'" in done.stdout
    assert "1 failed, 3 passed" in done.stdout, done.stdout
