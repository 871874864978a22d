"""franz-go against a broker: `go/main.go`, compiled once, one operation per run."""

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

SOURCES = Path(__file__).with_name("go")
USUAL = "/usr/local/go/bin/go"


@functools.cache
def program() -> str:
    """The program; a test is skipped without Go."""
    go = shutil.which("go") or (USUAL if os.access(USUAL, os.X_OK) else None)
    if go is None:
        pytest.skip("no go")
    built = Path(tempfile.mkdtemp(prefix="franz-go-")) / "franz-go"
    subprocess.run([go, "build", "-o", str(built), "."], cwd=SOURCES, check=True, capture_output=True, text=True)
    return str(built)


class FranzGo:
    """Operations of franz-go, which has them all."""

    has_all = True

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._target = (bootstrap, topic)

    def close(self) -> None:
        """Does nothing: each run is a process."""

    def run(self, operation: str, *arguments: str) -> None:
        done = subprocess.run(
            [program(), *self._target, "_".join((operation, *arguments))],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
