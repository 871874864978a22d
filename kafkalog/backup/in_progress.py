"""One backup being created: its files are links to an earlier backup's files, or copies."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from hashlib import sha256
from types import TracebackType
from typing import Final

from kafkalog.backup.copying import Copier, Tell, create, sum_of, sync_files
from kafkalog.backup.manifest import (
    MANIFEST,
    SUMS,
    Identity,
    Manifest,
    StoredFile,
    encode_manifest,
    file_line,
    sums_of,
)
from kafkalog.backup.store import JOURNAL, PARTIAL, BackupStore, Known, KnownFile
from kafkalog.errors import StorageError
from kafkalog.storage.names import INDEX_SUFFIXES, LOCK_FILE, LOG_SUFFIX, METADATA_DIRECTORY
from kafkalog.util.fileio import File, FileSystem, make_directories
from kafkalog.util.os_errors import os_errors

RACY_NS: Final = 2_000_000_000
"""A file that changed within this time (in ns) may change again with the same timestamp, so it gets no identity."""
_CANNOT_LINK: Final = frozenset(
    {errno.EMLINK, errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOENT, errno.ESTALE}
)
"""Errors of `link`: too many links, a file system without links, or a missing file."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_SEGMENT_FILES: Final = (LOG_SUFFIX, *INDEX_SUFFIXES)
_READ_HERE: Final = ("/__consumer_offsets-", f"/{METADATA_DIRECTORY}/")
"""Directories whose records are read for the manifest."""
_OTHERS_MAY_READ: Final = stat.S_IRGRP | stat.S_IROTH


class Changed(Exception):
    """A file is no longer the one that was listed: list again."""


def open_listed(fs: FileSystem, path: str) -> File:
    """Open a listed file; raise Changed if it is missing, or StorageError."""
    try:
        return fs.open_file(path, "r")
    except FileNotFoundError:
        raise Changed from None
    except OSError as error:
        raise StorageError.from_os(error, "open the file to back up", path=path) from error


def link_or_copy(fs: FileSystem, source: str, target: str) -> None:
    """Hard-link a file of a backup, which never changes; copy it if links are not possible. StorageError."""
    try:
        fs.link(source, target)
    except OSError as error:
        if error.errno not in _CANNOT_LINK - {errno.ENOENT}:
            raise StorageError.from_os(error, "link to the backup", path=source) from error
        with fs.open_file(source, "r") as file:
            status = file.stat()
            Copier(fs).copy(file, target, status.st_size)
        fs.utime(target, ns=(status.st_mtime_ns, status.st_mtime_ns))
        fs.chmod(target, stat.S_IMODE(status.st_mode))


def _is_read_here(name: str) -> bool:
    """Return True for a file of a backup that is read while the backup is created."""
    return not name.endswith(_SEGMENT_FILES) or any(one in name for one in _READ_HERE)


class BackupInProgress:
    """The directory of a backup being created; `commit` completes it, leaving the block without it does not.

    If the disk is full, the partial backup is removed to free space; after any other error, or a kill, it stays and the
    next backup continues from it. `linked` counts bytes that earlier backups had. Segments of an earlier backup whose
    SHA-256 sums are in `elsewhere` may be missing here: then nothing is linked. Threads: one at a time.
    """

    def __init__(
        self,
        store: BackupStore,
        known: Known,
        now_ms: int,
        *,
        fs: FileSystem,
        tell: Tell | None = None,
        elsewhere: Collection[str] = (),
    ) -> None:
        self.id = store.new_id(now_ms)
        self.path = os.path.join(store.path, self.id + PARTIAL)
        self.linked = 0
        self.copier = Copier(fs, tell)
        self._store = store
        self._known = known
        self._elsewhere = elsewhere
        self._now_ns = now_ms * 1_000_000
        self._fs = fs
        self._tell = tell
        self._files: dict[str, StoredFile] = {}
        self._links: set[str] = set()  # files that were on disk before
        self._directories: set[str] = set()
        self._journal_end = 0
        self._done = False
        try:
            with self._writing():
                make_directories(fs, self.path)
            self._journal = create(fs, os.path.join(self.path, JOURNAL))
        except StorageError:
            shutil.rmtree(self.path, ignore_errors=True)
            raise

    def __enter__(self) -> BackupInProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._journal.close()
        if not self._done and isinstance(error, OSError) and error.errno in _FULL:
            shutil.rmtree(self.path, ignore_errors=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with os_errors("write the backup", self.path):
            yield

    # Contents
    @property
    def files(self) -> tuple[StoredFile, ...]:
        """The files so far, by path."""
        return tuple(self._files[path] for path in sorted(self._files))

    def size_of(self, name: str) -> int:
        """Return the length of a file in the backup."""
        return self._files[name].size

    def is_linked(self, name: str) -> bool:
        """Return True if an earlier backup has the file too."""
        return name in self._links

    def path_of(self, name: str) -> str:
        """Return the path of a file of the backup, which need not exist yet."""
        return os.path.join(self.path, name)

    def begin_directory(self, name: str) -> None:
        """Create a directory of the backup, or of a partition in it."""
        with self._writing():
            make_directories(self._fs, self.path_of(name))
        self._directories.add(self.path_of(name))

    def block_writers(self, name: str) -> None:
        """Create a directory in place of the lock file, so that no writer can open this data directory."""
        with self._writing():
            make_directories(self._fs, os.path.join(self.path_of(name), LOCK_FILE))

    # Adding files
    def store(self, source: str, name: str) -> None:
        """Put a complete file of the log into the backup, as `name`; link to it if an earlier backup has it.

        Changed if it is gone, or changes while it is copied; StorageError.
        """
        with open_listed(self._fs, source) as file:
            status = file.stat()
            identity = Identity.of(status)
            known = self._known.get(name)
            if known is not None and known.file.identity == identity:
                found = self._link(known, name)
                if found is not None:
                    if self._tell is not None:
                        self._tell(found.size)
                    self._add(found)
                    return
            self._links.discard(name)
            sums = self.copier.copy(file, self.path_of(name), identity.size)
            if Identity.of(file.stat()) != identity:
                raise Changed
        stored = self._stored_file(name, identity.size, sums, status, identity)
        is_known = known is not None and (known.file.size, known.file.sha256) == (stored.size, stored.sha256)
        if known is not None and is_known and self._link(known, name) is not None:  # the same bytes, once
            self.copier.subtract_last(stored.size)
        else:
            self._protect(stored)
        self._add(stored)

    def store_cut(self, source: File, name: str, most: int | None = None) -> tuple[File, StoredFile]:
        """Copy the present content of a growing file, and return the copy, open, for `cut` to truncate.

        At most its first `most` bytes are copied.
        """
        status = source.stat()
        self._links.discard(name)
        size = status.st_size if most is None else min(most, status.st_size)
        sums = self.copier.copy(source, self.path_of(name), size)
        with self._writing():
            copy = self._fs.open_file(self.path_of(name), "rw")
        stored = self._stored_file(name, copy.size(), sums, status, None)
        self._files[name] = stored
        return copy, stored

    def cut(self, copy: File, stored: StoredFile, size: int) -> None:
        """Truncate the copy to `size` bytes."""
        if size < stored.size:
            with self._writing():
                copy.truncate(size)
            stored = stored._replace(size=size, sha256=sum_of(self._fs, copy.path)[1])
        self._protect(stored)
        self._files[stored.path] = stored

    def put(self, name: str, content: bytes, status: os.stat_result) -> None:
        """Put bytes into the backup, as the content of the file with this status."""
        self._links.discard(name)
        self._create(name, content)
        stored = self._stored_file(name, len(content), sha256(content).hexdigest(), status, None)
        self._protect(stored)
        self._files[name] = stored

    def _create(self, name: str, content: bytes) -> None:
        with create(self._fs, self.path_of(name)) as file, self._writing():
            file.pwrite(content, 0)

    def drop(self, name: str) -> None:
        """Remove a file from the backup, if it is there."""
        with self._writing():
            self._fs.unlink_if_exists(self.path_of(name))
        self._files.pop(name, None)

    def keep_only(self, name: str, wanted: Collection[str]) -> None:
        """Remove a directory's files except `wanted`: an earlier attempt may have left others."""
        with self._writing():
            for one in self._fs.names(self.path_of(name)):
                if one not in wanted:
                    self.drop(f"{name}/{one}")

    def drop_directory(self, name: str) -> None:
        """Remove a directory and all its files from the backup."""
        for path in [path for path in self._files if path.startswith(f"{name}/")]:
            del self._files[path]
        with self._writing():
            shutil.rmtree(self.path_of(name))
        self._directories.discard(self.path_of(name))

    def _stored_file(
        self, name: str, size: int, sums: str, status: os.stat_result, identity: Identity | None
    ) -> StoredFile:
        if identity is not None and max(identity.mtime_ns, identity.ctime_ns) > self._now_ns - RACY_NS:
            identity = None
        is_private = not status.st_mode & _OTHERS_MAY_READ
        return StoredFile(name, size, sums, max(0, status.st_mtime_ns), is_private, identity)


    def _link(self, known: KnownFile, name: str) -> StoredFile | None:
        """Link to an earlier backup's file under the same name; None if it cannot be linked or was changed."""
        target = self.path_of(name)
        try:
            if self._fs.stat(known.path).st_size != known.file.size:
                return None
            if not known.is_on_disk and sum_of(self._fs, known.path)[1] != known.file.sha256:
                return None
            self._fs.link(known.path, target + PARTIAL)
            self._fs.rename(target + PARTIAL, target)
            self._fs.unlink_if_exists(target + PARTIAL)  # a rename does not remove it if both are links to one file
        except OSError as error:
            if error.errno not in _CANNOT_LINK:
                raise StorageError.from_os(error, "link to the earlier backup", path=known.path) from error
            if error.errno != errno.ENOENT or known.file.sha256 not in self._elsewhere or _is_read_here(name):
                return None
            self._links.add(name)  # also if only a killed backup had it: there is no file here
        self.linked += known.file.size
        if known.is_on_disk:
            self._links.add(name)
        return known.file

    def _protect(self, file: StoredFile) -> None:
        """Set a copy's file time to its original's, and make it read-only."""
        path = self.path_of(file.path)
        with self._writing():
            self._fs.utime(path, ns=(file.mtime_ns, file.mtime_ns))
            self._fs.chmod(path, 0o400 if file.is_private else 0o444)

    def _add(self, file: StoredFile) -> None:
        """Record that a complete file is in the backup."""
        self._files[file.path] = file
        with self._writing():
            self._journal_end += self._journal.pwrite(file_line(file), self._journal_end)

    # Completion
    def commit(self, manifest: Manifest) -> None:
        """Complete the backup: sync all of it, then rename its directory. StorageError."""
        content = encode_manifest(manifest)
        for name, data in ((MANIFEST, content), (SUMS, sums_of(manifest.files, sha256(content).hexdigest()))):
            self._create(name, data)
            with self._writing():
                self._fs.chmod(self.path_of(name), 0o444)
        own = {file.path for file in manifest.files} - self._links
        sync_files(self._fs, (self.path_of(name) for name in (*sorted(own), MANIFEST, SUMS)))
        with self._writing():
            self._journal.close()
            self._fs.unlink_if_exists(os.path.join(self.path, JOURNAL))
            for directory in sorted(self._directories, reverse=True):
                self._fs.fsync_dir(directory)
            self._fs.fsync_dir(self.path)
            self._fs.rename(self.path, os.path.join(self._store.path, self.id))
            self._done = True
            self._fs.fsync_dir(self._store.path)
