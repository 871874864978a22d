"""The file layer: the only module that calls `os.*` on data.

`FileSystem` is a table of file calls. Other modules take one as `fs`, so that a test can pass another one that fails,
writes short or records (tests/faults.py). `File` is an open file with positioned, complete reads and writes. This
module raises plain OSError; `storage` converts it to StorageError.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from threading import get_ident
from typing import TYPE_CHECKING, Final

from kafkalog._core.bytes.references import free_at_once
from kafkalog.errors import NOT_REGULAR
from kafkalog.util.closing import Closing
from kafkalog.util.descriptors import with_room
from kafkalog.util.system_calls import CANNOT, READ_IN_MEMORY, SYSTEM
from kafkalog.util.waiting import AT_ONCE, MustWait, may_wait

if TYPE_CHECKING:

    from kafkalog.util.buffers import Data

_FLAGS: Final = {
    "r": os.O_RDONLY,
    "rw": os.O_RDWR,
    "create": os.O_RDWR | os.O_CREAT,
    "exclusive": os.O_RDWR | os.O_CREAT | os.O_EXCL,
}
TMP_SUFFIX: Final = ".tmp"


class FileSystem:
    """The operating system's file calls, by their usual names and arguments.

    The attributes are the builtins themselves, so a call through a bound attribute costs nothing extra;
    `system_calls.py` replaces calls that this system lacks or has in another form. A subclass overrides the calls that
    it intercepts; callers look calls up on their instance.
    """

    has_overlaps = False
    """True if a segment may hold offsets of the next one too, as tiered segments of several leaders do."""

    open = staticmethod(os.open)
    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    preadv = staticmethod(os.preadv)
    pwrite = staticmethod(os.pwrite)
    pwritev = staticmethod(os.pwritev)
    ftruncate = staticmethod(os.ftruncate)
    posix_fallocate = staticmethod(SYSTEM.posix_fallocate)
    fsync = staticmethod(SYSTEM.fsync)
    fdatasync = staticmethod(SYSTEM.fdatasync)
    fstat = staticmethod(os.fstat)
    stat = staticmethod(os.stat)
    rename = staticmethod(os.replace)
    unlink = staticmethod(os.unlink)
    link = staticmethod(os.link)
    clone = staticmethod(SYSTEM.clone)
    mkdir = staticmethod(os.mkdir)
    rmdir = staticmethod(os.rmdir)
    listdir = staticmethod(os.listdir)
    scandir = staticmethod(os.scandir)
    utime = staticmethod(os.utime)
    chmod = staticmethod(os.chmod)
    fchmod = staticmethod(os.fchmod)
    fchown = staticmethod(os.fchown)
    sendfile = staticmethod(SYSTEM.sendfile)
    advise = staticmethod(SYSTEM.advise)
    next_data = staticmethod(SYSTEM.next_data)

    def open_file(self, path: str | os.PathLike[str], mode: str) -> File:
        """Open the regular file `path`: "r", "rw", "create" (created if missing) or "exclusive" (must be new).

        Raises OSError, also (EINVAL) for anything that is not a regular file: a pipe would block its reader.
        """
        name = os.fspath(path)
        # the File owns the descriptor at once, so that an interrupt leaves exactly one owner that closes it
        flags = _FLAGS[mode] | os.O_CLOEXEC | os.O_NONBLOCK
        file = File(name, with_room(self.open, name, flags, 0o666), self)
        free_at_once(file)
        try:
            kind = file.stat().st_mode
            if stat_module.S_ISDIR(kind):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
            if not stat_module.S_ISREG(kind):
                raise OSError(errno.EINVAL, NOT_REGULAR, name)
        except BaseException:
            file.close()
            raise
        return file

    def names(self, path: str | os.PathLike[str]) -> list[str]:
        """Return the names in a directory, unordered. Raises OSError."""
        return with_room(self.listdir, os.fspath(path))

    def entries(self, path: str | os.PathLike[str]) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        """Return the iterator of `os.scandir` for a directory, to be closed by the caller. Raises OSError."""
        return with_room(self.scandir, os.fspath(path))

    def fsync_dir(self, path: str | os.PathLike[str]) -> None:
        """Sync the directory's entries (new, renamed and removed names) to disk."""
        fd = with_room(self.open, os.fspath(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.fsync(fd)
        finally:
            self.close(fd)

    def is_directory(self, path: str | os.PathLike[str]) -> bool:
        """Return True for a directory; False for anything else, and for a path that cannot be accessed."""
        try:
            return stat_module.S_ISDIR(self.stat(path).st_mode)
        except (OSError, ValueError):
            return False

    def exists(self, path: str | os.PathLike[str]) -> bool:
        """Return True if the path exists; raise OSError if that cannot be determined (permissions)."""
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in the path
            return False
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return False
            raise
        return True

    def read_file(self, path: str | os.PathLike[str], limit: int) -> bytes:
        """Return the content of a small file; raise OSError (EFBIG) if it is longer than `limit` bytes."""
        with self.open_file(path, "r") as file:
            size = file.size()
            if size > limit:
                raise OSError(errno.EFBIG, f"{size} bytes long, at most {limit} expected", file.path)
            return file.pread(size, 0)  # not `limit`: pread allocates its buffer before it reads

    def unlink_if_exists(self, path: str | os.PathLike[str]) -> bool:
        """Remove a file; return False if it is missing."""
        try:
            self.unlink(path)
        except FileNotFoundError:
            return False
        return True


class File(Closing):
    """An open file: complete reads and writes at a position, without a file pointer.

    The descriptor is closed by `close()` or with the last reference, whichever is first. So a reader that holds the
    File never gets another file's bytes. In any thread the last reference closes it at once (`free_at_once`), or the
    limit on descriptors would not hold. Threads: reads and writes may overlap.
    """

    __slots__ = ("_fd", "_fs", "_pread", "_preadv", "_pwrite", "path")

    def __init__(self, path: str, fd: int, fs: FileSystem) -> None:
        self.path = path
        self._fd = fd
        self._fs = fs
        # bound once: saves two attribute lookups on each call of the hot paths
        self._pread: Callable[[int, int, int], bytes] = fs.pread
        self._preadv: Callable[..., int] = fs.preadv
        self._pwrite: Callable[[int, Data, int], int] = fs.pwrite

    def pread(self, size: int, position: int) -> bytes:
        """Return `size` bytes from `position`; fewer only at the end of the file."""
        data = self._pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        have = len(data)
        while have < size:
            data = self._pread(self._fd, size - have, position + have)
            if not data:
                break
            parts.append(data)
            have += len(data)
        return b"".join(parts) if len(parts) > 1 else parts[0]

    def pread_at_once(self, size: int, position: int) -> bytes:
        """Return the bytes as `pread` does; within `at_once`, raise MustWait unless all of them are in memory.

        If the system or the file system cannot tell, they count as in memory.
        """
        if not AT_ONCE or may_wait() or READ_IN_MEMORY is None:
            return self.pread(size, position)
        data = bytearray(size)
        try:
            count = self._preadv(self._fd, (data,), position, READ_IN_MEMORY)
        except BlockingIOError:
            raise MustWait from None
        except OSError as error:
            if error.errno not in CANNOT:
                raise
            return self.pread(size, position)
        if count != size:  # a part is not in memory, or the file was truncated
            raise MustWait
        return bytes(data)

    def pread_into(self, buffer: Data, position: int) -> int:
        """Read into the writable `buffer` and return the number of bytes; fewer than its length only at the end."""
        view = memoryview(buffer).cast("B")
        have = self._preadv(self._fd, (view,), position)
        if not have:
            return 0
        while have < len(view):
            read = self._preadv(self._fd, (view[have:],), position + have)
            if read == 0:
                break
            have += read
        return have

    def next_data(self, position: int) -> int:
        """Return the position of the first byte from `position` on outside of holes; 2^63-1 if only a hole follows.

        Return `position` if the file system does not report holes.
        """
        try:
            return self._fs.next_data(self._fd, position)
        except OSError as error:
            return 2**63 - 1 if error.errno == errno.ENXIO else position

    def pwrite(self, data: Data, position: int) -> int:
        """Write all of `data` at `position`, continuing after short writes; return its length in bytes.

        An OSError leaves an unknown part of it in the file; the caller must know the old end.
        """
        size = len(data)
        written = self._pwrite(self._fd, data, position)
        if written == size:
            return size
        view = memoryview(data).cast("B")
        size = len(view)
        while written < size:
            count = self._pwrite(self._fd, view[written:], position + written)
            if count <= 0:
                raise OSError(errno.EIO, "the file system accepted no more bytes", self.path)
            written += count
        return size

    def truncate(self, length: int) -> None:
        """Make the file `length` bytes long."""
        self._fs.ftruncate(self._fd, length)

    def allocate(self, offset: int, length: int) -> None:
        """Reserve disk space for `length` bytes at `offset`; the file grows to that end.

        After success no later write into the range fails for lack of space. Raises OSError (ENOSPC) without space; with
        a code of `system_calls.CANNOT` if the system or the file system cannot reserve space.
        """
        if length > 0:
            self._fs.posix_fallocate(self._fd, offset, length)

    def sync(self) -> None:
        """Sync content and metadata to disk."""
        self._fs.fsync(self._open_fd())

    def datasync(self) -> None:
        """Sync the content (and the length, if it changed) to disk."""
        self._fs.fdatasync(self._open_fd())

    def size(self) -> int:
        """Return the file's current length in bytes."""
        return self._fs.fstat(self._fd).st_size

    def stat(self) -> os.stat_result:
        """Return the stat result of the open file (it stays readable after an unlink)."""
        return self._fs.fstat(self._fd)

    def expect_whole_read(self) -> None:
        """Advise the system that the file will be read from start to end; ignored if it is not supported."""
        try:
            self._fs.advise(self._fd, 0, 0, SYSTEM.advice_sequential)
        except OSError:
            pass

    def fileno(self) -> int:
        """Return the descriptor; -1 once closed."""
        return self._fd

    def _open_fd(self) -> int:
        """Return the descriptor; raise OSError (EBADF) once closed, as the other calls do (Python's fsync does not)."""
        if self._fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        return self._fd

    @property
    def is_plain(self) -> bool:
        """True if compiled code may read the descriptor itself: no one intercepts `pread_into`."""
        return self._preadv is os.preadv

    @property
    def closed(self) -> bool:
        """True after `close()`."""
        return self._fd < 0

    def close(self) -> None:
        """Close the descriptor. A second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._fs.close(fd)

    def __del__(self) -> None:
        fd = getattr(self, "_fd", -1)
        if fd >= 0:
            self._fd = -1
            try:
                self._fs.close(fd)
            except OSError:  # a finalizer has no caller to report to
                pass

    def __repr__(self) -> str:
        return f"<File {self.path} {'closed' if self._fd < 0 else f'fd {self._fd}'}>"


OS: Final = FileSystem()


def make_directories(fs: FileSystem, path: str) -> None:
    """Create the directory `path` and missing parents, and sync each new entry; existing directories stay."""
    missing = []
    while not fs.exists(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        try:
            fs.mkdir(each)
        except FileExistsError:
            continue
        fs.fsync_dir(os.path.dirname(each))


def atomic_write(
    fs: FileSystem,
    path: str | os.PathLike[str],
    *data: Data,
    sync: bool = True,
    sync_entry: bool = True,
    private: bool = False,
    shared: bool = False,
) -> None:
    """Replace the content of `path` with all `data`; a reader, or a crash, sees either the old content or the new.

    `private`: only the owner may read and write the file, set before the first byte is written. `shared`: another
    thread or process may write the same file meanwhile. Without `sync_entry` a power loss may leave the old content
    until the directory is synced.

    The data is written to `<path>.tmp`, of a `shared` file to `<path>.<process>-<thread>.tmp`, synced, renamed over the
    old file, and the directory is synced (KAFKA-16541: without the sync a power loss may leave an empty file). An
    OSError leaves the old content.
    """
    name = os.fspath(path)
    temporary = f"{name}.{os.getpid()}-{get_ident():x}{TMP_SUFFIX}" if shared else name + TMP_SUFFIX
    try:
        with _new_file(fs, temporary) as file:
            if private:
                os.fchmod(file.fileno(), 0o600)
            position = 0
            for part in data:
                position += file.pwrite(part, position)
            if sync:
                file.sync()
        fs.rename(temporary, name)
    except BaseException:
        _discard(fs, temporary)
        raise
    if sync and sync_entry:
        fs.fsync_dir(os.path.dirname(name) or ".")


def _new_file(fs: FileSystem, path: str) -> File:
    """Create a new file at `path`; delete a leftover of a crash, or a link without touching its target."""
    try:
        return fs.open_file(path, "exclusive")
    except FileExistsError:
        fs.unlink_if_exists(path)
        return fs.open_file(path, "exclusive")


def _discard(fs: FileSystem, path: str) -> None:
    """Remove a partial temporary file; a failure is harmless, since the next write removes it."""
    try:
        fs.unlink_if_exists(path)
    except OSError:
        pass
