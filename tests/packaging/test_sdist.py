"""The sdist builds and is tested without git: it holds all that is tracked, the version, and nothing that was built."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.packaging.checkout import in_a_checkout
from tests.trees import SOURCES

MOST_BYTES = 16 << 20
NOT_IN_IT = {".ci/run", ".gitignore"}
pytestmark = [pytest.mark.slow, in_a_checkout]


def test_holds_what_is_tracked_and_a_version(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        held = {member.name.partition("/")[2] for member in archive if not member.isdir()}
    tracked = set(subprocess.check_output(["git", "ls-files", "-z"], cwd=SOURCES, text=True).split("\0")) - {""}
    missing = {name for name in tracked - held - NOT_IN_IT if not name.startswith(".github/")}
    assert missing == set()
    more = {name for name in held - tracked if not name.startswith("kafkalog.egg-info/")}
    assert more == {"PKG-INFO", "setup.cfg", "kafkalog/_version.py"}
    assert sdist.stat().st_size < MOST_BYTES


def test_is_what_an_index_takes(sdist: Path) -> None:
    pytest.importorskip("twine", reason="the extra `package` is not installed")
    check = [sys.executable, "-m", "twine", "check", "--strict", str(sdist)]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
