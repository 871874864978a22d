"""examples/embedded_app: an application with a log inside, and its own tests, which run as its user runs them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import environment
from tests.examples.programs import EXAMPLES


def suite(project: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """pytest in a directory, untouched by how we were started."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=project, env=environment(PYTEST_ADDOPTS=""), capture_output=True, text=True)


@pytest.mark.slow
def test_its_suite_passes_and_can_fail(tmp_path: Path) -> None:
    project = shutil.copytree(EXAMPLES / "embedded_app", tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    done = suite(project)
    assert done.returncode == 0 and "6 passed" in done.stdout, done.stdout + done.stderr
    source = (project / "ledger.py").read_text()
    (project / "ledger.py").write_text(source.replace("self._log.append(records).first_offset", "0"))
    done = suite(project, "-x")
    assert done.returncode == 1 and "1 failed" in done.stdout


def test_it_runs_from_the_root_of_the_repository_too() -> None:
    done = suite(EXAMPLES.parent, str(EXAMPLES / "embedded_app"), "-k", "moves_money")
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
