"""Manifests in an object store: two of one backup, of which one is damaged, and how often they are listed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.backup import RemoteBackups, create_backup, delete_backups, list_backups, verify_backup
from kafkalog.errors import PartitionNotFound, StorageError
from tests.backup.logs import fill
from tests.backup.test_create import Later

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'kafkalog[fs]'")


@pytest.fixture
def target(tmp_path: Path) -> Iterator[RemoteBackups]:
    """A store with six backups."""
    fill(tmp_path / "data", partitions=1, records=10)
    found, clock = RemoteBackups("memory://shop/manifests", staging=tmp_path / "staging"), Later()
    for _ in range(6):
        clock.hours += 1
        create_backup(tmp_path / "data", found, clock=clock)
    yield found
    fsspec.filesystem("memory").store.clear()


def listings(target: RemoteBackups, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The places that are listed from now on."""
    real, calls = target.objects._names, list[str]()

    def names(below: str) -> set[str]:
        calls.append(below)
        return real(below)

    monkeypatch.setattr(target.objects, "_names", names)
    return calls


def test_listings_do_not_grow_with_the_square_of_the_backups(
    target: RemoteBackups, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, ids = listings(target, monkeypatch), target.ids()
    calls.clear()
    assert [one.id for one in list_backups(target)] == ids
    assert len(calls) <= len(ids) + 2
    calls.clear()
    delete_backups(target, ids[:3])
    assert len(calls) <= 12 and target.ids() == ids[3:]


def test_a_delete_believes_no_listing_that_lacks_backups(
    target: RemoteBackups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store whose listings are late: the contents of a backup that is not listed would be deleted."""
    ids, real, calls = target.ids(), target.objects.all_manifest_names, list[int]()

    def manifests() -> dict[str, list[str]]:
        calls.append(1)
        found = real()
        return found if len(calls) == 1 else {which: found[which] for which in ids[:3]}

    with monkeypatch.context() as patch:
        patch.setattr(target.objects, "all_manifest_names", manifests)
        with pytest.raises(StorageError, match="does not list the backup"):
            delete_backups(target, ids[:1])
    assert target.ids() == ids and all(verify_backup(target, one).ok for one in ids)


def test_a_backup_that_does_not_exist_has_no_manifest(target: RemoteBackups) -> None:
    with pytest.raises(PartitionNotFound, match="there is no backup '20200101T000000Z'"):
        target.manifest("20200101T000000Z")
    with pytest.raises(PartitionNotFound, match="no backups were created"):
        RemoteBackups("memory://shop/nothing").manifest("20200101T000000Z")


def test_a_damaged_manifest_beside_another_one_is_reported(target: RemoteBackups) -> None:
    """A redaction that was killed leaves both manifests of a backup."""
    made = target.manifest()
    target.objects._put_manifest(made._replace(redactions=made.redactions + 1), False)
    name = target.objects.manifest_name(made.id)
    target.objects._fs.pipe_file(f"{target.objects._root}/manifests/{name}", b"{}")
    report = verify_backup(target)
    assert not report.ok and "manifest differs" in report.findings[0].what
