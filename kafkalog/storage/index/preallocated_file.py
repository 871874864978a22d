"""The file under an index: written with pwrite, with disk space reserved ahead, and never mapped."""

from __future__ import annotations

import os
from typing import Final

from kafkalog.errors import CorruptIndex, IllegalArgument, StorageError
from kafkalog.util.descriptors import DESCRIPTORS
from kafkalog.util.fileio import File, FileSystem
from kafkalog.util.system_calls import CANNOT

MAX_INDEX_BYTES: Final = 2**31 - 1
RESERVE_STEP_BYTES: Final = 65536
_DISK_BLOCK_BYTES: Final = 512  # the unit of st_blocks on every file system


class PreallocatedFile:
    """A file of preallocated length: content first, then free space.

    It is never mapped: a process that ignores the lock may truncate it at any time, and touching a page behind the
    end of a file, or storing into a hole on a full disk, kills the interpreter (SIGBUS). Content is written with
    pwrite, which raises instead. `reserve` allocates disk space in steps of 64 KiB ahead, so that it fails before
    anything is written.

    Only a file being written holds a descriptor, and only until descriptors are needed elsewhere. StorageError, with
    errno and path, if the system refuses. Threads: one at a time, except for `sync`.
    """

    __slots__ = (
        "__weakref__", "_file", "_fs", "_name", "is_as_known", "length", "path", "reserved", "used", "writable"
    )  # fmt: skip

    def __init__(self, path: str | os.PathLike[str], name: str, fs: FileSystem, writable: bool) -> None:
        """Describe the file at `path`, named `name` in errors; `open` or `create` opens it."""
        self.path = os.fspath(path)
        self.length = 0
        self.reserved = 0  # number of bytes from the start that have disk space
        self.is_as_known = True  # not written or resized since it was opened or last compared
        self.writable = writable
        self.used = False
        self._name = name
        self._fs = fs
        self._file: File | None = None

    def create(self) -> bool:
        """Create the file with length 0 and return True; return False if it exists."""
        DESCRIPTORS.make_room()
        try:
            self._file = self._fs.open_file(self.path, "exclusive")
            DESCRIPTORS.add(self)
        except FileExistsError:
            return False
        except OSError as error:
            raise self._failed("create", error) from error
        return True

    def open(self) -> None:
        """Open the existing file and determine its length; CorruptIndex over 2 GiB."""
        try:
            file = self._opened()
            stat = file.stat()
        except OSError as error:
            raise self._failed("open", error) from error
        if stat.st_size > MAX_INDEX_BYTES:
            raise CorruptIndex(f"the {self._name} is {stat.st_size} bytes long, over 2 GiB", path=self.path)
        self.length = stat.st_size
        self.reserved = self.length if stat.st_blocks * _DISK_BLOCK_BYTES >= self.length else 0

    def discard(self) -> None:
        """Delete a new file that could not be set up; if that fails, it stays with length 0."""
        self.release()
        try:
            self._fs.unlink(self.path)
        except OSError:
            pass

    def content(self, size: int) -> bytes:
        """Return the first `size` bytes of the file; fewer only if another process truncated it."""
        try:
            return self._opened().pread(size, 0)
        except OSError as error:
            raise self._failed("read", error) from error

    def reserve(self, end: int) -> None:
        """Reserve disk space for the bytes before `end` (and up to 64 KiB more), within the file's length."""
        target = min(-(-end // RESERVE_STEP_BYTES) * RESERVE_STEP_BYTES, self.length)
        if target <= self.reserved:
            return
        try:
            self._opened().allocate(self.reserved, target - self.reserved)
        except OSError as error:
            if error.errno not in CANNOT:
                raise self._failed("reserve space for", error) from error
            target = self.length  # not supported by the file system: the write itself will fail
        self.reserved = target

    def write(self, data: bytes, position: int) -> None:
        """Write `data` at `position`; after an error the bytes there are unknown."""
        self.is_as_known = False
        try:
            (self._file or self._opened()).pwrite(data, position)
        except OSError as error:
            raise self._failed("write to", error, position) from error

    def set_length(self, length: int) -> None:
        """Set the file's length. The caller ensures that no one reads the part that is cut off."""
        if length > MAX_INDEX_BYTES:
            raise IllegalArgument(f"an index of {length} bytes is over 2 GiB", path=self.path)
        self.is_as_known = False
        try:
            self._opened().truncate(length)
        except OSError as error:
            raise self._failed("change the length of", error) from error
        self.length = length
        self.reserved = min(self.reserved, length)

    def sync(self) -> None:
        """Sync content and length to disk.

        Threads: in parallel with any other call. It opens a separate descriptor, since the owner may release the
        first.
        """
        try:
            with self._fs.open_file(self.path, "rw" if self.writable else "r") as file:
                file.datasync()
        except OSError as error:
            raise self._failed("sync", error) from error

    def rename(self, path: str | os.PathLike[str]) -> None:
        """Rename the file."""
        target = os.fspath(path)
        try:
            self._fs.rename(self.path, target)
        except OSError as error:
            raise self._failed("rename", error) from error
        self.path = target

    def delete(self) -> bool:
        """Delete the file and return True if it existed."""
        self.release()
        try:
            return self._fs.unlink_if_exists(self.path)
        except OSError as error:
            raise self._failed("delete", error) from error

    def release(self) -> None:
        """Close the descriptor, if one is open; the next use opens it again."""
        file, self._file = self._file, None
        DESCRIPTORS.discard(self)
        if file is not None:
            try:
                file.close()
            except OSError as error:
                raise self._failed("close", error) from error

    def let_go(self) -> bool:
        """Close the descriptor; always possible, since current users hold the file and `sync` opens its own."""
        self._file = None
        return True

    def _opened(self) -> File:
        file = self._file
        if file is None:
            DESCRIPTORS.make_room()
            self._file = file = self._fs.open_file(self.path, "rw" if self.writable else "r")
            DESCRIPTORS.add(self)
        self.used = True
        return file

    def _failed(self, doing: str, error: OSError, position: int | None = None) -> StorageError:
        return StorageError.from_os(error, f"{doing} the {self._name}", path=self.path, position=position)
