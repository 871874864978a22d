"""Restores that are killed, of whole backups and of moments (tests/backup/killed.py: more)."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import ROOT, environment


@pytest.mark.crash
@pytest.mark.parametrize(
    ("what", "how", "kills", "stride"),
    [
        ("backup", "steps", 3, 17), ("moment", "moments", 2, 1), ("directories", "steps", 3, 23),
        ("store", "moments", 2, 1),
    ],
)
def test_killed_restores_bring_each_record_once(tmp_path: Path, what: str, how: str, kills: int, stride: int) -> None:
    words = [sys.executable, "-m", "tests.backup.killed", tmp_path, what, how, kills, 3, stride]
    done = subprocess.run(
        [str(one) for one in words], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert int(done.stdout) == kills
