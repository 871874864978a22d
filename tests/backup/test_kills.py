"""Restores that are killed, of whole backups and of moments (tests/backup/killed.py: more)."""

from pathlib import Path

import pytest

from tests import commands
from tests.kills import more_kills


@pytest.mark.crash
@pytest.mark.parametrize(
    ("what", "how", "kills", "stride"),
    [
        ("backup", "steps", 3, 17), ("moment", "moments", 2, 1), ("directories", "steps", 3, 23),
        ("store", "moments", 2, 1),
    ],
)
def test_killed_restores_bring_each_record_once(tmp_path: Path, what: str, how: str, kills: int, stride: int) -> None:
    kills, stride = more_kills(kills, stride)
    words = ["tests.backup.killed", tmp_path, what, how, kills, 3, stride]
    done = commands.run([str(one) for one in words], cwd=commands.ROOT, timeout_s=300)
    assert done.returncode == 0, done.stderr.decode()[-5000:]
    assert int(done.stdout) == kills
