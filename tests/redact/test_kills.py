"""Redactions that are killed: of data directories, of backups, of an object store (tests/redact/killed.py: more)."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import ROOT, environment


@pytest.mark.crash
@pytest.mark.parametrize(("how", "kills", "stride"), [("steps", 4, 13), ("moments", 2, 1)])
@pytest.mark.parametrize("what", ["logs", "backups", "store"])
def test_killed_redactions_leave_each_record_once(tmp_path: Path, what: str, how: str, kills: int, stride: int) -> None:
    words = [sys.executable, "-m", "tests.redact.killed", tmp_path, what, how, kills, 3, stride]
    done = subprocess.run(
        [str(one) for one in words], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert int(done.stdout) == kills
