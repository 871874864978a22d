"""Backups in object stores: the same bytes come back, each content is stored once, and nothing half done is visible."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.backup import (
    RemoteBackups,
    create_backup,
    delete_backups,
    list_backups,
    restore_backup,
    verify_backup,
)
from kafkalog.errors import CorruptBackup, IllegalArgument, NotAPartition, PartitionNotFound, StorageError
from kafkalog.server.groups.stored import committed_offsets
from kafkalog.util.fileio import OS
from tests import commands
from tests.backup.logs import append, files, fill, offsets
from tests.backup.test_create import Later
from tests.backup.test_moment_groups import write_offsets

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'kafkalog[fs]'")
pyrage = pytest.importorskip("pyrage", reason="pyrage is not installed: pip install 'kafkalog[encryption]'")
ROOT = Path(__file__).parents[2]
Target = Callable[..., RemoteBackups]


class Keys:
    """An age key pair: the recipient, and the file with the identity."""

    def __init__(self, path: Path) -> None:
        identity = pyrage.x25519.Identity.generate()
        self.recipient = str(identity.to_public())
        self.file = path
        self.file.write_text(f"# created for a test\n{identity}\n")


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "key.txt")


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield "memory://shop/backups" if request.param == "memory" else f"file://{tmp_path}/store"
    fsspec.filesystem("memory").rm("/", recursive=True)


@pytest.fixture(params=["plain", "encrypted"])
def target(request: pytest.FixtureRequest, url: str, keys: Keys) -> RemoteBackups:
    if request.param == "plain":
        return RemoteBackups(url)
    return RemoteBackups(url, recipients=[keys.recipient], identities=[keys.file])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    fill(tmp_path / "data", partitions=2, records=200)
    return tmp_path / "data"


def stored(target: RemoteBackups) -> dict[str, int]:
    """The size of each object of a file's content."""
    store, root = target.objects._fs, target.objects._root
    return {one["name"].rpartition("/")[2]: one["size"] for one in store.ls(f"{root}/files", detail=True)}


def left(tmp_path: Path) -> list[str]:
    """Directories that a run has left beside the data."""
    return [one.name for one in tmp_path.iterdir() if ".kafkalog-" in one.name]


def test_what_is_restored_is_the_same_byte_by_byte(data: Path, tmp_path: Path, target: RemoteBackups) -> None:
    report = create_backup(data, target)
    assert report.path == target.url
    assert list_backups(target) == [report.manifest]
    assert verify_backup(target).ok
    assert restore_backup(target, tmp_path / "restored") == report.manifest
    assert files(tmp_path / "restored") == files(data)
    assert left(tmp_path) == []


def test_a_later_backup_reads_and_stores_only_what_is_new(data: Path, tmp_path: Path, target: RemoteBackups) -> None:
    clock = Later()
    first = create_backup(data, target, clock=clock)
    before, content = stored(target), files(data)
    clock.hours += 1
    with kafkalog.open_dirs(data, "a") as dirs:
        append(dirs["orders", 1], 20)
    second = create_backup(data, target, clock=clock)
    assert second.linked > 3 * (second.copied + second.cloned)
    after = stored(target)
    assert before.items() <= after.items()
    assert sum(after.values()) - sum(before.values()) < sum(before.values()) / 2
    assert [one.id for one in list_backups(target)] == [first.manifest.id, second.manifest.id]
    for which, wanted in ((first.manifest.id, content), ("latest", files(data))):
        restore_backup(target, tmp_path / which, which)
        assert files(tmp_path / which) == wanted


def test_groups_offsets_are_in_the_manifest_of_each_backup(data: Path, tmp_path: Path) -> None:
    """Their records are read from the backup itself, also where the store has its files already."""
    target, clock = RemoteBackups(f"file://{tmp_path}/store"), Later()
    write_offsets(data, 7)
    for _ in range(2):
        clock.hours += 1
        report = create_backup(data, target, committed=committed_offsets, clock=clock)
        assert report.manifest.groups["readers"] == {"left": {0: 7}}


def test_a_moment_is_restored_from_the_first_backup_after_it(
    data: Path, tmp_path: Path, target: RemoteBackups
) -> None:
    clock = Later()
    for _ in range(3):
        clock.hours += 1
        create_backup(data, target, clock=clock)
        with kafkalog.open_dirs(data, "a") as dirs:
            append(dirs["orders", 0], 50)
    restored = restore_backup(target, tmp_path / "then", at=1000 + 99)
    assert restored.id == list_backups(target)[0].id
    assert offsets(tmp_path / "then" / "orders-0") == list(range(100))


def test_an_object_is_an_age_file_of_the_content(data: Path, url: str, keys: Keys) -> None:
    """`age -d -i key.txt` reads it: the backup does not depend on kafkalog."""
    target = RemoteBackups(url, recipients=[keys.recipient], identities=[keys.file])
    (file, *_) = create_backup(data, target).manifest.files
    assert all(name.endswith(".age") for name in stored(target))
    raw = target.objects._fs.cat_file(f"{target.objects._root}/files/{file.sha256}.age")
    identity = pyrage.x25519.Identity.from_str(keys.file.read_text().split()[-1])
    content = (data / file.path.partition("/")[2]).read_bytes()
    assert pyrage.decrypt(raw, [identity]) == content and content not in raw


def test_without_the_private_key_backups_are_created_and_not_read(
    data: Path, tmp_path: Path, url: str, keys: Keys
) -> None:
    writer = RemoteBackups(url, recipients=[keys.recipient])
    create_backup(data, writer, clock=(clock := Later()))
    before = stored(writer)
    clock.hours += 1
    create_backup(data, writer, clock=clock)
    assert stored(writer) == before
    assert len(writer.ids()) == 2
    for call in (
        lambda: list_backups(writer), lambda: verify_backup(writer), lambda: delete_backups(writer, [writer.ids()[0]]),
        lambda: restore_backup(writer, tmp_path / "restored"), lambda: restore_backup(url, tmp_path / "restored"),
    ):  # fmt: skip
        with pytest.raises(IllegalArgument, match="encrypted") as caught:
            call()
        assert "--identity" in caught.value.hint
    assert not (tmp_path / "restored").exists() and len(writer.ids()) == 2 and left(tmp_path) == []
    other = Keys(tmp_path / "other.txt")
    with pytest.raises(CorruptBackup, match="cannot be decrypted"):
        restore_backup(RemoteBackups(url, identities=[other.file]), tmp_path / "restored")
    restore_backup(RemoteBackups(url, identities=[other.file, keys.file]), tmp_path / "restored")
    assert files(tmp_path / "restored") == files(data)


def test_plain_and_encrypted_backups_share_a_store_and_no_object(
    data: Path, tmp_path: Path, url: str, keys: Keys
) -> None:
    """An encrypted backup does not rely on contents that lie there for all to read."""
    clock = Later()
    create_backup(data, RemoteBackups(url), clock=clock)
    clock.hours += 1
    both = RemoteBackups(url, recipients=[keys.recipient], identities=[keys.file])
    create_backup(data, both, clock=clock)
    delete_backups(both, [both.ids()[0]])
    assert verify_backup(both).ok
    restore_backup(both, tmp_path / "restored")
    assert files(tmp_path / "restored") == files(data)


def test_a_deleted_backup_takes_only_what_no_other_has(data: Path, tmp_path: Path, target: RemoteBackups) -> None:
    clock, wanted = Later(), {}
    for _ in range(3):
        clock.hours += 1
        made = create_backup(data, target, clock=clock)
        wanted[made.manifest.id] = files(data)
        with kafkalog.open_dirs(data, "a") as dirs:
            append(dirs["orders", 0], 50)
    first, second, third = target.ids()
    delete_backups(target, [second, first])
    assert target.ids() == [third] and verify_backup(target).ok
    needed = {file.sha256 for file in target.manifest().files}
    assert {name.removesuffix(".age") for name in stored(target)} == needed
    restore_backup(target, tmp_path / "restored")
    assert files(tmp_path / "restored") == wanted[third]
    with pytest.raises(PartitionNotFound, match="there is no backup"):
        delete_backups(target, [first])


def flip(raw: bytes) -> bytes:
    return raw[: len(raw) // 2] + bytes([raw[len(raw) // 2] ^ 1]) + raw[len(raw) // 2 + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "flipped": flip, "cut": lambda raw: raw[:-1], "longer": lambda raw: raw + b"!", "missing": lambda raw: None,
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("kind", ["files", "manifests"])
def test_a_damaged_object_is_named_and_nothing_is_restored(
    data: Path, tmp_path: Path, target: RemoteBackups, kind: str, damage: str
) -> None:
    create_backup(data, target)
    store, root = target.objects._fs, target.objects._root
    sizes = {one["name"]: one["size"] for one in store.ls(f"{root}/{kind}", detail=True)}
    name = max(sizes, key=sizes.__getitem__)
    changed = DAMAGE[damage](store.cat_file(name))
    if changed is None:
        store.rm_file(name)
    else:
        store.pipe_file(name, changed)
    if kind == "manifests" and damage == "missing":
        with pytest.raises(PartitionNotFound, match="there is no backup"):
            restore_backup(target, tmp_path / "restored")
        return
    with pytest.raises(CorruptBackup) as caught:
        restore_backup(target, tmp_path / "restored")
    wanted = name.rpartition("/")[2]
    assert (caught.value.path or "").rpartition("/")[2].removesuffix(".age") == wanted.removesuffix(".age")
    assert not (tmp_path / "restored").exists() and left(tmp_path) == []
    (found, *_) = verify_backup(target)
    assert found.severity == "damage" and wanted.removesuffix(".age") in found.path


def test_something_else_is_never_taken_for_a_store(data: Path, tmp_path: Path, url: str) -> None:
    fs, path = fsspec.core.url_to_fs(f"{url}/mine.txt")
    fs.makedirs(path.rpartition("/")[0], exist_ok=True)
    fs.pipe_file(path, b"mine")
    with pytest.raises(IllegalArgument, match="other than a store of backups"):
        create_backup(data, url)
    for call in (list_backups, verify_backup, lambda one: restore_backup(one, tmp_path / "restored")):
        with pytest.raises(PartitionNotFound, match="no backups were created"):
            call(url)
    (tmp_path / "data.kafkalog-backup").mkdir()
    (tmp_path / "data.kafkalog-backup" / "mine.txt").write_text("mine")
    with pytest.raises(IllegalArgument, match=r"mine\.txt"):
        create_backup(data, f"{url}/other")
    assert (tmp_path / "data.kafkalog-backup" / "mine.txt").read_text() == "mine"
    create_backup(data, tmp_path / "backups")
    for inside in (RemoteBackups(f"{url}/other", staging=data / "here"), f"file://{data}/store"):
        with pytest.raises(IllegalArgument, match="overlap"):
            create_backup(data, inside)
    with pytest.raises(IllegalArgument, match="not a staging directory"):
        create_backup(data, RemoteBackups(f"{url}/other", staging=tmp_path / "backups"))
    assert verify_backup(tmp_path / "backups").ok and not {"here", "store"} & set(os.listdir(data))


def test_a_store_in_files_is_no_directory_of_backups(data: Path, tmp_path: Path) -> None:
    create_backup(data, f"file://{tmp_path}/store")
    for call in (list_backups, verify_backup, lambda path: create_backup(data, path)):
        with pytest.raises(IllegalArgument, match="is not a directory of backups"):
            call(tmp_path / "store")
    create_backup(data, tmp_path / "backups")
    with pytest.raises(IllegalArgument, match="other than a store of backups"):
        create_backup(data, f"file://{tmp_path}/backups")


def test_what_was_prepared_for_another_store_is_not_uploaded(data: Path, tmp_path: Path) -> None:
    """A run that was killed before its upload left a whole backup."""
    urls = [f"file://{tmp_path}/{name}" for name in ("first", "second")]
    target = RemoteBackups(urls[0])
    target.objects.create()
    clock = Later()
    with pytest.raises(StorageError), target.local_copy(f"{data}.kafkalog-backup", OS) as local:
        create_backup(data, local.path, clock=clock)
        raise StorageError("killed")
    clock.hours += 1
    prepared = create_backup(data, target, clock=clock)
    assert len(target.ids()) == 2 and all(verify_backup(target, one).ok for one in target.ids())
    with pytest.raises(StorageError), target.local_copy(f"{data}.kafkalog-backup", OS) as local:
        clock.hours += 1
        create_backup(data, local.path, clock=clock)
        raise StorageError("killed")
    clock.hours += 1
    made = create_backup(data, urls[1], clock=clock)
    assert RemoteBackups(urls[1]).ids() == [made.manifest.id] and prepared.manifest.id != made.manifest.id
    assert verify_backup(urls[1]).ok and left(tmp_path) == []


def test_keys_that_are_none_are_refused(tmp_path: Path, keys: Keys) -> None:
    (tmp_path / "empty").write_text("# nothing\n")
    secret = "AGE-SECRET-KEY-1WRONG"
    (tmp_path / "wrong").write_text(secret)
    for more, words in (
        ({"recipients": ["age1wrong"]}, "is not a recipient"), ({"recipients": [str(tmp_path / "empty")]}, "no recip"),
        ({"identities": [tmp_path / "wrong"]}, "no private key"), ({"identities": [tmp_path / "empty"]}, "no private"),
    ):  # fmt: skip
        with pytest.raises(IllegalArgument, match=words) as caught:
            RemoteBackups("memory://x", **more)  # type: ignore[arg-type]
        assert secret not in str(caught.value)
    with pytest.raises(StorageError):
        RemoteBackups("memory://x", identities=[tmp_path / "nowhere"])
    with pytest.raises(IllegalArgument, match="only in an object store"):
        RemoteBackups("backups", recipients=[keys.recipient])
    (tmp_path / "recipients").write_text(f"# ours\n{keys.recipient}\n")
    assert RemoteBackups("memory://x", recipients=[str(tmp_path / "recipients")]).objects._encryption.encrypts


KILLED = """
import os, sys
sys.path.insert(0, sys.argv[1])
from kafkalog.backup import create_backup, restore_backup, delete_backups, RemoteBackups
from kafkalog.backup.remote import objects, local_copy, encryption
import fsspec, fsspec.implementations.local, concurrent.futures.thread, pyrage
target = RemoteBackups(sys.argv[2], recipients=[sys.argv[5]], identities=[sys.argv[6]])
left = int(sys.argv[3])

def killing(event, arguments):
    global left
    if event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link") or event == "open" and (
        isinstance(arguments[1], str) and set(arguments[1]) & set("wax") or arguments[2] & (os.O_WRONLY | os.O_RDWR)
    ):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), 9)

sys.addaudithook(killing)
eval(sys.argv[4])
"""


def kill_at(root: Path, url: str, nth: int, keys: Keys, code: str) -> bool:
    """Return True if the code reached its `nth` change of files, where it is killed."""
    line = [sys.executable, "-c", KILLED, ROOT, url, nth, code, keys.recipient, keys.file]
    done = subprocess.run([str(one) for one in line], cwd=root, capture_output=True, text=True)
    assert done.returncode in (0, -9), done.stderr
    return done.returncode != 0


@pytest.mark.crash
def test_kills_leave_the_backups_whole_and_the_next_run_ends_well(data: Path, tmp_path: Path, keys: Keys) -> None:
    url = f"file://{tmp_path}/store"
    target = RemoteBackups(url, identities=[keys.file])
    kills, nth = 0, 4
    while kill_at(tmp_path, url, nth, keys, "create_backup('data', target)"):
        kills += 1
        nth += 29
        if (tmp_path / "store").exists() and "kafkalog.objects" in os.listdir(tmp_path / "store"):
            assert all(verify_backup(target, one).ok for one in target.ids())
    assert kills > 5 and all(verify_backup(target, one).ok for one in target.ids())
    kills, nth = 0, 4
    while kill_at(tmp_path, url, nth, keys, "restore_backup(target, 'restored')"):
        kills += 1
        nth += 29
        half = tmp_path / "restored"
        if (half / "kafkalog-restore.partial").exists():
            with pytest.raises(NotAPartition, match="kafkalog-restore"):
                kafkalog.open_dirs(half, "a")
        elif half.exists() and files(half) == files(data):  # only the staging directory is left
            with pytest.raises(IllegalArgument, match="restore into an empty directory"):
                restore_backup(target, half)
            break
        else:
            assert not half.exists() or files(half) == {}
    assert kills > 5 and files(tmp_path / "restored") == files(data)
    nth = 3
    while len(target.ids()) > 1:
        kill_at(tmp_path, url, nth, keys, f"delete_backups(target, ['{target.ids()[0]}'])")
        nth += 5
        assert all(verify_backup(target, one).ok for one in target.ids())
    assert left(tmp_path) == []


def test_an_object_that_does_not_reach_the_disk_is_no_backup(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, real = RemoteBackups(f"file://{tmp_path}/store"), OS.fsync

    def sync(fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if path.startswith(f"{tmp_path}/store/") and path.endswith(".partial"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    monkeypatch.setattr(OS, "fsync", sync)
    with pytest.raises(StorageError, match=os.strerror(errno.EIO)):
        create_backup(data, target)
    monkeypatch.undo()
    objects = (tmp_path / "store" / "files").rglob("*")
    assert not [one for one in objects if one.is_file() and one.suffix != ".partial"]
    report = create_backup(data, target)
    assert verify_backup(target, report.manifest.id).ok


def test_a_store_that_fails_is_gone_on_with(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call of the store fails once: no backup appears before it is whole, and the next run ends well."""
    memory = fsspec.filesystem("memory")
    target = RemoteBackups("memory://shop/failing")
    calls = 0
    fails_at = 0

    def failing(name: str) -> Callable[..., Any]:
        real = getattr(memory, name)

        def call(*given: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == fails_at:
                raise ConnectionError("the line is dead")
            return real(*given, **more)

        return call

    for name in ("open", "ls", "info"):
        monkeypatch.setattr(memory, name, failing(name))
    try:
        failures = {"create": 0, "restore": 0}
        for what, work in (
            ("create", lambda: create_backup(data, target)),
            ("restore", lambda: restore_backup(target, tmp_path / "restored")),
        ):
            for nth in range(1, 1000, 3):
                calls, fails_at = 0, nth
                try:
                    work()
                    break
                except StorageError as error:
                    assert "the line is dead" in error.message
                    failures[what] += 1
                finally:
                    fails_at = 0
                assert what == "restore" or nth < 4 or all(verify_backup(target, one).ok for one in target.ids())
        assert min(failures.values()) > 5
        assert files(tmp_path / "restored") == files(data)
        assert left(tmp_path) == []
    finally:
        monkeypatch.undo()
        memory.rm("/", recursive=True)


def test_the_command_line(data: Path, tmp_path: Path, keys: Keys) -> None:
    url = f"file://{tmp_path}/store"
    key = ("--identity", keys.file)
    made = commands.ok("backup", "-d", data, url, "--recipient", keys.recipient, *key).decode()
    assert made.startswith(f"{url}: 1 topic, 2 partitions, 400 offsets")
    assert commands.ok("backup", "list", url, *key).decode().count("2 partitions") == 1
    assert commands.ok("backup", "verify", url, *key).decode().rstrip().endswith("sound")
    (which,) = RemoteBackups(url).ids()
    commands.ok("restore", url, *key, "-d", tmp_path / "restored", "--staging", tmp_path / "room")
    assert files(tmp_path / "restored") == files(data) and not (tmp_path / "room").exists()
    done = commands.kafkalog("backup", "list", url)
    assert done.returncode == 2 and b"--identity FILE" in done.stderr
    done = commands.kafkalog("backup", "verify", "--deep", url, *key)
    assert done.returncode == 2 and b"verify the restored directories" in done.stderr
    done = commands.kafkalog("backup", "-d", data, tmp_path / "here", "--recipient", keys.recipient)
    assert done.returncode == 2 and not (tmp_path / "here").exists()
    done = commands.kafkalog("backup", "-d", data, url, "--recipient", keys.recipient, "--keep", "1")
    assert done.returncode == 2 and b"--identity FILE" in done.stderr and RemoteBackups(url).ids() == [which]
    commands.ok("backup", "delete", url, which, *key)
    assert RemoteBackups(url).ids() == []
    for _ in range(2):
        report = json.loads(commands.ok("backup", "-J", "--keep", "1", "-d", data, url))
    assert RemoteBackups(url).ids() == [report["id"]]
