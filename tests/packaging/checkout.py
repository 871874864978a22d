"""Tests that clone the tree they lie in need a checkout that git may read."""

import subprocess

import pytest

from tests.trees import SOURCES


def is_checkout() -> bool:
    """False without .git, without git, and where git refuses a directory that is somebody else's."""
    try:
        asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=SOURCES, capture_output=True, timeout=60)
    except OSError:
        return False
    return (SOURCES / ".git").exists() and asked.returncode == 0


in_a_checkout = pytest.mark.skipif(not is_checkout(), reason="no checkout that git reads, so there is nothing to clone")
