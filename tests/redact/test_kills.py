"""Redactions that are killed: of data directories, backups, object stores, tiered segments (tests/redact/killed.py)."""

from pathlib import Path

import pytest

from tests import commands
from tests.kills import more_kills


@pytest.mark.crash
@pytest.mark.parametrize(("how", "kills", "stride"), [("steps", 4, 13), ("moments", 2, 1)])
@pytest.mark.parametrize("what", ["logs", "backups", "store", "tiered"])
def test_killed_redactions_leave_each_record_once(tmp_path: Path, what: str, how: str, kills: int, stride: int) -> None:
    kills, stride = more_kills(kills, stride)
    words = ["tests.redact.killed", tmp_path, what, how, kills, 3, stride]
    done = commands.run([str(one) for one in words], cwd=commands.ROOT, timeout_s=300)
    assert done.returncode == 0, done.stderr.decode()[-5000:]
    assert int(done.stdout) == kills
