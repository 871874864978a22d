"""`restore_backup`: the data directories of a backup, byte by byte, in places that were empty.

All of it is put into a directory `kafkalog-restore.partial` of the place first, and synced; then its entries are
renamed to where they belong. A broker refuses a directory that holds one of such a name, and so do we: what was not
restored to its end is never taken for a log. A restore that is run again after a kill goes on with the renaming, or
begins anew.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from typing import Final

from kafkalog.backup.copying import Copier, Tell, sync_files
from kafkalog.backup.manifest import SET_ASIDE, Manifest, StoredDirectory, StoredFile, read_manifest
from kafkalog.backup.store import LATEST, BackupStore
from kafkalog.errors import CorruptBackup, IllegalArgument, StorageError
from kafkalog.manager.log_dir import LogDir
from kafkalog.storage.names import LOCK_FILE, META_PROPERTIES
from kafkalog.tools.directories import Path, path_list
from kafkalog.util.fileio import OS, FileSystem, atomic_write, make_directories

STAGING: Final = "kafkalog-restore.partial"
READY: Final = "kafkalog-restore.ready"
_HINT: Final = "`kafkalog backup verify` says what else is wrong; restore another backup"


def restore_backup(
    target: Path,
    dirs: Path | Iterable[Path],
    which: str = LATEST,
    *,
    tell: Tell | None = None,
    fs: FileSystem = OS,
) -> Manifest:
    """Restores the data directories of a backup into `dirs`, one for each, which are missing or empty.

    Every file is compared with its checksum while it is copied. Files are copies of their own, or share blocks with
    the backup where the file system can do that: what is written to them later does not reach the backup.

    CorruptBackup with the file, for one that is not as it was stored: then nothing is restored. IllegalArgument for a
    directory that holds something, or another number of them; DirectoryLocked, PartitionNotFound, StorageError.
    """
    path = BackupStore(target, fs=fs).find(which)
    manifest = read_manifest(path, fs)
    places = [os.path.realpath(one) for one in path_list(dirs)]
    if len(places) != len(manifest.directories) or len(set(places)) < len(places):
        names = ", ".join(one.source for one in manifest.directories)
        raise IllegalArgument(
            f"{len(places)} directories for the {len(manifest.directories)} of the backup",
            path=path, hint=f"give one for each of {names}, in that order",
        )  # fmt: skip
    for place in places:
        if (place + os.sep).startswith(os.path.join(os.path.realpath(target), "")):
            raise IllegalArgument("the place lies in the directory of backups", path=place, hint="give another one")
    held = [LogDir.acquire(place, fs=fs, create=True, exclusive=True) for place in places]
    try:
        for one in held:
            one.forsake()  # the mark of a good close is the backup's to give
        for place in places:
            _check_empty(place, fs)
        copier = Copier(fs, tell)
        for place, directory in zip(places, manifest.directories, strict=True):
            if not fs.exists(os.path.join(place, STAGING, READY)):
                _Staging(path, manifest, directory, place, copier, fs).fill()
        for place in places:
            _publish(place, fs)
    finally:
        for one in held:
            one.release()
    return manifest


def _check_empty(place: str, fs: FileSystem) -> None:
    try:
        names = [name for name in fs.names(place) if name != LOCK_FILE]
        if names == [STAGING] or (STAGING in names and fs.exists(os.path.join(place, STAGING, READY))):
            return
    except OSError as error:
        raise StorageError.from_os(error, "look at the place", path=place) from error
    if names:
        raise IllegalArgument(
            f"the directory holds {', '.join(sorted(names)[:3])}{' ...' if len(names) > 3 else ''}",
            path=place, hint="a backup is restored into an empty directory: move away what is there",
        )  # fmt: skip


class _Staging:
    """The files of one data directory on their way into its place."""

    def __init__(
        self, backup: str, manifest: Manifest, directory: StoredDirectory, place: str, copier: Copier, fs: FileSystem
    ) -> None:
        self._backup = backup
        self._files = [file for file in manifest.files if file.path.startswith(f"{directory.name}/")]
        self._root = os.path.join(place, STAGING)
        self._copier = copier
        self._fs = fs

    def _target(self, file: StoredFile) -> str:
        name = file.path.partition("/")[2]
        return os.path.join(self._root, META_PROPERTIES if name == META_PROPERTIES + SET_ASIDE else name)

    def fill(self) -> None:
        """Return when all of it is there, compared, and on disk. CorruptBackup, StorageError."""
        try:
            if self._fs.exists(self._root):
                shutil.rmtree(self._root)
            make_directories(self._fs, self._root)
            directories = {self._root}
            for file in self._files:
                target = self._target(file)
                directory = os.path.dirname(target)
                if directory not in directories:
                    make_directories(self._fs, directory)
                    directories.add(directory)
                self._copy(file, target)
            sync_files(self._fs, map(self._target, self._files))
            for directory in sorted(directories, reverse=True):
                self._fs.fsync_dir(directory)
            atomic_write(self._fs, os.path.join(self._root, READY), b"")
        except BaseException as error:
            shutil.rmtree(self._root, ignore_errors=True)
            if isinstance(error, OSError):
                raise StorageError.from_os(error, "restore", path=self._root) from error
            raise

    def _copy(self, file: StoredFile, target: str) -> None:
        source = os.path.join(self._backup, file.path)
        try:
            opened = self._fs.open_file(source, "r")
        except FileNotFoundError:
            raise CorruptBackup("a file of the backup is missing", path=source, hint=_HINT) from None
        with opened:
            size = opened.size()
            if size != file.size:
                raise CorruptBackup(
                    f"the file is {size} bytes long, and was stored with {file.size}", path=source, hint=_HINT
                )
            sums = self._copier.copy(opened, target, file.size)
        if sums != file.sha256:
            raise CorruptBackup("the file's bytes are not those that were stored", path=source, hint=_HINT)
        if file.is_private:
            self._fs.chmod(target, 0o600)
        self._fs.utime(target, ns=(file.mtime_ns, file.mtime_ns))


def _publish(place: str, fs: FileSystem) -> None:
    """Give all that is staged its name; what a killed restore has renamed stays as it is."""
    staging = os.path.join(place, STAGING)
    try:
        for name in sorted(fs.names(staging)):
            if name != READY:
                fs.rename(os.path.join(staging, name), os.path.join(place, name))
        fs.fsync_dir(place)
        fs.unlink_if_exists(os.path.join(staging, READY))
        fs.rmdir(staging)
        fs.fsync_dir(place)
    except OSError as error:
        raise StorageError.from_os(error, "put what was restored into its place", path=staging) from error

