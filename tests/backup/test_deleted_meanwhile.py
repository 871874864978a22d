"""Backups that are deleted while others are listed or verified, and backups that are deleted by `keep`."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog.backup import RemoteBackups, create_backup, delete_backups, list_backups, restore_backup, verify_backup
from kafkalog.backup.remote.local_copy import DOWNLOADS, LocalCopy
from kafkalog.backup.remote.objects import StoredObjects
from kafkalog.backup.store import BackupStore
from kafkalog.cli.main import build
from kafkalog.errors import IllegalArgument, PartitionNotFound
from tests.backup.logs import files, fill
from tests.backup.test_create import Later

pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'kafkalog[fs]'")
Backups = Path | RemoteBackups


@pytest.fixture
def data(tmp_path: Path) -> Path:
    fill(tmp_path / "data", partitions=1, records=50)
    return tmp_path / "data"


@pytest.fixture(params=["directory", "store"])
def backups(request: pytest.FixtureRequest, tmp_path: Path) -> Backups:
    return tmp_path / "backups" if request.param == "directory" else RemoteBackups(f"file://{tmp_path}/store")


def address_of(backups: Backups) -> str:
    return backups.url if isinstance(backups, RemoteBackups) else str(backups)


def fill_backups(data: Path, backups: Backups, count: int, **given: Any) -> list[str]:
    clock = Later()
    made = []
    for _ in range(count):
        clock.hours += 1
        made.append(create_backup(data, backups, clock=clock, **given).manifest.id)
    return made


def delete_after_listing(
    monkeypatch: pytest.MonkeyPatch, backups: Backups, which: str, then: Callable[[], object]
) -> None:
    """Run `then`, in which the backup `which` is deleted right after its first listing."""
    kind = RemoteBackups if isinstance(backups, RemoteBackups) else BackupStore
    real = kind.ids

    def ids(store: Any) -> list[str]:
        found = real(store)
        monkeypatch.setattr(kind, "ids", real)
        delete_backups(backups, [which])
        return found

    monkeypatch.setattr(kind, "ids", ids)
    then()


def run(*line: str) -> int:
    """The exit status of a command in this process."""
    return int(build().main(line, standalone_mode=False) or 0)


@pytest.mark.parametrize("line", [["list"], ["verify", "--all", "-q"]])
def test_list_and_verify_name_a_deleted_backup_and_go_on(
    line: list[str], data: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second, third = fill_backups(data, backups, 3)
    statuses: list[int] = []
    delete_after_listing(
        monkeypatch, backups, second, lambda: statuses.append(run("backup", *line, address_of(backups)))
    )
    out, err = capfd.readouterr()
    assert statuses == [0] and f"the backup {second} was deleted meanwhile" in err
    assert first in out and third in out and second not in out


def test_a_list_leaves_a_deleted_backup_out(data: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = fill_backups(data, backups, 2)
    found: list[str] = []
    delete_after_listing(monkeypatch, backups, first, lambda: found.extend(one.id for one in list_backups(backups)))
    assert found == [second]


def test_a_backup_of_files_that_is_deleted_while_it_is_verified_is_not_damaged(data: Path, tmp_path: Path) -> None:
    first, _ = fill_backups(data, tmp_path / "backups", 2)

    def delete(size: int) -> None:
        if first in BackupStore(tmp_path / "backups").ids():
            delete_backups(tmp_path / "backups", [first])

    with pytest.raises(PartitionNotFound, match=first):
        verify_backup(tmp_path / "backups", first, tell=delete)


def test_keep_deletes_older_backups_under_the_same_lease(
    data: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases: list[str] = []
    real = StoredObjects.leased

    def leased(objects: StoredObjects, doing: str) -> Any:
        leases.append(doing)
        return real(objects, doing)

    monkeypatch.setattr(StoredObjects, "leased", leased)
    made = fill_backups(data, backups, 4, keep=2)
    assert [one.id for one in list_backups(backups)] == made[2:]
    assert leases == (["a backup"] * 4 if isinstance(backups, RemoteBackups) else [])
    assert verify_backup(backups).ok
    with pytest.raises(IllegalArgument, match="keep is 0"):
        create_backup(data, backups, keep=0)


def test_a_local_copy_lists_the_store_once(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backups = RemoteBackups(f"file://{tmp_path}/store")
    listings: list[str] = []
    real = StoredObjects._names

    def names(objects: StoredObjects, below: str) -> set[str]:
        listings.append(below)
        return real(objects, below)

    counts: list[int] = []
    for number in (1, 5):
        fill_backups(data, backups, number - len(counts))
        with monkeypatch.context() as patch:
            patch.setattr(StoredObjects, "_names", names)
            LocalCopy(str(tmp_path / f"local{number}"), backups.objects, BackupStore(tmp_path)._fs).refresh()
        counts.append(len(listings))
        listings.clear()
    assert counts[0] == counts[1] <= 2


class Killed(BaseException):
    """Nothing handles it, as nothing handles a kill."""


@pytest.mark.parametrize("after", ["backup", "restore"])
def test_a_download_that_a_kill_left_goes_with_the_next_run(
    after: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restore was killed once the directory was restored: the next run may be one of other backups."""
    store, restored = RemoteBackups(f"file://{tmp_path}/store"), tmp_path / "restored"
    create_backup(data, store)
    create_backup(data, tmp_path / "backups")

    def kill(local: LocalCopy) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(LocalCopy, "remove", kill)
        restore_backup(store, restored)
    left = Path(f"{restored}{DOWNLOADS}")
    assert left.is_dir() and files(restored) == files(data)
    if after == "backup":
        create_backup(restored, tmp_path / "backups")
    else:
        for below, _, names in os.walk(restored, topdown=False):
            for name in names:
                os.unlink(os.path.join(below, name))
            os.rmdir(below)
        restore_backup(tmp_path / "backups", restored)
    assert not left.exists() and files(restored) == files(data)


def test_a_backup_of_the_empty_directory_leaves_its_download(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup that runs each hour, while the directory is being restored."""
    store, restored = RemoteBackups(f"file://{tmp_path}/store"), tmp_path / "restored"
    create_backup(data, store)
    restored.mkdir()

    def kill(*arguments: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("kafkalog.backup.restore._restore_local", kill)
        restore_backup(store, restored)
    left = files(Path(f"{restored}{DOWNLOADS}"))
    create_backup(restored, tmp_path / "backups")
    assert files(Path(f"{restored}{DOWNLOADS}")) == left
    restore_backup(store, restored)
    assert files(restored) == files(data)


def test_a_directory_of_that_name_that_is_no_download_stays(data: Path, tmp_path: Path) -> None:
    own = Path(f"{data}{DOWNLOADS}")
    own.mkdir()
    (own / "note.txt").write_text("mine")
    create_backup(data, tmp_path / "backups")
    assert [one.name for one in own.iterdir()] == ["note.txt"]
