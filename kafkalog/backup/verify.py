"""`verify_backup`: check that the files of a backup are those that were stored."""

from __future__ import annotations

import os
from collections.abc import Iterator

from kafkalog.backup.copying import Tell, sum_of
from kafkalog.backup.manifest import MANIFEST, SUMS, Manifest, StoredFile, read_manifest, sums_of
from kafkalog.backup.remote.backups import RemoteBackups, located
from kafkalog.backup.store import LATEST, BackupStore, id_in
from kafkalog.errors import CorruptBackup, IllegalArgument, StorageError
from kafkalog.storage.names import LOCK_FILE, LOG_SUFFIX
from kafkalog.tools.directories import Path
from kafkalog.tools.verify.directories import verify
from kafkalog.tools.verify.report import Finding, Report, Severity, Sums
from kafkalog.util.fileio import OS, FileSystem

_ANOTHER = "restore another backup, and create the next one with --full, so that it reuses no files of this one"


def verify_backup(
    target: Path | RemoteBackups,
    which: str = LATEST,
    *,
    deep: bool = False,
    tell: Tell | None = None,
    fs: FileSystem = OS,
) -> Report:
    """Compare every file of a backup with its recorded length and SHA-256 sum.

    `deep` also verifies the logs in it, as `kafkalog.verify` does: that finds damage from before the backup. `tell` is
    called with the number of bytes as they are read. A backup that is redacted meanwhile is read again. The report
    lists damage. PartitionNotFound if there is no such backup, or it is deleted meanwhile; IllegalArgument for a
    directory without backups, or for `deep` with an object store.

    >>> made = kafkalog.backup.create_backup("data", "backups")    # of `log`
    >>> verify_backup("backups").ok
    True
    """
    remote = located(target)
    if isinstance(remote, RemoteBackups):
        if deep:
            raise IllegalArgument(
                "logs in an object store of backups are not verified", path=remote.url,
                hint="restore the backup, and verify the restored directories",
            )  # fmt: skip
        return remote.verify(which, tell)
    store = BackupStore(remote, fs=fs)
    path = store.find(which)
    while True:
        before = _manifest_inode(path, fs)
        report = _verify(path, deep, tell, fs)
        if report.ok:
            return report
        path = store.find(id_in(path))  # raises if it was deleted meanwhile
        if _manifest_inode(path, fs) == before:
            return report


def _manifest_inode(path: str, fs: FileSystem) -> int | None:
    """Return the inode of a backup's manifest, which a redaction replaces; None if it cannot be examined."""
    try:
        return fs.stat(os.path.join(path, MANIFEST)).st_ino
    except OSError:
        return None


def _verify(path: str, deep: bool, tell: Tell | None, fs: FileSystem) -> Report:
    sums = Sums()
    findings: list[Finding] = []
    try:
        manifest = read_manifest(path, fs)
    except CorruptBackup as error:
        return Report((_damage("manifest", error.path or path, error.message),))
    findings += _check_sums(path, manifest, fs)
    for file in manifest.files:
        findings += _check_file(os.path.join(path, file.path), file, tell, fs)
        sums.files += 1
        if file.path.endswith(LOG_SUFFIX):
            sums.segments += 1
            sums.bytes += file.size
    sums.partitions = len(manifest.partitions)
    findings += [_extra(found) for found in _unknown_files(path, manifest)]
    if deep:
        found = verify([os.path.join(path, one.name) for one in manifest.directories], deep=True, fs=fs)
        findings += found.findings
        sums.batches, sums.records = found.sums.batches, found.sums.records
    return Report(tuple(findings), sums)


def _check_sums(path: str, manifest: Manifest, fs: FileSystem) -> Iterator[Finding]:
    """Check the manifest against the list of checksums, and that list against the manifest."""
    where = os.path.join(path, SUMS)
    try:
        _, own = sum_of(fs, os.path.join(path, MANIFEST))
        with fs.open_file(where, "r") as file:
            listed = file.pread(file.size(), 0)
    except OSError as error:
        yield _unreadable(where, error)
        return
    if listed != sums_of(manifest.files, own):
        yield _damage("manifest", where, f"it does not match {MANIFEST}: one of the two was changed")


def _check_file(path: str, file: StoredFile, tell: Tell | None, fs: FileSystem) -> Iterator[Finding]:
    try:
        size, sums = sum_of(fs, path, tell)
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            yield _damage("missing", path, "the file is missing")
        else:
            yield _unreadable(path, error)
        return
    if size != file.size:
        yield _damage("length", path, f"it has {size:,} bytes, but {file.size:,} were stored")
    elif sums != file.sha256:
        yield _damage("checksum", path, "its content differs from what was stored")


def _unknown_files(path: str, manifest: Manifest) -> Iterator[str]:
    """Yield files in the backup's data directories that are not part of it."""
    known = {os.path.join(path, file.path) for file in manifest.files}
    for one in manifest.directories:
        for below, directories, names in os.walk(os.path.join(path, one.name)):
            if LOCK_FILE in directories:
                directories.remove(LOCK_FILE)
            yield from (found for name in sorted(names) if (found := os.path.join(below, name)) not in known)


def _damage(kind: str, path: str, what: str) -> Finding:
    return Finding(Severity.DAMAGE, kind, path, what, hint=_ANOTHER)


def _extra(path: str) -> Finding:
    return Finding(Severity.DAMAGE, "extra", path, "it is not part of the backup", hint="it was added later")


def _unreadable(path: str, error: OSError) -> Finding:
    what = error.message if isinstance(error, StorageError) else error.strerror or str(error)
    return Finding(Severity.UNREADABLE, "unreadable", path, what)
