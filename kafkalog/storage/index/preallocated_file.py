"""The file under an index: written with pwrite, with disk space reserved ahead, and never mapped."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from kafkalog.errors import CorruptIndex, IllegalArgument
from kafkalog.storage.lazy_file import ReopenedFile
from kafkalog.util.fileio import FileSystem
from kafkalog.util.system_calls import CANNOT

MAX_INDEX_BYTES: Final = 2**31 - 1
RESERVE_STEP_BYTES: Final = 65536
_DISK_BLOCK_BYTES: Final = 512  # the unit of st_blocks on every file system


class PreallocatedFile(ReopenedFile):
    """A file of preallocated length: content first, then free space.

    It is never mapped: a process that ignores the lock may truncate it at any time, and touching a page behind the
    end of a file, or storing into a hole on a full disk, kills the interpreter (SIGBUS). Content is written with
    pwrite, which raises instead. `reserve` allocates disk space in steps of 64 KiB ahead, so that it fails before
    anything is written.

    Only a file being written holds a descriptor, and only until descriptors are needed elsewhere. StorageError, with
    errno and path, if the system refuses. Threads: one at a time, except for `sync`.
    """

    __slots__ = ("is_as_known", "length", "reserved")

    def __init__(self, path: str | os.PathLike[str], name: str, fs: FileSystem) -> None:
        """Describe the file at `path`, named `name` in errors; `open` or `create` opens it."""
        super().__init__(path, name, fs)
        self.length = 0
        self.reserved = 0  # number of bytes from the start that have disk space
        self.is_as_known = True  # not written or resized since it was opened or last compared

    def create(self) -> bool:
        """Create the file with length 0 and return True; return False if it exists."""
        try:
            self._opened("exclusive")
        except FileExistsError:
            return False
        except OSError as error:
            raise self._failed("create", error) from error
        return True

    def open(self) -> None:
        """Open the existing file and determine its length; CorruptIndex over 2 GiB."""
        try:
            stat = self._opened().stat()
        except OSError as error:
            raise self._failed("open", error) from error
        if stat.st_size > MAX_INDEX_BYTES:
            raise CorruptIndex(f"the {self._name} is {stat.st_size} bytes long, over 2 GiB", path=self.path)
        self.length = stat.st_size
        self.reserved = self.length if stat.st_blocks * _DISK_BLOCK_BYTES >= self.length else 0

    def discard(self) -> None:
        """Delete a new file that could not be set up; if that fails, it stays with length 0."""
        self.release()
        with suppress(OSError):
            self._fs.unlink(self.path)

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
            with self._fs.open_file(self.path, "rw") as file:
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
        """Close and delete the file; return True if it existed."""
        self.release()
        return self.unlink()
