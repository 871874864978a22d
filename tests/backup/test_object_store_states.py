"""Backups in object stores: what kills, failures, other processes and mistaken arguments leave is never in the way."""

import errno
import gc
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.backup import RemoteBackups, create_backup, delete_backups, restore_backup, verify_backup
from kafkalog.backup.in_progress import BackupInProgress
from kafkalog.backup.remote.local_copy import LocalCopy
from kafkalog.errors import DirectoryLocked, IllegalArgument, StorageError
from kafkalog.util.fileio import OS
from tests.backup.logs import append, files, fill
from tests.backup.test_create import Later
from tests.backup.test_object_store import Keys
from tests.manager.metadata_files import topic_values, write_metadata
from tests.remote.gcs import gcs_server
from tests.remote.s3 import s3_server

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'kafkalog[fs]'")
pyrage = pytest.importorskip("pyrage", reason="pyrage is not installed: pip install 'kafkalog[encryption]'")


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "key.txt")


class Killed(BaseException):
    """Nothing handles it, as nothing handles a kill."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    fill(tmp_path / "data", partitions=2, records=200)
    return tmp_path / "data"


@pytest.fixture
def target(tmp_path: Path) -> RemoteBackups:
    return RemoteBackups(f"file://{tmp_path}/store")


def killed_in(owner: Any, name: str, work: Callable[[], object], nth: int = 1) -> bool:
    """Return True if the work reached its `nth` call of a function, where it is killed."""
    real, calls = getattr(owner, name), 0

    def call(*given: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise Killed
        return real(*given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, call)
        try:
            work()
        except Killed:
            return True
    return False


def create(data: Path, target: RemoteBackups, clock: Later) -> object:
    clock.hours += 1
    return create_backup(data, target, clock=clock)


def is_whole(data: Path, tmp_path: Path, target: RemoteBackups) -> bool:
    """Return True if the last backup can be restored, and nothing was left beside the data."""
    restore_backup(target, tmp_path / "restored")
    same = files(tmp_path / "restored") == files(data)
    shutil.rmtree(tmp_path / "restored")
    return same and not [one.name for one in tmp_path.iterdir() if ".kafkalog-" in one.name]


def test_a_kill_before_the_store_has_its_marker(data: Path, tmp_path: Path, target: RemoteBackups) -> None:
    assert killed_in(os, "replace", target.objects.create)
    (left_name,) = os.listdir(tmp_path / "store")
    assert left_name.startswith("kafkalog.objects.") and left_name.endswith(".partial")
    create(data, target, Later())
    assert is_whole(data, tmp_path, target)


def test_a_killed_backup_had_files_that_only_the_store_has(data: Path, tmp_path: Path, target: RemoteBackups) -> None:
    clock = Later()
    for _ in range(2):
        create(data, target, clock)
    assert killed_in(BackupInProgress, "commit", lambda: create(data, target, clock))
    create(data, target, clock)
    assert is_whole(data, tmp_path, target)


def test_what_a_prepared_backup_needs_was_deleted(data: Path, tmp_path: Path, target: RemoteBackups) -> None:
    clock = Later()
    for _ in range(2):
        create(data, target, clock)
    assert killed_in(LocalCopy, "upload", lambda: create(data, target, clock))
    delete_backups(target, target.ids())
    create(data, target, clock)
    assert len(target.ids()) == 1 and is_whole(data, tmp_path, target)


@pytest.mark.parametrize(
    ("owner", "call", "most"), [(os, "unlink", 40), (os, "rmdir", 4), (OS, "unlink", 2), (OS, "rmdir", 1)]
)
def test_a_kill_while_the_staging_directory_is_removed(
    data: Path, tmp_path: Path, target: RemoteBackups, owner: Any, call: str, most: int
) -> None:
    clock, staging = Later(), tmp_path / "data.kafkalog-backup"
    assert killed_in(LocalCopy, "remove", lambda: create(data, target, clock))
    shutil.copytree(staging, tmp_path / "copy")
    for nth in sorted({1, most // 2 or 1, most}):
        shutil.rmtree(staging, ignore_errors=True)
        shutil.copytree(tmp_path / "copy", staging)
        assert killed_in(owner, call, LocalCopy(str(staging), target.objects, OS).remove, nth), nth
        create(data, target, clock)
        assert not staging.exists()
    assert is_whole(data, tmp_path, target)


def test_a_staging_directory_is_never_the_store_or_another_one(
    data: Path, tmp_path: Path, target: RemoteBackups
) -> None:
    store = tmp_path / "store"
    for staging in (store, store / "room", tmp_path):
        with pytest.raises(IllegalArgument, match="overlap"):
            create_backup(data, RemoteBackups(target.url, staging=staging))
        assert not store.exists()
    create_backup(data, target)
    for staging in (store, store / "room"):
        with pytest.raises(IllegalArgument, match="overlap"):
            restore_backup(RemoteBackups(target.url, staging=staging), tmp_path / "restored")
    with pytest.raises(IllegalArgument, match="not a directory of backups"):
        create_backup(data, RemoteBackups(f"file://{tmp_path}/other", staging=store))
    assert is_whole(data, tmp_path, target)


def test_a_store_inside_the_data_is_refused_under_any_name(data: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(data)
    with pytest.raises(IllegalArgument, match="overlap"):
        create_backup(data, f"file://{tmp_path}/link/store")
    assert "store" not in os.listdir(data)


@pytest.mark.parametrize("url", ["s3://", "memory:///", "file:///", "file://"])
def test_a_url_without_a_place(tmp_path: Path, url: str) -> None:
    with pytest.raises(IllegalArgument, match="has no path in the store"):
        RemoteBackups(url)


def test_two_runs_do_not_upload_at_the_same_time(data: Path, tmp_path: Path, keys: Keys) -> None:
    """Both would write the same partial file of a local store."""
    target = RemoteBackups(f"file://{tmp_path}/store", recipients=[keys.recipient], identities=[keys.file])
    real, others = target.objects.put, []

    def put(*given: Any) -> None:
        if not others:
            others.append(1)
            with pytest.raises(DirectoryLocked):
                create_backup(data, target)
        real(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target.objects, "put", put)
        create_backup(data, target)
    assert others and is_whole(data, tmp_path, target)


def test_no_error_has_a_private_key_or_a_password(tmp_path: Path, keys: Keys) -> None:
    secret = keys.file.read_text().split()[-1]
    for more, words in (
        ({"recipients": [str(keys.file)]}, "line 2 of the file is not a recipient"),
        ({"recipients": [secret]}, "a private key was given"), ({"identities": [secret]}, "a private key was given"),
    ):  # fmt: skip
        with pytest.raises(IllegalArgument, match=words) as caught:
            RemoteBackups("memory://x", **more)  # type: ignore[arg-type]
        assert secret not in str(caught.value)
    memory = RemoteBackups("memory://user:pass/word@host/x")
    assert RemoteBackups("memory://user:pa@ss@host/x").url == "memory://user@host/x"
    assert memory.url == "memory://user:pass/word@host/x"  # its host is `user`


def test_a_backup_is_deleted_once_and_with_what_kills_left(data: Path, tmp_path: Path, target: RemoteBackups) -> None:
    create_backup(data, target)
    left = tmp_path / "store" / "files" / ("0" * 64 + ".partial")
    left.write_bytes(b"half")
    delete_backups(target, [*target.ids(), *target.ids()])
    assert target.ids() == [] and os.listdir(left.parent) == []


def test_each_content_is_downloaded_once(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots of producers, for instance, are the same in many segments; their progress counts all the same."""
    store = fsspec.filesystem("memory")
    report = create_backup(data, target := RemoteBackups("memory://shop/backups"))
    read, open_object = Counter[str](), store._open

    def opened(path: str, *given: Any, **more: Any) -> Any:
        read[path] += 1
        return open_object(path, *given, **more)

    monkeypatch.setattr(store, "_open", opened)
    told: list[int] = []
    restore_backup(target, tmp_path / "restored", tell=told.append)
    contents = {file.sha256 for file in report.manifest.files}
    assert len(contents) < len(report.manifest.files)
    found = {path.rpartition("/")[2]: count for path, count in read.items() if "/files/" in path}
    assert found == dict.fromkeys(contents, 1)
    assert files(tmp_path / "restored") == files(data)
    assert sum(told) >= sum(file.size for file in report.manifest.files)
    store.rm("/", recursive=True)


def check_backups(url: str, data: Path, tmp_path: Path, keys: Keys, options: dict[str, Any]) -> RemoteBackups:
    """Create two encrypted backups and delete the first; the second one is whole."""
    target = RemoteBackups(url, recipients=[keys.recipient], identities=[keys.file], options=options)
    clock = Later()
    create_backup(data, target, clock=clock)
    clock.hours += 1
    with kafkalog.open_dirs(data, "a") as dirs:
        append(dirs["orders", 0], 50)
    create_backup(data, target, clock=clock)
    delete_backups(target, [target.ids()[0]])
    assert verify_backup(target).ok
    restore_backup(target, tmp_path / "restored")
    assert files(tmp_path / "restored") == files(data)
    return target


def test_backups_in_google_cloud_storage(
    data: Path, tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gcs_server(monkeypatch) as options:
        check_backups("gs://bucket/kafka", data, tmp_path, keys, options)


def test_backups_in_s3(data: Path, tmp_path: Path, keys: Keys) -> None:
    with s3_server() as (server, options):
        fsspec.filesystem("s3", **options).mkdir("bucket")
        target = check_backups("s3://bucket/kafka", data, tmp_path, keys, options)
        server.kill()
        server.wait()
        with pytest.raises(StorageError, match="the store failed"):
            verify_backup(target)


def test_what_another_process_stored_is_found(data: Path, tmp_path: Path) -> None:
    """The store's listings are cached in this process."""
    with s3_server() as (_, options):
        fsspec.filesystem("s3", **options).mkdir("bucket")
        target, other = (
            RemoteBackups("s3://bucket/kafka", options=options | more) for more in ({}, {"skip_instance_cache": True})
        )
        clock = Later()
        create(data, target, clock)
        with kafkalog.open_dirs(data, "a") as dirs:
            append(dirs["orders", 0], 50)
        create(data, other, clock)
        assert verify_backup(target).ok and is_whole(data, tmp_path, target)


def test_a_moment_in_encrypted_backups_needs_the_key(data: Path, tmp_path: Path, keys: Keys) -> None:
    url = f"file://{tmp_path}/store"
    create_backup(data, RemoteBackups(url, recipients=[keys.recipient]))
    with pytest.raises(IllegalArgument, match="encrypted") as caught:
        restore_backup(url, tmp_path / "restored", at=1000)
    assert "--identity" in caught.value.hint


def test_settings_in_a_brokers_metadata_are_in_the_manifest_of_each_backup(
    data: Path, tmp_path: Path, target: RemoteBackups
) -> None:
    """Its records are read from the backup itself, also where the store has its files already."""
    shutil.copytree(data / "orders-0", data / "other-0")
    write_metadata(data, topic_values("other", {"retention.ms": "7"}))
    clock = Later()
    for _ in range(3):
        clock.hours += 1
        manifest = create_backup(data, target, clock=clock).manifest
        assert manifest.topics["other"] == {"retention.ms": "7"}


def test_a_full_disk_is_not_taken_for_a_failure_of_the_store(
    data: Path, tmp_path: Path, target: RemoteBackups, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_backup(data, target)

    class Full:
        def write(self, data: bytes) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(
        target.objects, "get",
        lambda file, sink, tell, real=target.objects.get: (setattr(sink, "_file", Full()), real(file, sink, tell)),
    )  # fmt: skip
    with pytest.raises(StorageError) as caught:
        restore_backup(target, tmp_path / "restored")
    assert caught.value.errno == errno.ENOSPC
    assert "kafkalog-download" in (caught.value.path or "") and "the store" not in caught.value.message
    monkeypatch.undo()
    assert is_whole(data, tmp_path, target)


@pytest.mark.parametrize("commits", [True, False])
def test_a_failed_upload_is_not_completed_by_the_garbage_collector(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: bool
) -> None:
    """fsspec's buffered files write the rest when they are collected, and Azure's know no `autocommit`."""
    memory = fsspec.filesystem("memory")
    real = memory.open

    class Blob(fsspec.spec.AbstractBufferedFile):  # type: ignore[misc]
        def _upload_chunk(self, final: bool = False) -> bool:
            if final:
                with real(self.path, "wb") as file:
                    file.write(self.buffer.getvalue())
            return not final

    def opened(path: str, mode: str = "rb", **more: Any) -> Any:
        return Blob(memory, path, mode, **more) if mode == "wb" else real(path, mode, **more)

    monkeypatch.setattr(memory, "open", opened)
    target = RemoteBackups("memory://blobs/backups")
    try:
        if commits:
            create_backup(data, target)
            assert is_whole(data, tmp_path, target)
        else:
            with pytest.raises(OSError, match="gone"):
                target.objects._write("files/half", half)
            gc.collect()
            assert target.objects._names("files") == set()
    finally:
        monkeypatch.undo()
        memory.rm("/", recursive=True)


def half(target: Any) -> None:
    target.write(b"half")
    raise ConnectionError("gone")


def test_nothing_is_downloaded_for_places_that_are_refused(
    data: Path, tmp_path: Path, target: RemoteBackups, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_backup(data, target)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr(target.objects, "get", lambda *_: pytest.fail("downloaded"))
        for places, words in (([tmp_path / "full"], r"has mine\.txt"), ([tmp_path / "a", tmp_path / "b"], "2 direct")):
            with pytest.raises(IllegalArgument, match=words):
                restore_backup(target, places)
    assert is_whole(data, tmp_path, target)
