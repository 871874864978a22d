"""Lazily opened files: opened on first use, closed to free descriptors, reopened by name."""

from __future__ import annotations

import errno
import os
import weakref
from typing import TYPE_CHECKING, Protocol

from kafkalog._core.bytes.mapping import WritebackErrorProbe
from kafkalog.errors import StorageError
from kafkalog.util.descriptors import DESCRIPTORS
from kafkalog.util.fileio import File, FileSystem
from kafkalog.util.waiting import AT_ONCE, check_may_wait

if TYPE_CHECKING:
    from kafkalog.storage.file_records import FileRecords
    from kafkalog.util.buffers import Data


class DataFile(Protocol):
    """File operations a `FileSlice` reads through; implemented by `File` and `LazyFile`."""

    path: str

    def pread(self, size: int, position: int) -> bytes: ...
    def pread_into(self, buffer: Data, position: int) -> int: ...
    def stat(self) -> os.stat_result: ...
    def next_data(self, position: int) -> int: ...
    def expect_whole_read(self) -> None: ...


def read_at(file: DataFile, size: int, position: int) -> bytes:
    """Read as `File.pread` does, but raise a StorageError for an OSError."""
    try:
        return file.pread(size, position)
    except OSError as error:
        raise StorageError.from_os(error, "read", path=file.path, position=position) from error


class ReopenedFile:
    """A file that is opened on use, and may be closed in between to free its descriptor.

    Current users hold their own reference to the open file. `name` is that of the file in errors.
    """

    __slots__ = ("__weakref__", "_file", "_fs", "_name", "path", "used")

    def __init__(self, path: str | os.PathLike[str], name: str, fs: FileSystem) -> None:
        self.path = os.fspath(path)
        self.used = False
        self._file: File | None = None
        self._fs = fs
        self._name = name

    def _opened(self, mode: str = "rw") -> File:
        """Return the open file; `mode` is that of FileSystem.open_file. OSError."""
        file = self._file
        if file is None:
            check_may_wait()
            DESCRIPTORS.make_room()
            self._file = file = self._fs.open_file(self.path, mode)
            DESCRIPTORS.add(self)
        self.used = True
        return file

    def try_close(self) -> bool:
        """Close the file for now."""
        self._file = None
        return True

    def release(self) -> None:
        """Close the descriptor, if one is open; the next use opens it again. It is released even after an error."""
        file, self._file = self._file, None
        DESCRIPTORS.discard(self)
        if file is not None:
            try:
                file.close()
            except OSError as error:
                raise self._failed("close", error) from error

    def unlink(self) -> bool:
        """Delete the file and return True if it existed."""
        try:
            return self._fs.unlink_if_exists(self.path)
        except OSError as error:
            raise self._failed("delete", error) from error

    def _failed(self, doing: str, error: OSError, position: int | None = None) -> StorageError:
        return StorageError.from_os(error, f"{doing} the {self._name}", path=self.path, position=position)


class LazyFile:
    """A file that is opened on demand and may be closed to free its descriptor. `file` is None while it is closed.

    A reader holds its own reference to the File for the length of its call. Closing drops only the reference held
    here, so the descriptor is closed after the last reader has finished, and its number is never reused under a
    reader. A writer that uses the descriptor number sets `owner`, and its `try_close` decides.

    A file that is closed before it is synced leaves a probe (`_core/bytes/mapping.pyx`). The kernel reports a failed
    write-back only to files open at the time, so an fsync through a later descriptor could miss it. `sync` asks
    both.

    Threads: any thread may read, in parallel with `try_close`, `rename_to` and `end`. Those, and writing, are for the
    owner.
    """

    __slots__ = (
        "__weakref__", "_fs", "_identity", "_mode", "_next_path", "_pinned", "_probe", "_renames", "file", "is_gone",
        "owner", "path", "used", "was_written",
    )  # fmt: skip

    def __init__(self, path: str, fs: FileSystem, mode: str = "rw", file: File | None = None) -> None:
        self.path = path
        self.file = file
        self.used = True
        self.was_written = False
        self.is_gone = False
        self.owner: weakref.ref[FileRecords] | None = None
        self._fs = fs
        self._identity: tuple[int, int] | None = None
        self._pinned: File | None = None
        self._mode = mode
        self._next_path: str | None = None
        self._renames = 0
        self._probe: WritebackErrorProbe | None = None

    def opened(self) -> File:
        """Return the open file; raise OSError if it cannot be opened, FileNotFoundError if it has lost its name."""
        file = self.file
        if file is None:
            check_may_wait()
            DESCRIPTORS.make_room()
            self.file = file = self._find()
            self.share()
        self.used = True
        return file

    def share(self) -> None:
        """Allow the file to be closed when descriptors are needed elsewhere."""
        DESCRIPTORS.add(self)

    def _find(self) -> File:
        """Open the file by its current or next name; a concurrent rename may give the old name to another file."""
        while True:
            renames, names = self._renames, (self.path, self._next_path)
            if self._pinned is not None:
                return self._pinned
            if not self._mode:
                raise self.lost()
            failure: OSError | None = None
            for name in names:
                if name is None:
                    continue
                try:
                    file = self._fs.open_file(name, self._mode)
                except FileNotFoundError as error:
                    failure = failure or error
                    continue
                if self._renames == renames:
                    return self._same(file)
                file.close()
                break
            if failure is not None and self._renames == renames:
                raise failure

    def _same(self, file: File) -> File:
        """Return `file`; close it and raise FileNotFoundError if another file has taken the name."""
        if self._identity is not None:
            status = file.stat()
            if (status.st_dev, status.st_ino) != self._identity:
                file.close()
                raise self.lost()
        return file

    def lost(self) -> FileNotFoundError:
        """Return the error for a file that is closed and has no name."""
        return FileNotFoundError(errno.ENOENT, "the file was deleted or closed", self.path)

    def try_close(self) -> bool:
        """Close the file for now; return False if it is being written or cannot be closed safely."""
        if self._pinned is not None:
            return False
        owner = None if self.owner is None else self.owner()
        return self.close_for_now() if owner is None else owner.try_close()

    def close_for_now(self) -> bool:
        """Close the file for now, without asking `owner`. The caller ensures that no one is writing.

        Return False if a file with unsynced writes must stay open, since the file system has no mappings.
        """
        file = self.file
        if file is not None and self.was_written and self._probe is None:
            try:
                self._probe = WritebackErrorProbe(file.fileno())
            except OSError:  # a file system without mappings
                return False
        self.file = None
        return True

    def pin(self, *, has_name: bool) -> None:
        """Keep the file readable for existing slices; no later rename is reported to this object.

        The file is opened and kept open. If `has_name` is true and the descriptor limit is reached, only its
        identity is stored: the file can be reopened until it is renamed or deleted.
        """
        try:
            if self.file is None and has_name:
                DESCRIPTORS.make_room()
                if len(DESCRIPTORS) >= DESCRIPTORS.limit:
                    status = self._fs.stat(self.path)
                    self._identity = status.st_dev, status.st_ino
                    return
            self._pinned = self.opened()
        except OSError:
            pass
        self._mode = ""

    def will_be(self, path: str) -> None:
        """Record that the file's directory is about to be renamed; `relocate` reports the outcome."""
        self._next_path = path
        self._renames += 1

    def relocate(self, path: str) -> None:
        """Set the file's current name."""
        self.path = path
        self._next_path = None
        self._renames += 1
        file = self.file
        if file is not None:
            file.path = path

    def rename_to(self, path: str) -> None:
        """Rename the file; on OSError it keeps its old name."""
        self.will_be(path)
        try:
            self._fs.rename(self.path, path)
        except BaseException:
            self.relocate(self.path)
            raise
        self.relocate(path)

    def datasync(self) -> None:
        """Sync all written data to disk; raise OSError also if a part was lost while the file was closed."""
        self.opened().datasync()
        if self._probe is not None:
            self._probe.sync()

    @property
    def has_probe(self) -> bool:
        """True if the file was closed with unsynced data and `dismiss_probe` has not been called since."""
        return self._probe is not None

    def dismiss_probe(self) -> None:
        """Drop the probe; the caller has synced and checked all written data."""
        self._probe = None

    # Reading, for slices

    def pread(self, size: int, position: int) -> bytes:
        """Read as `File.pread_at_once` does."""
        file = self.opened()
        return file.pread_at_once(size, position) if AT_ONCE else file.pread(size, position)

    def pread_into(self, buffer: Data, position: int) -> int:
        """Read as `File.pread_into` does."""
        return self.opened().pread_into(buffer, position)

    def stat(self) -> os.stat_result:
        """Return the status as `File.stat` does."""
        return self.opened().stat()

    def next_data(self, position: int) -> int:
        """Return the position as `File.next_data` does."""
        return self.opened().next_data(position)

    def expect_whole_read(self) -> None:
        """Advise the kernel as `File.expect_whole_read` does; a failure to open is raised by the next read."""
        try:
            self.opened().expect_whole_read()
        except OSError:
            pass

    def __repr__(self) -> str:
        return f"<LazyFile {self.path} {'closed for now' if self.file is None else 'open'}>"
