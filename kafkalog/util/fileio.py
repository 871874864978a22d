"""The file layer: the only module that calls `os.*` on data.

`FileSystem` is a table of file calls. Everything above takes one as `fs`, so that a test can hand in
another that fails, writes short or records (tests/faults.py). `File` is an open file with positioned,
complete reads and writes. Errors leave here as plain OSError; `storage` turns them into StorageError.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
from collections.abc import Callable
from typing import Any, Final

from kafkalog.util.descriptors import with_room
from kafkalog.util.system_calls import SYSTEM

_FLAGS: Final = {
    "r": os.O_RDONLY,
    "rw": os.O_RDWR,
    "create": os.O_RDWR | os.O_CREAT,
    "exclusive": os.O_RDWR | os.O_CREAT | os.O_EXCL,
}
TMP_SUFFIX: Final = ".tmp"


class FileSystem:
    """The operating system's file calls, by their usual names and arguments.

    The attributes are the builtins themselves, so a call through a bound attribute costs nothing extra; what this
    system has in another form, or not at all, is stood for by `system_calls.py`. A subclass replaces the ones it wants
    to watch; callers look calls up on the instance they were given.
    """

    has_overlaps = False
    """True where a segment may hold offsets of the next one too, as tiered ones of several leaders do."""

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
        """The regular file `path`, open: "r", "rw", "create" (made if missing) or "exclusive" (must be new).

        OSError, also (EINVAL) for anything that is not a regular file: a pipe would block its reader.
        """
        name = os.fspath(path)
        # the File owns the descriptor at once: an interrupt must find exactly one to close it
        flags = _FLAGS[mode] | os.O_CLOEXEC | os.O_NONBLOCK
        file = File(name, with_room(self.open, name, flags, 0o666), self)
        try:
            kind = file.stat().st_mode
            if stat_module.S_ISDIR(kind):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
            if not stat_module.S_ISREG(kind):
                raise OSError(errno.EINVAL, "not a regular file", name)
        except BaseException:
            file.close()
            raise
        return file

    def names(self, path: str | os.PathLike[str]) -> list[str]:
        """The names in a directory, in no order; OSError."""
        return with_room(self.listdir, os.fspath(path))

    def entries(self, path: str | os.PathLike[str]) -> Any:
        """What `os.scandir` gives of a directory, to be closed; OSError."""
        return with_room(self.scandir, os.fspath(path))

    def fsync_dir(self, path: str | os.PathLike[str]) -> None:
        """Return when the directory's entries (new, renamed and removed names) are on disk."""
        fd = with_room(self.open, os.fspath(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.fsync(fd)
        finally:
            self.close(fd)

    def is_directory(self, path: str | os.PathLike[str]) -> bool:
        """True for a directory; False for anything else, and for what cannot be looked at."""
        try:
            return stat_module.S_ISDIR(self.stat(path).st_mode)
        except (OSError, ValueError):
            return False

    def exists(self, path: str | os.PathLike[str]) -> bool:
        """True where something has that name; OSError where that cannot be told (permissions)."""
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError, ValueError):  # of a NUL in it
            return False
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return False
            raise
        return True

    def read_file(self, path: str | os.PathLike[str], limit: int) -> bytes:
        """The whole content of a small file; OSError (EFBIG) when it is longer than `limit` bytes."""
        with self.open_file(path, "r") as file:
            size = file.size()
            if size > limit:
                raise OSError(errno.EFBIG, f"{size} bytes long, at most {limit} expected", file.path)
            return file.pread(size, 0)  # not `limit`: the system call's buffer is made before the first byte is read

    def unlink_if_exists(self, path: str | os.PathLike[str]) -> bool:
        """True when the file was there and is removed."""
        try:
            self.unlink(path)
        except FileNotFoundError:
            return False
        return True


class File:
    """One open file: whole reads and writes at a position, never a file pointer.

    The descriptor is closed by `close()` or when the last reference goes, whichever is first; so a reader
    that holds the File is never handed another file's bytes. Threads: reads and writes may overlap.
    """

    __slots__ = ("_fd", "_fs", "_pread", "_preadv", "_pwrite", "path")

    def __init__(self, path: str, fd: int, fs: FileSystem) -> None:
        self.path = path
        self._fd = fd
        self._fs = fs
        # bound once: a lookup of two attributes less on each call of the hot paths
        self._pread: Callable[[int, int, int], bytes] = fs.pread
        self._preadv: Callable[[int, Any, int], int] = fs.preadv
        self._pwrite: Callable[[int, Any, int], int] = fs.pwrite

    def pread(self, size: int, position: int) -> bytes:
        """`size` bytes from `position`; fewer only where the file ends before."""
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

    def pread_into(self, buffer: Any, position: int) -> int:
        """The number of bytes read into the writable `buffer`; fewer than its length only at the end."""
        view = memoryview(buffer).cast("B")
        have = 0
        while have < len(view):
            read = self._preadv(self._fd, (view[have:],), position + have)
            if read == 0:
                break
            have += read
        return have

    def next_data(self, position: int) -> int:
        """Return the first byte from `position` on that lies in no hole of the file; 2^63-1 where only a hole follows.

        `position` itself where the file system does not know its holes.
        """
        try:
            return self._fs.next_data(self._fd, position)
        except OSError as error:
            return 2**63 - 1 if error.errno == errno.ENXIO else position

    def pwrite(self, data: Any, position: int) -> int:
        """The length of `data` in bytes, once all of it is written at `position` (short writes go on).

        OSError leaves an unknown part of it in the file: the caller knows where the old end was.
        """
        size = len(data)
        written = self._pwrite(self._fd, data, position)
        if written == size:
            return size
        view = memoryview(data).cast("B")
        size = len(view)
        while written < size:
            more = self._pwrite(self._fd, view[written:], position + written)
            if more <= 0:
                raise OSError(errno.EIO, "the file system took no more bytes", self.path)
            written += more
        return size

    def truncate(self, length: int) -> None:
        """Make the file `length` bytes long."""
        self._fs.ftruncate(self._fd, length)

    def allocate(self, offset: int, length: int) -> None:
        """Reserve disk space for `length` bytes at `offset`; the file grows to that end.

        OSError (ENOSPC) here means that no later write into the range can fail for space, one of
        `system_calls.CANNOT` that the system or the file system reserves nothing.
        """
        if length > 0:
            self._fs.posix_fallocate(self._fd, offset, length)

    def sync(self) -> None:
        """Return when content and metadata are on disk."""
        self._fs.fsync(self._open_fd())

    def datasync(self) -> None:
        """Return when content (and the length, if it changed) is on disk."""
        self._fs.fdatasync(self._open_fd())

    def size(self) -> int:
        """The file's length in bytes, as the system has it now."""
        return self._fs.fstat(self._fd).st_size

    def stat(self) -> os.stat_result:
        """The system's record of the open file (it stays readable after an unlink)."""
        return self._fs.fstat(self._fd)

    def expect_whole_read(self) -> None:
        """Tell the system that the file will be read from front to back; a system that takes no advice has none."""
        try:
            self._fs.advise(self._fd, 0, 0, SYSTEM.advice_sequential)
        except OSError:
            pass

    def fileno(self) -> int:
        """The descriptor; -1 once closed."""
        return self._fd

    def _open_fd(self) -> int:
        """The descriptor; OSError (EBADF) once closed, as the other calls give (Python's fsync does not)."""
        if self._fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        return self._fd

    @property
    def closed(self) -> bool:
        """True after `close()`."""
        return self._fd < 0

    def close(self) -> None:
        """Give the descriptor back. A second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._fs.close(fd)

    def __enter__(self) -> File:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        fd = getattr(self, "_fd", -1)
        if fd >= 0:
            self._fd = -1
            try:
                self._fs.close(fd)
            except OSError:  # nobody is there who could be told
                pass

    def __repr__(self) -> str:
        return f"<File {self.path} {'closed' if self._fd < 0 else f'fd {self._fd}'}>"


OS: Final = FileSystem()


def make_directories(fs: FileSystem, path: str) -> None:
    """Make the directory `path` and the missing ones above it, each new name on disk; one that is there stays."""
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
    data: bytes,
    *,
    sync: bool = True,
    sync_entry: bool = True,
    private: bool = False,
) -> None:
    """Make `data` the content of `path`: a reader, or a crash, sees the old content or the new, whole.

    `private`: only its owner may read and write it, from before the first byte is in it. Without `sync_entry` a power
    loss may leave the old content until the directory is synced.

    Written to `<path>.tmp`, synced, renamed over the old file, and the directory synced (KAFKA-16541:
    never without the sync, else a power loss may leave an empty file). OSError leaves the old content.
    """
    name = os.fspath(path)
    temporary = name + TMP_SUFFIX
    try:
        with _new_file(fs, temporary) as file:
            if private:
                os.fchmod(file.fileno(), 0o600)
            file.pwrite(data, 0)
            if sync:
                file.sync()
        fs.rename(temporary, name)
    except BaseException:
        _discard(fs, temporary)
        raise
    if sync and sync_entry:
        fs.fsync_dir(os.path.dirname(name) or ".")


def _new_file(fs: FileSystem, path: str) -> File:
    """A file that nobody else has: what a crash left goes, and what a link of that name leads to stays as it is."""
    try:
        return fs.open_file(path, "exclusive")
    except FileExistsError:
        fs.unlink_if_exists(path)
        return fs.open_file(path, "exclusive")


def _discard(fs: FileSystem, path: str) -> None:
    """Remove a half-written temporary; one that stays is harmless, the next write removes it."""
    try:
        fs.unlink_if_exists(path)
    except OSError:
        pass
