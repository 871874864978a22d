"""Backups in a directory that are redacted while they are verified or restored: they are looked at again."""

from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.backup import create_backup, restore_backup, verify_backup
from kafkalog.backup import restore as restore_module
from kafkalog.backup import verify as verify_module
from kafkalog.errors import CorruptBackup
from kafkalog.redact import redact_backups


@pytest.fixture
def backups(tmp_path: Path) -> Path:
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("t", 1)
        dirs["t", 0].append([(b"k%d" % n, b"v", 1_000 + n) for n in range(10)])
    create_backup(tmp_path / "data", tmp_path / "backups")
    return tmp_path / "backups"


def redacting_before(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, backups: Path) -> list[bool]:
    """Redact the backup before the first call of a function, which comes after the manifest was read."""
    call, done = getattr(owner, name), []

    def called(*args: Any, **more: Any) -> Any:
        if not done:
            done.append(True)
            assert redact_backups(backups, "t", keys=[b"k3"], change="empty", apply=True).left == 0
        return call(*args, **more)

    monkeypatch.setattr(owner, name, called)
    return done


def test_a_verification(backups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = redacting_before(monkeypatch, verify_module, "_check_sums", backups)
    report = verify_backup(backups)
    assert report.ok and done


@pytest.mark.parametrize("moment", [{}, {"at": 1_005}])
def test_a_restore(backups: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: dict[str, Any]) -> None:
    done = redacting_before(monkeypatch, restore_module._Staging, "copy", backups)
    restored = restore_backup(backups, tmp_path / "restored", **moment)
    assert done and restored.redactions == 1
    with kafkalog.open(tmp_path / "restored" / "t-0") as log:
        assert [record.value for record in log][:5] == [b"v", b"v", b"v", b"", b"v"]


def test_damage_is_still_an_error(backups: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (log,) = backups.rglob("*.log")
    log.chmod(0o600)
    log.write_bytes(b"x" + log.read_bytes()[1:])
    with pytest.raises(CorruptBackup, match="differs from what was stored"):
        restore_backup(backups, tmp_path / "restored")
    assert [one.kind for one in verify_backup(backups).findings] == ["checksum"]
