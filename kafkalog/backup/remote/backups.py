"""`RemoteBackups`: the target of backups that are kept in an object store."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from kafkalog.backup.copying import Tell
from kafkalog.backup.manifest import Manifest
from kafkalog.backup.remote.encryption import SUFFIX, Encryption
from kafkalog.backup.remote.local_copy import LocalCopy
from kafkalog.backup.remote.objects import MARKER, Discarded, StoredObjects
from kafkalog.errors import (
    CorruptBackup,
    DirectoryLocked,
    IllegalArgument,
    KafkalogError,
    PartitionNotFound,
    StorageError,
)
from kafkalog.storage.remote import is_url
from kafkalog.tools.directories import Path
from kafkalog.tools.verify.report import Finding, Report, Severity, Sums
from kafkalog.util.fileio import FileSystem

LATEST: Final = "latest"
_ANOTHER: Final = "restore another backup; the next one with --full uploads it again, if the log still has it"


class RemoteBackups:
    """Backups in the object store at `url`, for the functions of `kafkalog.backup`; a URL alone is the same.

    With `recipients` (age public keys, or files of them) new backups are encrypted; `identities` are files with the
    private keys for reading. `options` are those of the store in fsspec. Backups are prepared, and restored, in the
    local directory `staging`; by default it lies beside the first data directory. See docs/backup.md.

    >>> from kafkalog.backup import create_backup, list_backups
    >>> target = RemoteBackups("memory://shop/backups")
    >>> made = create_backup("data", target)    # of `log`
    >>> [one.id for one in list_backups(target)] == [made.manifest.id]
    True
    """

    def __init__(
        self,
        url: str,
        *,
        recipients: Iterable[str] = (),
        identities: Iterable[str | os.PathLike[str]] = (),
        staging: str | os.PathLike[str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> None:
        """IllegalArgument for invalid keys or an invalid URL; MissingPackage, StorageError."""
        if not is_url(url):
            raise IllegalArgument(
                "backups can be encrypted, or have options, only in an object store", path=url,
                hint="give a URL: s3://BUCKET/PATH, or file:///PATH",
            )  # fmt: skip
        self._encryption = Encryption(recipients, identities)
        self.objects = StoredObjects(url, self._encryption, options)
        self._staging = None if staging is None else os.path.realpath(staging)

    @property
    def url(self) -> str:
        """URL of the store."""
        return self.objects.url

    def ids(self) -> list[str]:
        """Return the ids of the backups, oldest first. PartitionNotFound, StorageError."""
        return self.objects.ids()

    def find(self, which: str = LATEST) -> str:
        """Return the id of a backup, by default the last one. PartitionNotFound names existing ones; StorageError."""
        ids = self.ids()
        if which == LATEST and ids:
            return ids[-1]
        if which not in ids:
            hint = f"latest: {', '.join(ids[-5:])}" if ids else "create one: `kafkalog backup`"
            raise PartitionNotFound(f"there is no backup {ascii(which)}", path=self.url, hint=hint)
        return which

    def manifest(self, which: str = LATEST) -> Manifest:
        """Return the manifest of a backup. CorruptBackup, IllegalArgument, PartitionNotFound, StorageError."""
        found = self.find() if which == LATEST else which
        try:
            return self.objects.manifest(found)
        except CorruptBackup:
            self.find(found)  # it may not exist
            raise

    def staging_for(self, default: str) -> str:
        """Return the local directory in which backups are prepared. IllegalArgument if it overlaps the store."""
        staging, store = self._staging or default, self.objects.local_path
        if store is not None:
            for inner, outer in ((staging, store), (store, staging)):
                if os.path.join(inner, "").startswith(os.path.join(outer, "")):
                    raise IllegalArgument(
                        f"the staging directory and the store {store} overlap", path=staging,
                        hint="choose another staging directory",
                    )  # fmt: skip
        return staging

    def required_staging(self) -> str:
        """Return the staging directory that was given. IllegalArgument without one, or if it overlaps the store."""
        if self._staging is None:
            raise IllegalArgument(
                "segments of these backups have to be downloaded, and no directory for them is given", path=self.url,
                hint="name a new directory, which is removed afterwards: --staging DIR",
            )  # fmt: skip
        return self.staging_for(self._staging)

    @contextmanager
    def local_copy(self, staging: str, fs: FileSystem) -> Iterator[LocalCopy]:
        """Provide the local copy for the block; it is removed afterwards.

        After a StorageError or a kill it stays, and the next run continues from it. Errors as for `LocalCopy.refresh`.
        """
        local = LocalCopy(staging, self.objects, fs)
        local.refresh()
        try:
            yield local
        except KafkalogError as error:
            if not isinstance(error, StorageError | DirectoryLocked):
                local.remove()
            raise
        local.remove()

    def delete(self, ids: Iterable[str]) -> None:
        """Delete backups, and contents that no other backup has.

        PartitionNotFound, StorageError; DirectoryLocked while another run writes to the store. CorruptBackup,
        IllegalArgument: the manifest of a backup that stays cannot be read, so that nothing is deleted.
        """
        with self.objects.leased("a delete"):
            self.delete_leased(ids)

    def delete_leased(self, ids: Iterable[str]) -> None:
        """Delete backups as `delete` does; the caller has the lease."""
        known = {*self.ids()}
        doomed = list(dict.fromkeys(one if one in known else self.find(one) for one in ids))
        self.objects.delete_superseded()
        kept = self.objects.manifests(but=doomed)
        missing = sorted(known - {*doomed, *(one.id for one in kept)})
        if missing:  # its contents would be deleted
            raise StorageError(
                f"the store does not list the backup {missing[0]}, which it had a moment before", path=self.url,
                hint="run the command again; and not in a store whose listings are late",
            )  # fmt: skip
        self.objects.delete(*doomed)
        for checksum in self._unneeded(kept):
            self.objects.delete_content(checksum)
        self.objects.delete_leftovers()

    def check_recipients(self) -> None:
        """Raise IllegalArgument if a new backup could not be restored with its own keys; see recipients.py."""
        check_recipients(self.objects, self._encryption)

    def check_can_delete(self) -> None:
        """Raise the errors of `delete` for the remaining backups, and for one created now. StorageError."""
        self.objects.check_can_read()
        with suppress(PartitionNotFound):
            for one in self.ids():
                self.manifest(one)

    def _unneeded(self, kept: Iterable[Manifest]) -> set[str]:
        return self.objects.all_sums() - {file.sha256 for manifest in kept for file in manifest.files}

    def leftovers(self) -> list[str]:
        """Return the names of objects that belong to no backup; errors as for `delete`."""
        unneeded = self._unneeded([self.objects.manifest(one) for one in self.ids()])
        return [*self.objects.leftovers(), *(f"files/{checksum}" for checksum in sorted(unneeded))]

    def verify(self, which: str, tell: Tell | None) -> Report:
        """Read every file of a backup from the store and compare its checksum. IllegalArgument, StorageError.

        A backup that is redacted meanwhile is read again. PartitionNotFound, also if it is deleted meanwhile.
        """
        found = self.find(which)
        while True:
            before = self.objects.manifest_names(found)
            report = self._verify(found, tell)
            if report.ok:
                return report
            after = self.objects.manifest_names(found)
            if not after:
                raise PartitionNotFound(
                    f"the backup {found} was deleted meanwhile", path=self.url,
                    hint="use another backup: `kafkalog backup list` shows them",
                )  # fmt: skip
            if after == before:
                return report

    def _verify(self, found: str, tell: Tell | None) -> Report:
        sums, findings = Sums(), list[Finding]()
        try:
            manifest = self.objects.manifest(found)
        except CorruptBackup as error:
            return Report((_finding(Severity.DAMAGE, error.path or self.url, error.message),))
        for file in manifest.files:
            try:
                self.objects.get(file, Discarded(), tell)
            except CorruptBackup as error:
                findings.append(_finding(Severity.DAMAGE, error.path or self.url, f"{file.path}: {error.message}"))
            except StorageError as error:
                findings.append(_finding(Severity.UNREADABLE, error.path or self.url, f"{file.path}: {error.message}"))
            sums.files += 1
        sums.partitions = len(manifest.partitions)
        sums.segments = sum(one.segments for one in manifest.partitions)
        sums.bytes = sum(one.size for one in manifest.partitions)
        return Report(tuple(findings), sums)


def _finding(severity: Severity, path: str, what: str) -> Finding:
    return Finding(severity, "object", path, what, hint=_ANOTHER)


def located(target: Path | RemoteBackups) -> Path | RemoteBackups:
    """Return the object store that `target` names if it is a URL, else `target` itself."""
    return RemoteBackups(str(target)) if is_url(target) else target


_PREFIX: Final = f"{MARKER}.recipients-"


def check_recipients(objects: StoredObjects, encryption: Encryption) -> None:
    """Note the recipients of a new backup, in an object for each set of them; the caller has the store's lease.

    A content is stored once for all backups. One that an earlier backup has is not encrypted again, so a backup for
    other recipients could not be restored with their keys alone. StorageError.

    IllegalArgument if its contents are encrypted for others, and no private key is given that opens a backup there.
    """
    own, names = f"{_PREFIX}{encryption.recipients_id}", objects.times()
    if not encryption.encrypts or own in names:
        return
    if objects.sums(encrypted=True):
        is_other = any(name.startswith(_PREFIX) for name in names)  # else an earlier version wrote there
        if not (_opens_one(objects) if encryption.decrypts else not is_other):
            raise IllegalArgument(
                "the contents of the store are encrypted for other recipients, and are not encrypted again",
                path=objects.url,
                hint="use another URL for the new keys; or give the former private key too, which a restore then needs "
                "as well: --identity FILE",
            )  # fmt: skip
    objects.put_note(own, b"")


def _opens_one(objects: StoredObjects) -> bool:
    """Return True if the private keys open the manifest of an encrypted backup."""
    for _, names in sorted(objects.all_manifest_names().items(), reverse=True):
        for name in names:
            if name.endswith(SUFFIX):
                try:
                    objects.manifest_bytes(name)
                    return True
                except CorruptBackup:
                    continue
    return False
