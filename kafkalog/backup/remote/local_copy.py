"""A local directory of backups for an object store: new backups are prepared in it, and old ones restored from it.

It has the manifests of the backups in the store, and only the files that are needed. After a killed run it stays, and
the next run continues from it: existing files are not copied, uploaded or downloaded again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import IO, Final

from kafkalog.backup.copying import Tell, create, one_at_a_time, run_together, sum_of
from kafkalog.backup.manifest import MANIFEST, SUMS, Manifest, StoredFile, read_manifest
from kafkalog.backup.remote.objects import Discarded, StoredObjects
from kafkalog.backup.store import MARKER, BackupStore, StoreLock
from kafkalog.errors import CorruptBackup, IllegalArgument, KafkalogError, StorageError
from kafkalog.util.fileio import TMP_SUFFIX, FileSystem, atomic_write, make_directories
from kafkalog.util.os_errors import os_errors

DOWNLOADS: Final = ".kafkalog-download"
"""Suffix of the directory beside the restored one to which a backup in an object store is downloaded first."""
NOTE: Final = "kafkalog.mirror"
"""Name of the file with the URL of the store that the directory is a local copy of."""
_MAX_NOTE_BYTES: Final = 1 << 16
_PARTIAL: Final = ".partial"


class LocalCopy:
    """The local copy of `objects` in the directory `path`. Threads: one at a time."""

    def __init__(self, path: str, objects: StoredObjects, fs: FileSystem) -> None:
        self.path = path
        self._objects = objects
        self._fs = fs

    def refresh(self) -> None:
        """Create the directory and write the manifests of the store's backups to it.

        A backup that a killed run prepared but did not upload stays if the store has its missing files; anything else
        that is not in the store is removed. Unreadable manifests are left out. IllegalArgument if the directory has
        other contents, such as the user's own backups; DirectoryLocked while another run uses it; StorageError.
        """
        with StoreLock(self.path, create=True, fs=self._fs) as store:
            is_of_store = self._check()
            self._objects.check_exists()
            stored = self._objects.all_manifest_names()
            for which in store.ids():
                if which not in stored and not (is_of_store and self._is_prepared(which)):
                    shutil.rmtree(os.path.join(self.path, which))
            if not is_of_store:
                self._claim()
            for which in sorted(stored):
                self._write_manifest(which, stored[which])

    def _check(self) -> bool:
        """Return True if the directory is this store's local copy already; IllegalArgument if it is no local copy."""
        note = os.path.join(self.path, NOTE)
        with os_errors("prepare the staging directory", self.path):
            names = {*self._fs.names(self.path)} - {MARKER, *(one + TMP_SUFFIX for one in (MARKER, NOTE))}
            if names and NOTE not in names:
                raise IllegalArgument(
                    f"the directory has {', '.join(sorted(names)[:3])} and is not a staging directory", path=self.path,
                    hint="choose another staging directory",
                )  # fmt: skip
            return bool(names) and self._fs.read_file(note, _MAX_NOTE_BYTES) == os.fsencode(self._objects.url)

    def _claim(self) -> None:
        """Record in the directory the store that it is a copy of."""
        with os_errors("prepare the staging directory", self.path):
            self._fs.chmod(self.path, 0o700)  # it has private files, and those of encrypted backups
            atomic_write(self._fs, os.path.join(self.path, NOTE), os.fsencode(self._objects.url))

    def _is_prepared(self, which: str) -> bool:
        """Return True for a complete backup whose files are here or in the store."""
        directory = os.path.join(self.path, which)
        if not self._fs.exists(os.path.join(directory, SUMS)):
            return False
        try:
            manifest = read_manifest(directory, self._fs)
        except CorruptBackup:
            return False
        stored = self._objects.sums()
        return all(
            file.sha256 in stored or self._fs.exists(os.path.join(directory, file.path)) for file in manifest.files
        )

    def _write_manifest(self, which: str, names: list[str]) -> None:
        """Write the manifest of a backup, the newest of the objects `names`."""
        directory = os.path.join(self.path, which)
        with os_errors("prepare the backup", directory):
            make_directories(self._fs, directory)
            path = os.path.join(directory, MANIFEST)
            with suppress(CorruptBackup, IllegalArgument):
                name = self._objects.newest(names)
                if self._fs.exists(path) and sum_of(self._fs, path)[1] in name:
                    return
                content = self._objects.manifest_bytes(name)
                with create(self._fs, path + _PARTIAL) as file:
                    file.pwrite(content, 0)
                self._fs.rename(path + _PARTIAL, path)

    def prepared(self) -> list[str]:
        """Return the ids of complete backups that are not in the store, oldest first."""
        stored = self._objects.ids()
        return [one for one in BackupStore(self.path, fs=self._fs).ids() if one not in stored]

    def upload(self, which: str, tell: Tell | None = None, *, heal: bool = False) -> None:
        """Upload a backup: contents that the store lacks, then the manifest. StorageError, CorruptBackup.

        With `heal`, the store's contents are compared, and uploaded again if they are damaged or unreadable.
        StorageError if contents were deleted from the store meanwhile, so that the backup is not complete;
        DirectoryLocked while another run uses the directory.
        """
        with StoreLock(self.path, fs=self._fs):
            self._upload(which, tell, heal)

    def _upload(self, which: str, tell: Tell | None, heal: bool) -> None:
        directory = os.path.join(self.path, which)
        manifest = read_manifest(directory, self._fs)
        stored = self._objects.sums()
        missing = {file.sha256: file for file in manifest.files if file.sha256 not in stored}
        count = one_at_a_time(tell)
        run_together(
            partial(self._objects.put, file, os.path.join(directory, file.path), count) for file in missing.values()
        )
        if heal:
            known = {file.sha256: file for file in manifest.files if file.sha256 in stored}
            run_together(partial(self._heal, file, os.path.join(directory, file.path)) for file in known.values())
        if not {file.sha256 for file in manifest.files} <= self._objects.sums():
            raise StorageError(
                "files of the new backup were deleted from the store meanwhile", path=self._objects.url,
                hint="create it again when no backups are being deleted there",
            )  # fmt: skip
        self._objects.put_manifest(manifest)

    def _heal(self, file: StoredFile, path: str) -> None:
        """Upload a content again, from the file at `path`, if the store's object is damaged."""
        try:
            self._objects.get(file, Discarded(), None)
        except (CorruptBackup, IllegalArgument):  # the latter without the private key
            self._objects.put(file, path, None)

    def download(self, which: str, tell: Tell | None = None) -> None:
        """Download a backup as it is now and compare checksums. CorruptBackup names the object; StorageError.

        DirectoryLocked while another run uses the directory.
        """
        with StoreLock(self.path, fs=self._fs):
            self._download(which, tell)

    def _download(self, which: str, tell: Tell | None) -> None:
        directory = os.path.join(self.path, which)
        self._objects.manifest(which)  # raises if it cannot be read
        self._write_manifest(which, self._objects.manifest_names(which))  # another one if it was redacted since
        manifest = read_manifest(directory, self._fs)
        self._make_folders(directory, manifest.files)
        self._download_files(directory, manifest.files, one_at_a_time(tell))

    def fetch(self, which: str, files: Iterable[StoredFile]) -> str:
        """Download some files of a backup, and return its directory here. Errors as for `download`."""
        directory = os.path.join(self.path, which)
        wanted = list(files)
        with StoreLock(self.path, fs=self._fs):
            self._make_folders(directory, wanted)
            self._download_files(directory, wanted, None)
        return directory

    def drop(self, which: str, but: Iterable[str]) -> None:
        """Remove the downloaded files of a backup, except its manifest and those at the paths `but`. StorageError."""
        directory = os.path.join(self.path, which)
        kept = {MANIFEST, *but}
        with os_errors("remove the download", directory):
            for below, _, names in os.walk(directory):
                for name in names:
                    path = os.path.join(below, name)
                    if os.path.relpath(path, directory) not in kept:
                        self._fs.unlink_if_exists(path)

    def replace(self, old: Manifest, new: Manifest, directory: str) -> None:
        """Replace a backup in the store by one whose changed files are in `directory`. StorageError, CorruptBackup."""
        encrypted = self._objects.is_encrypted(old.id)
        stored = self._objects.sums(encrypted)
        known = {file.sha256 for file in old.files}
        changed = {file.sha256: file for file in new.files if file.sha256 not in known | stored}
        with StoreLock(self.path, fs=self._fs):
            run_together(
                partial(self._objects.put, file, os.path.join(directory, file.path), None, encrypted)
                for file in changed.values()
            )
            self._objects.replace_manifest(new)

    def _make_folders(self, directory: str, files: Iterable[StoredFile]) -> None:
        for folder in {os.path.dirname(file.path) for file in files}:
            with os_errors("prepare the restore", directory):
                make_directories(self._fs, os.path.join(directory, folder))

    def _download_files(self, directory: str, files: Iterable[StoredFile], tell: Tell | None) -> None:
        """Download files, several at once, but each content once and by one thread; files share contents."""
        contents: dict[str, list[StoredFile]] = {}
        for file in files:
            contents.setdefault(file.sha256, []).append(file)
        run_together(partial(self._download_content, directory, same, tell) for same in contents.values())

    def _download_content(self, directory: str, files: list[StoredFile], tell: Tell | None) -> None:
        first = os.path.join(directory, files[0].path)
        self._download_file(first, files[0], tell)
        for file in files[1:]:
            path = os.path.join(directory, file.path)
            if self._is_there(path, file):
                continue
            with os_errors("copy the download", path):
                shutil.copyfile(first, path + _PARTIAL)
                self._fs.rename(path + _PARTIAL, path)
            if tell is not None:
                tell(file.size)

    def _is_there(self, path: str, file: StoredFile) -> bool:
        return self._fs.exists(path) and sum_of(self._fs, path) == (file.size, file.sha256)

    def _download_file(self, path: str, file: StoredFile, tell: Tell | None) -> None:
        if self._is_there(path, file):
            return
        with os_errors("download", path):
            with open(path + _PARTIAL, "wb") as target:
                self._objects.get(file, _Target(target, path), tell)
            self._fs.rename(path + _PARTIAL, path)

    def remove(self) -> None:
        """Remove the directory, unless another run uses it. After a kill, the rest is still a local copy."""
        remove_local_copy(self.path, self._fs)


def remove_local_copy(path: str, fs: FileSystem) -> None:
    """Remove the local copy in a directory, unless a run uses it; anything else, and an error, leaves the directory."""
    with suppress(KafkalogError, OSError):
        names = {*fs.names(path)}
        if NOTE in names or names <= {MARKER, NOTE + TMP_SUFFIX}:
            with StoreLock(path, fs=fs) as store:
                store.remove_all(NOTE)


class _Target:
    """A local file to which an object is written; its errors are raised as local ones."""

    def __init__(self, file: IO[bytes], path: str) -> None:
        self._file = file
        self._path = path

    def write(self, data: bytes) -> int:
        with os_errors("write the download", self._path):
            return self._file.write(data)
