"""One sdist of this commit for all tests that look at one, or build it (tests/workers.py keeps them together)."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.trees import SOURCES


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the sdist that a clone of the repository makes."""
    pytest.importorskip("setuptools_scm", reason="the extra `package` is not installed")
    folder = tmp_path_factory.mktemp("sdist")
    subprocess.run(["git", "clone", "-q", str(SOURCES), str(folder / "clone")], check=True)
    build = [sys.executable, "setup.py", "-q", "sdist", "-d", str(folder)]
    subprocess.run(build, cwd=folder / "clone", check=True, capture_output=True)
    (made,) = folder.glob("*.tar.gz")
    return made
