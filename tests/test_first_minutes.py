"""README.md's first minutes and docs/start.md with nothing but an installed wheel, as ci/first_minutes.py runs them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.clusters import build_wheel, plain_python
from tests.trees import ROOT, WHEEL

RUNNER = ROOT / "ci" / "first_minutes.py"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python of its own, with what the package needs and the package from a wheel, as pip puts it there."""
    scratch = tmp_path_factory.mktemp("fresh")
    found = plain_python(scratch / "python")
    pip = [sys.executable, "-m", "pip", "--python", str(found), "install", "-q", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--disable-pip-version-check", str(WHEEL or build_wheel(scratch))], check=True)
    return found


def first_minutes(python: Path, readme: Path, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """The finished run, in an empty directory, with that Python's commands in front of all others."""
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKALOG_", "PYTHON"))}
    line = [str(python), "-I", str(RUNNER), str(readme)]
    return subprocess.run(line, cwd=cwd, env={**kept, "PATH": path}, capture_output=True, text=True)


@pytest.mark.slow
def test_the_first_minutes_of_the_readme(python: Path, tmp_path: Path) -> None:
    done = first_minutes(python, ROOT / "README.md", tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert "$ kafkalog produce -d data -t greetings -l lines.txt" in done.stdout
    assert "blocks of README.md did what it says" in done.stdout
    assert (tmp_path / "data" / "greetings-0").is_dir()


@pytest.mark.slow
def test_the_five_minutes_of_the_documents(python: Path, tmp_path: Path) -> None:
    done = first_minutes(python, ROOT / "docs" / "start.md", tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert "blocks of start.md did what it says" in done.stdout


@pytest.mark.slow
def test_a_readme_that_says_something_else_is_told(python: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "README.md"
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    wrong.write_text(text.replace("\nhello lagou 43\n", "\nhello lagou 44\n"))
    done = first_minutes(python, wrong, tmp_path)
    assert done.returncode == 1 and "said: hello lagou 42\nhello lagou 43" in done.stderr


@pytest.mark.slow
def test_python_begins_anew_after_a_block_of_the_shell(python: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\n>>> import kafkalog\n```\n```console\n$ true\n```\n```python\n>>> kafkalog.open\n```\n")
    done = first_minutes(python, page, tmp_path)
    assert done.returncode == 1 and "name 'kafkalog' is not defined" in done.stderr
