"""examples/embedded_app: an application with a log inside, and its own tests, which run as its user runs them."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.commands import environment
from tests.examples.programs import EXAMPLES

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]


def test_its_suite_passes_and_can_fail(tmp_path: Path) -> None:
    project = shutil.copytree(EXAMPLES / "embedded_app", tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(PYTEST, cwd=project, env=environment(PYTEST_ADDOPTS=""), capture_output=True, text=True)
    assert done.returncode == 0 and "6 passed" in done.stdout, done.stdout + done.stderr
    source = (project / "ledger.py").read_text()
    (project / "ledger.py").write_text(source.replace("self._log.append(records).first_offset", "0"))
    done = subprocess.run([*PYTEST, "-x"], cwd=project, env=environment(PYTEST_ADDOPTS=""), capture_output=True, text=True)
    assert done.returncode == 1 and "1 failed" in done.stdout


def test_it_runs_from_the_root_of_the_repository_too() -> None:
    command = [*PYTEST, str(EXAMPLES / "embedded_app"), "-k", "moves_money"]
    done = subprocess.run(command, cwd=EXAMPLES.parent, env=environment(PYTEST_ADDOPTS=""), capture_output=True, text=True)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
