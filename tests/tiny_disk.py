"""A disk of 1 MiB that really fills up: a tmpfs in a mount namespace of its own, so nothing is left behind."""

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MOUNT = 'mount -t tmpfs -o size="$1" none "$2" && cd "$2" && shift 2 && exec "$@"'


def run_on_tiny_disk(script: str, *, size: str = "1m") -> "subprocess.CompletedProcess[str]":
    """Runs a Python script whose working directory is an empty disk of that size; its status and output.

    A signal shows as a negative return code. Skips the test where mounting is not allowed.
    """
    unshare = _allowed()
    if unshare is None:
        pytest.skip("this system allows no mount of a tmpfs, neither directly nor by unshare -rm")
    return _run(unshare, size, sys.executable, "-c", script)


def _run(unshare: tuple[str, ...], size: str, *command: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"}
    with tempfile.TemporaryDirectory(prefix="kafkalog-disk-") as directory:
        return subprocess.run(
            [*unshare, "sh", "-c", MOUNT, "sh", size, directory, *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )


@functools.cache
def _allowed() -> tuple[str, ...] | None:
    for unshare in (("unshare", "-m"), ("unshare", "-rm")):
        try:
            if _run(unshare, "1m", "true").returncode == 0:
                return unshare
        except OSError:
            return None
    return None
