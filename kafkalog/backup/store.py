"""The directory of backups, and its lock.

    <store>/kafkalog.backups                  marks such a directory; locked while a backup is created
    <store>/20261123T084119Z/                 a backup, by its creation time (UTC)
        kafkalog.backup.json  SHA256SUMS      its description
        dir0/orders-0/...                     the first data directory, as it was; readable as it is
        dir0/.lock/                           a directory in place of the lock file: no one opens it to write
    <store>/20261123T090000Z.partial/         a backup that is being created, or whose creator was killed
    <store>/20261123T084119Z.redacted/        the backup without some records, complete, about to replace the one above

A backup becomes valid by the rename of its directory, after all of it was synced. Nothing in it changes after that: a
later backup links to unchanged files, and deleting a backup removes only its names. The next backup takes unchanged
files from the leftovers of a killed one, and then removes them. A redaction replaces the directory as a whole; between
its two renames readers find the replacement.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, NamedTuple

from kafkalog.backup.manifest import ID_FORMAT, MANIFEST, Manifest, StoredFile, is_id, parse_file_line, read_manifest
from kafkalog.errors import (
    CorruptBackup,
    DirectoryLocked,
    IllegalArgument,
    PartitionNotFound,
    StorageError,
)
from kafkalog.storage.remote import refuse_urls
from kafkalog.util.file_lock import open_locked
from kafkalog.util.fileio import OS, FileSystem, atomic_write, make_directories
from kafkalog.util.os_errors import os_errors
from kafkalog.util.times import time_text

MARKER: Final = "kafkalog.backups"
PARTIAL: Final = ".partial"
JOURNAL: Final = "stored.jsonl"
LATEST: Final = "latest"
_CONTENT: Final = b"kafkalog backups, version 1\n"
_MAX_JOURNAL_BYTES: Final = 1 << 30
_DOOMED: Final = ".deleted"
_REPLACEMENT: Final = ".redacted"
_PARTIAL_NAME: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z\.(?:partial|deleted)")


class KnownFile(NamedTuple):
    """A file of an earlier backup: its path, its entry, and True if it was on disk before it was named."""

    path: str
    file: StoredFile
    is_on_disk: bool


Known = dict[str, KnownFile]
"""Files of earlier backups by their paths in them."""


class BackupStore:
    """The backups in `path`. Threads: any number may read; one at a time, with the lock, creates or deletes."""

    def __init__(self, path: str | os.PathLike[str], *, fs: FileSystem = OS) -> None:
        refuse_urls(path)
        self.path = os.path.realpath(path)
        self._fs = fs

    def ids(self) -> list[str]:
        """Return the ids of complete backups, oldest first.

        PartitionNotFound; IllegalArgument if the directory has other contents.
        """
        self._check_is_store()
        return sorted({one for name in self._names() if is_id(one := name.removesuffix(_REPLACEMENT))})

    def unfinished(self) -> list[str]:
        """Return the directories that an unfinished backup, or delete, left."""
        found = (name for name in self._names() if _PARTIAL_NAME.fullmatch(name))
        return sorted(name for name in found if is_id(name.partition(".")[0]))

    def find(self, which: str = LATEST) -> str:
        """Return the directory of a backup, by its id, or of the last one; PartitionNotFound names existing ones."""
        ids = self.ids()
        if not ids:
            raise PartitionNotFound("there is no backup here", path=self.path, hint="create one: `kafkalog backup`")
        if which == LATEST:
            return self._directory(ids[-1])
        if which not in ids:
            names_text = ", ".join(ids[-5:])
            raise PartitionNotFound(f"there is no backup {ascii(which)}", path=self.path, hint=f"latest: {names_text}")
        return self._directory(which)

    def _directory(self, which: str) -> str:
        """Return the directory of a backup, or of its replacement if only that exists."""
        path = os.path.join(self.path, which)
        has_only_replacement = not self._fs.exists(path) and self._fs.exists(path + _REPLACEMENT)
        return path + _REPLACEMENT if has_only_replacement else path

    def find_since(self, at_ms: int, which: str = LATEST) -> str:
        """Return the directory of the first backup made at or after `at_ms`, or of `which` if that is true of it.

        IllegalArgument if there is none; PartitionNotFound, CorruptBackup, StorageError.
        """
        paths = [self.find(one) for one in (self.ids() if which == LATEST else [which])] or [self.find()]
        for path in paths:
            which_ms = _ms_of(id_in(path))
            if which_ms + 1000 > at_ms and read_manifest(path, self._fs).created_ms >= at_ms:
                return path
        newest = read_manifest(paths[-1], self._fs).created_ms
        raise IllegalArgument(
            f"no backup was made at or after {time_text(at_ms)}", path=self.path,
            hint=f"give a moment up to {time_text(newest)}, when the last one was made, or create a backup",
        )  # fmt: skip

    def newest_before(self, at_ms: int) -> Manifest | None:
        """Return the manifest of the newest readable backup made before `at_ms`; None if there is none."""
        for name in reversed(self.ids()):  # the time in an id may be later than that of the backup: `new_id`
            with suppress(CorruptBackup):
                found = self.manifest(name)
                if found.created_ms < at_ms:
                    return found
        return None

    def manifest(self, which: str = LATEST) -> Manifest:
        """Return the manifest of a backup. CorruptBackup, StorageError; PartitionNotFound, also if just deleted."""
        path = self.find(which)
        try:
            return read_manifest(path, self._fs)
        except CorruptBackup:
            self.find(id_in(path))
            raise

    def is_redacted_since(self, manifest: Manifest) -> bool:
        """Return True if a backup was redacted since its manifest was read. Errors as for `manifest`."""
        return self.manifest(manifest.id).redactions != manifest.redactions

    def delete(self, which: str) -> None:
        """Delete a complete backup; the others keep all their files. The caller holds the lock. StorageError."""
        path = self.find(which)
        doomed = path + _DOOMED
        with os_errors("delete the backup", path):
            self._fs.rename(path, doomed)  # from here on it is no backup, even if files remain
            self._fs.fsync_dir(self.path)
            shutil.rmtree(doomed)

    def replace(self, which: str) -> None:
        """Replace a backup by `<id>.partial`, which is complete and on disk. The caller holds the lock. StorageError.

        Readers see the old backup or the new one, and the old one is removed last.
        """
        path = os.path.join(self.path, which)
        with os_errors("replace the backup", path):
            self._fs.rename(path + PARTIAL, path + _REPLACEMENT)
            self._fs.fsync_dir(self.path)
        self.finish_replacements()

    def finish_replacements(self) -> None:
        """Complete what a killed redaction began to replace. The caller holds the lock. StorageError."""
        for name in self._names():
            which = name.removesuffix(_REPLACEMENT)
            if which == name or not is_id(which):
                continue
            path = os.path.join(self.path, which)
            with os_errors("replace the backup", path):
                if self._fs.exists(path):
                    if self._fs.exists(path + _DOOMED):
                        shutil.rmtree(path + _DOOMED)
                    self._fs.rename(path, path + _DOOMED)
                    self._fs.fsync_dir(self.path)
                self._fs.rename(path + _REPLACEMENT, path)
                self._fs.fsync_dir(self.path)
                if self._fs.exists(path + _DOOMED):
                    shutil.rmtree(path + _DOOMED)

    def sweep(self, but: str = "") -> None:
        """Remove leftovers of killed backups and deletes, except the directory named `but`. StorageError."""
        for name in self.unfinished():
            if name != but:
                with os_errors("clean up", os.path.join(self.path, name)):
                    shutil.rmtree(os.path.join(self.path, name))

    def remove_all(self, *last: str) -> None:
        """Remove the directory, last its files `last` and the marker, which identify the leftovers of a kill.

        The caller holds the lock. OSError.
        """
        ends = (*last, MARKER)
        for name in sorted({*self._fs.names(self.path)} - {*ends}):
            path = os.path.join(self.path, name)
            if self._fs.is_directory(path):
                shutil.rmtree(path)
            else:
                self._fs.unlink_if_exists(path)
        for name in ends:
            self._fs.unlink_if_exists(os.path.join(self.path, name))
        self._fs.rmdir(self.path)

    def known(self) -> Known:
        """Return the files of the newest readable backup and of unfinished ones."""
        found: Known = {}
        newest = self.newest()
        if newest is not None:
            directory = self._directory(newest.id)
            found |= {file.path: KnownFile(os.path.join(directory, file.path), file, True) for file in newest.files}
        for name in self.unfinished():
            directory = os.path.join(self.path, name)
            for file in _read_journal(os.path.join(directory, JOURNAL), self._fs):
                found[file.path] = KnownFile(os.path.join(directory, file.path), file, False)
        return found

    def newest(self) -> Manifest | None:
        """Return the manifest of the newest readable backup; None if there is none."""
        for name in reversed(self.ids()):
            try:
                return read_manifest(self._directory(name), self._fs)
            except CorruptBackup:
                continue
        return None

    def new_id(self, now_ms: int) -> str:
        """Return an id for now, above all existing ones, even if the clock was set back."""
        used = {*self.ids(), *(name.partition(".")[0] for name in self.unfinished())}
        while (candidate := _id_at(now_ms)) in used or any(candidate < name for name in used):
            now_ms = max(now_ms, *(_ms_of(name) for name in used)) + 1000
        return candidate

    def _names(self) -> list[str]:
        try:
            return self._fs.names(self.path)
        except FileNotFoundError:
            raise PartitionNotFound(
                "there is no such directory of backups", path=self.path, hint="check the path"
            ) from None
        except OSError as error:
            raise StorageError.from_os(error, "list the backups", path=self.path) from error

    def _check_is_store(self) -> None:
        names = self._names()
        if MARKER in names:
            return
        if MANIFEST in names:
            raise IllegalArgument(
                "this is a single backup; name its parent directory", path=self.path,
                hint=f"{os.path.dirname(self.path)}, and the backup {os.path.basename(self.path)}",
            )  # fmt: skip
        names_text = ", ".join(sorted(names)[:3])
        raise IllegalArgument(
            f"the directory has {names_text or 'no files'} and is not a directory of backups", path=self.path,
            hint="name the directory in which backups were created",
        )  # fmt: skip


class StoreLock:
    """Exclusive lock on a directory of backups, for creating or deleting one; `create` creates a missing directory.

    IllegalArgument for a directory with something else in it; DirectoryLocked while another caller holds it;
    StorageError.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = False, fs: FileSystem = OS) -> None:
        self.store = BackupStore(path, fs=fs)
        if create:
            _create_store(self.store.path, fs)
        self.store.ids()
        marker = os.path.join(self.store.path, MARKER)
        with os_errors("lock the backups", marker):
            file = open_locked(fs, marker, "rw")
        if file is None:
            raise DirectoryLocked(
                "a backup is being created or deleted here", path=self.store.path, hint="wait until it finishes"
            )
        self._file = file
        try:
            self.store.finish_replacements()
        except BaseException:
            file.close()
            raise

    def __enter__(self) -> BackupStore:
        return self.store

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def id_in(path: str) -> str:
    """Return the id of the backup in a directory."""
    return os.path.basename(path).removesuffix(_REPLACEMENT)


def _create_store(path: str, fs: FileSystem) -> None:
    with os_errors("create the directory of backups", path):
        make_directories(fs, path)
        names = fs.names(path)
        if MARKER not in names and not [name for name in names if name != MARKER + ".tmp"]:
            atomic_write(fs, os.path.join(path, MARKER), _CONTENT)


def _read_journal(path: str, fs: FileSystem) -> list[StoredFile]:
    try:
        lines = fs.read_file(path, _MAX_JOURNAL_BYTES).splitlines(keepends=True)
    except OSError:  # missing or unreadable: then everything is copied again
        return []
    parsed = (parse_file_line(line) for line in lines if line.endswith(b"\n"))
    return [file for file in parsed if file is not None]


def _id_at(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, UTC).strftime(ID_FORMAT)


def _ms_of(name: str) -> int:
    return int(datetime.strptime(name, ID_FORMAT).replace(tzinfo=UTC).timestamp()) * 1000
