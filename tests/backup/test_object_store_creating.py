"""Backups into object stores that have damage, need other keys, or are written by another machine."""

from pathlib import Path

import pytest

from kafkalog.backup import RemoteBackups, create_backup, list_backups, verify_backup
from tests import commands
from tests.backup.test_object_store import Keys, flip
from tests.backup.test_object_store import data as data
from tests.backup.test_object_store import keys as keys
from tests.backup.test_object_store import target as target
from tests.backup.test_object_store import url as url

__all__ = ["data", "keys", "target", "url"]


@pytest.mark.parametrize("with_key", [True, False])
def test_a_full_backup_uploads_damaged_objects_again(
    data: Path, tmp_path: Path, target: RemoteBackups, keys: Keys, with_key: bool
) -> None:
    first = create_backup(data, target).manifest.id
    store, root = target.objects._fs, target.objects._root
    sizes = {one["name"]: one["size"] for one in store.ls(f"{root}/files", detail=True)}
    name = max(sizes, key=sizes.__getitem__)
    store.pipe_file(name, flip(store.cat_file(name)))
    (found, *_) = verify_backup(target)
    assert "--full" in (found.hint or "")
    create_backup(data, target)
    assert not verify_backup(target, first).ok
    recipients = [keys.recipient] if name.endswith(".age") else []
    creator = target if with_key else RemoteBackups(target.url, recipients=recipients)
    create_backup(data, creator, full=True)
    assert len(target.ids()) == 3 and all(verify_backup(target, one).ok for one in target.ids())


def test_backups_that_could_not_be_deleted_afterwards_are_not_created(data: Path, tmp_path: Path, keys: Keys) -> None:
    other, url = Keys(tmp_path / "other.txt"), f"file://{tmp_path}/store"
    create = ("backup", "-d", data, url, "--keep", "1")
    done = commands.kafkalog(*create, "--recipient", keys.recipient, "--identity", other.file)
    assert done.returncode == 2 and b"no private key is given that decrypts" in done.stderr
    assert not (tmp_path / "store").exists()
    commands.ok("backup", "-d", data, url, "--recipient", keys.recipient)
    done = commands.kafkalog(*create)
    assert done.returncode == 2 and b"--identity FILE" in done.stderr and len(RemoteBackups(url).ids()) == 1
    commands.ok(*create, "--identity", keys.file)
    assert len(RemoteBackups(url).ids()) == 1


def test_two_machines_upload_the_same_content_at_the_same_time(data: Path, tmp_path: Path) -> None:
    """Each writes a file of its own, so that neither completes what the other has begun."""
    create_backup(data, f"file://{tmp_path}/store")
    file = list_backups(f"file://{tmp_path}/store")[0].files[0]
    source = tmp_path / "content"
    source.write_bytes((tmp_path / "store" / "files" / file.sha256).read_bytes())
    first, second = (RemoteBackups(f"file://{tmp_path}/store").objects for _ in range(2))
    (tmp_path / "store" / "files" / file.sha256).unlink()
    begun = False

    def meanwhile(size: int) -> None:
        nonlocal begun
        if not begun:
            begun = True
            second.put(file, str(source), None)

    first.put(file, str(source), meanwhile)
    assert begun and verify_backup(f"file://{tmp_path}/store").ok
    assert not list((tmp_path / "store" / "files").glob("*.partial"))
