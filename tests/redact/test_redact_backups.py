"""`redact_backups`: the wanted records go from every backup, all else of each backup is as before."""

import errno
import os
import shutil
from collections.abc import Iterator
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
from kafkalog.backup.store import BackupStore
from kafkalog.errors import (
    CorruptBackup,
    CorruptRecord,
    DirectoryLocked,
    IllegalArgument,
    IllegalState,
    StorageError,
    UnknownTopicOrPartition,
)
from kafkalog.redact.backups.redact import redact_backups
from kafkalog.redact.directories import redact
from tests.backup.test_create import Later
from tests.backup.test_object_store import Keys
from tests.faults import FaultFS
from tests.redact.model import read_all, redacted
from tests.redact.test_redact import tree

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'kafkalog[fs]'")
pytest.importorskip("pyrage", reason="pyrage is not installed: pip install 'kafkalog[encryption]'")
SETTINGS = {"segment.bytes": 1500, "index.interval.bytes": 200, "retention.ms": -1}
KEY = b"k3"


def fill(data: Path, topic: str = "t", partitions: int = 2, records: int = 48) -> None:
    """More records of a topic: segments of about 15, in each partition."""
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        if topic not in dirs.topics:
            dirs.create_topic(topic, partitions, SETTINGS)
        for log in dirs.logs(topic):
            for n in range(log.end_offset, log.end_offset + records, 3):
                log.append([(b"k%d" % (m % 8), b"secret %d of %d." % (m, m % 8), m) for m in range(n, n + 3)])


@pytest.fixture(params=["directory", "plain", "encrypted"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "directory":
        yield tmp_path / "backups"
        return
    url, staging = f"file://{tmp_path}/store", tmp_path / "staging"
    keys = Keys(tmp_path / "key.txt")
    if request.param == "plain":
        yield RemoteBackups(url, staging=staging)
    else:
        yield RemoteBackups(url, recipients=[keys.recipient], identities=[keys.file], staging=staging)


def back_up(data: Path, target: Any, count: int = 2) -> list[str]:
    """Backups of a growing topic; return their ids."""
    clock, ids = Later(), []
    for _ in range(count):
        fill(data)
        clock.hours += 1
        ids.append(create_backup(data, target, clock=clock).manifest.id)
    return ids


def restored(target: Any, which: str, to: Path) -> dict[str, list[Any]]:
    """The batches of each partition of a backup."""
    restore_backup(target, to, which)
    found = {one.name: read_all(one) for one in sorted(to.iterdir()) if one.is_dir() and "-" in one.name}
    assert kafkalog.verify(to, deep=True).ok
    shutil.rmtree(to)
    return found


def content_of(target: Any, tmp_path: Path) -> bytes:
    """All bytes in a directory of backups, or in a store that is not encrypted."""
    return b"".join(tree(tmp_path / ("store" if isinstance(target, RemoteBackups) else "backups")).values())


@pytest.mark.parametrize("given", [{"keys": [KEY]}, {"offsets": {0: [3, 60], 1: [4]}}, {"where": "key == 'k3'"}])
def test_wanted_records_go_from_all_backups_and_nothing_else(tmp_path: Path, target: Any, given: Any) -> None:
    ids = back_up(tmp_path / "data", target)
    before = {one: restored(target, one, tmp_path / "restored") for one in ids}
    manifests = list_backups(target)
    dry = redact_backups(target, "t", **given)
    assert {one: restored(target, one, tmp_path / "restored") for one in ids} == before
    report = redact_backups(target, "t", apply=True, **given)
    assert report.ok and report.left == 0 and report.records == dry.records > 0
    assert "searched again: none of the records is left in these backups" in str(report)
    for which in ids:
        model = {}
        for name, batches in before[which].items():
            own = set(given.get("offsets", {}).get(int(name[-1]), ()))
            if "offsets" not in given:
                own = {one.offset for batch in batches for one in batch.records if one.key == KEY}
            model[name] = [redacted(one, own, tombstone=False) for one in batches]
        assert restored(target, which, tmp_path / "restored") == model
    after = list_backups(target)
    for old, new in zip(manifests, after, strict=True):
        assert new.redactions == 1 and new.created_ms == old.created_ms and new.groups == old.groups
        assert [one.path for one in new.files] == [one.path for one in old.files]
    assert all(verify_backup(target, one).ok for one in ids)
    if "keys" in given:
        content = content_of(target, tmp_path)
        assert b" of 3." not in content and (b" of 4." in content or getattr(target, "objects", None))
    assert not redact_backups(target, "t", apply=True, **given).segments
    left = [one.name for one in tmp_path.iterdir() if one.name not in ("data", "backups", "store", "key.txt")]
    assert not left


def test_each_content_is_rewritten_once_and_shared_by_the_backups(tmp_path: Path) -> None:
    ids = back_up(tmp_path / "data", tmp_path / "backups", 3)
    fs = FaultFS()
    report = redact_backups(tmp_path / "backups", "t", offsets={0: [3]}, apply=True, fs=fs)
    assert [one.records for one in report.segments] == [1, 1, 1]
    written = {one.path for one in fs.calls if one.op == "pwrite" and one.path.endswith(".log")}
    assert len(written) == 1
    names = [tmp_path / "backups" / one / "dir0" / "t-0" / f"{0:020d}.log" for one in ids]
    assert len({one.stat().st_ino for one in names}) == 1
    reads = [one.path for one in fs.calls if one.op in ("pread", "preadv") and one.path.endswith(".log")]
    assert not [one for one in reads if "/t-1/" in one], "offsets of partition 0 are looked for there"


def test_the_next_backup_of_an_unredacted_log_has_what_the_log_has(tmp_path: Path) -> None:
    data, backups = tmp_path / "data", tmp_path / "backups"
    back_up(data, backups, 1)
    redact_backups(backups, "t", keys=[KEY], apply=True)
    create_backup(data, backups)
    restore_backup(backups, tmp_path / "restored")
    assert read_all(tmp_path / "restored" / "t-0") == read_all(data / "t-0")
    redact(data, "t", keys=[KEY], apply=True)
    redact_backups(backups, "t", keys=[KEY], apply=True)
    assert b" of 3." not in b"".join(tree(tmp_path / "backups").values())


def test_readers_see_a_backup_at_each_moment_of_its_replacement(tmp_path: Path) -> None:
    """A failure of any call leaves every backup whole, old or redacted, and the next run completes the rest."""
    data, backups = tmp_path / "data", tmp_path / "backups"
    (first, second) = back_up(data, backups)
    shutil.copytree(backups, tmp_path / "saved", symlinks=True)
    old, new = read_all(backups / second / "dir0" / "t-0"), None
    for nth in range(1, 200, 2):
        fs = FaultFS()
        rule = fs.fail("rename", "unlink", "link", "pwrite", "fsync", path=str(backups), nth=nth, times=1)
        try:
            redact_backups(backups, "t", offsets={0: [60]}, apply=True, fs=fs)
        except StorageError:
            assert rule.fired
        store = BackupStore(backups)
        assert store.ids() == [first, second] and all(verify_backup(backups, one).ok for one in store.ids())
        found = read_all(Path(store.find(second)) / "dir0" / "t-0")
        if not rule.fired:
            new = found
            break
        assert found == old or found != old and redact_backups(backups, "t", offsets={0: [60]}).records == 0
        create_backup(data, backups)  # which cleans up
        delete_backups(backups, store.ids()[2:])
        shutil.rmtree(backups)
        shutil.copytree(tmp_path / "saved", backups, symlinks=True)
    assert nth > 20 and new != old


def test_damage_raises_before_any_backup_changes(tmp_path: Path) -> None:
    data, backups = tmp_path / "data", tmp_path / "backups"
    fill(data)
    path = sorted((data / "t-1").glob("*.log"))[1]
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    create_backup(data, backups)
    before = tree(backups)
    with pytest.raises(CorruptRecord) as caught:
        redact_backups(backups, "t", keys=[KEY], apply=True)
    assert "restore" in str(caught.value.hint) and tree(backups) == before


def test_a_segment_that_was_being_replaced_is_refused(tmp_path: Path) -> None:
    data, backups = tmp_path / "data", tmp_path / "backups"
    fill(data)
    first = sorted((data / "t-0").glob("*.log"))[0]
    shutil.copy(first, f"{first}.swap")
    create_backup(data, backups)
    with pytest.raises(IllegalState, match="being replaced"):
        redact_backups(backups, "t", keys=[KEY])


def test_bad_calls(tmp_path: Path, target: Any) -> None:
    back_up(tmp_path / "data", target, 1)
    with pytest.raises(UnknownTopicOrPartition, match="no backup has the topic"):
        redact_backups(target, "other", keys=[KEY])
    with pytest.raises(UnknownTopicOrPartition, match="no partition 7"):
        redact_backups(target, "t", offsets={7: [1]})
    with pytest.raises(IllegalArgument, match="no records are named"):
        redact_backups(target, "t")
    assert redact_backups(target, "t", keys=[KEY, b"none"]).missing == ("key 'none'",)
    if isinstance(target, RemoteBackups):
        with pytest.raises(IllegalArgument, match="no directory for them is given"):
            redact_backups(target.url, "t", keys=[KEY])


def test_without_recipients_an_encrypted_backup_stays_as_it_is(tmp_path: Path) -> None:
    keys, url = Keys(tmp_path / "key.txt"), f"file://{tmp_path}/store"
    back_up(tmp_path / "data", RemoteBackups(url, recipients=[keys.recipient]), 1)
    before = tree(tmp_path / "store")
    reading = RemoteBackups(url, identities=[keys.file], staging=tmp_path / "staging")
    assert redact_backups(reading, "t", keys=[KEY]).records
    with pytest.raises(IllegalArgument, match="is encrypted") as caught:
        redact_backups(reading, "t", keys=[KEY], apply=True)
    assert "--recipient" in str(caught.value.hint) and tree(tmp_path / "store") == before
    assert not (tmp_path / "staging").exists()
    with pytest.raises(IllegalArgument, match="encrypted"):
        redact_backups(RemoteBackups(url, staging=tmp_path / "staging"), "t", keys=[KEY])


def test_what_killed_runs_left_is_named_and_removed(tmp_path: Path, target: Any) -> None:
    (first,) = back_up(tmp_path / "data", target, 1)
    if isinstance(target, RemoteBackups):
        left = tmp_path / "store" / "files" / f"{'0' * 64}.1234.partial"
        left.write_bytes(b"secret 3.")
    else:
        left = tmp_path / "backups" / "20200101T000000Z.partial"
        left.mkdir()
        (left / "secret").write_bytes(b"secret 3.")
    assert "--apply removes it" in str(redact_backups(target, "t", keys=[KEY]))
    assert redact_backups(target, "t", keys=[KEY], apply=True).ok and not left.exists()
    assert verify_backup(target, first).ok


def test_while_a_backup_is_created_there_nothing_is_redacted(tmp_path: Path) -> None:
    from kafkalog.backup.store import StoreLock

    back_up(tmp_path / "data", tmp_path / "backups", 1)
    with StoreLock(tmp_path / "backups"):
        assert redact_backups(tmp_path / "backups", "t", keys=[KEY]).records
        with pytest.raises(DirectoryLocked):
            redact_backups(tmp_path / "backups", "t", keys=[KEY], apply=True)


def test_a_store_with_both_manifests_of_a_redaction_has_the_redacted_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between the upload of the new manifest and the deletion of the old one."""
    target = RemoteBackups(f"file://{tmp_path}/store", staging=tmp_path / "staging")
    (which,) = back_up(tmp_path / "data", target, 1)
    with monkeypatch.context() as patch:
        patch.setattr("kafkalog.backup.remote.objects.StoredObjects.delete_superseded", lambda self: None)
        assert redact_backups(target, "t", keys=[KEY], apply=True).ok
    assert len(list((tmp_path / "store" / "manifests").iterdir())) == 2
    assert target.ids() == [which] and target.manifest(which).redactions == 1
    assert not redact_backups(target, "t", keys=[KEY], apply=True).segments
    assert len(list((tmp_path / "store" / "manifests").iterdir())) == 1
    assert verify_backup(target).ok and b" of 3." not in content_of(target, tmp_path)


@pytest.mark.parametrize("what", ["missing", "cut"])
def test_a_file_that_is_not_the_one_stored_does_not_stand_for_its_content(tmp_path: Path, what: str) -> None:
    backups = tmp_path / "backups"
    ids = back_up(tmp_path / "data", backups)
    name = f"dir0/t-0/{0:020d}.log"
    first, second = (backups / one / name for one in ids)
    content = first.read_bytes()
    first.unlink()
    if what == "cut":
        first.write_bytes(content[: 12 + int.from_bytes(content[8:12], "big")])  # all but the first batch
    before = second.read_bytes()
    with pytest.raises(CorruptBackup) as caught:
        redact_backups(backups, "t", offsets={0: [4]}, apply=True)
    assert str(first) in str(caught.value) and caught.value.hint
    assert second.read_bytes() == before == content
    delete_backups(backups, [ids[0]])
    assert redact_backups(backups, "t", offsets={0: [4]}, apply=True).records == 1


def test_damage_beside_the_records_wanted_gets_no_new_sum(tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    which = back_up(tmp_path / "data", backups, 1)[0]
    path = backups / which / "dir0" / "t-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[12 + int.from_bytes(content[8:12], "big") + 15] ^= 1  # the epoch of the second batch has no checksum
    path.chmod(0o644)
    path.write_bytes(content)
    assert not verify_backup(backups, which).ok
    with pytest.raises((CorruptBackup, CorruptRecord)) as caught:
        redact_backups(backups, "t", offsets={0: [0]}, apply=True)
    assert str(path) in str(caught.value) and caught.value.hint
    assert path.read_bytes() == content and not verify_backup(backups, which).ok


def test_plain_and_encrypted_backups_in_one_store(tmp_path: Path) -> None:
    """Their shared contents are there in both forms: both go, and the plain backup needs no private key."""
    url, staging, keys = f"file://{tmp_path}/store", tmp_path / "staging", Keys(tmp_path / "key.txt")
    plain = RemoteBackups(url, staging=staging)
    both = RemoteBackups(url, recipients=[keys.recipient], identities=[keys.file], staging=staging)
    first = back_up(tmp_path / "data", plain, 1)[0]
    second = create_backup(tmp_path / "data", both).manifest.id
    before = restored(plain, first, tmp_path / "restored")
    assert restored(both, second, tmp_path / "restored") == before
    report = redact_backups(both, "t", keys=[KEY], apply=True)
    assert report.ok and report.left == 0 and len(report.segments) % 2 == 0
    assert b" of 3." not in content_of(both, tmp_path)
    after = restored(plain, first, tmp_path / "restored")
    assert after == restored(both, second, tmp_path / "restored") != before
    assert verify_backup(plain, first).ok and verify_backup(both, second).ok


def test_a_directory_of_a_backup_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files would be missing in the backup that replaces this one."""
    data, target = tmp_path / "data", tmp_path / "backups"
    (backup,) = back_up(data, target, 1)
    scan = os.scandir

    def fail(path: Any) -> Any:
        if str(path).endswith(f"{backup}/dir0/t-1"):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return scan(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", fail)
        with pytest.raises(StorageError, match="cannot read the directory.*t-1"):
            redact_backups(target, "t", keys=[KEY], partitions=[0], apply=True)
    assert not verify_backup(target, backup).findings
    assert redact_backups(target, "t", keys=[KEY], apply=True).segments
