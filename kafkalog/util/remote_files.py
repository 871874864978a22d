"""Read-only file calls on a store that fsspec knows (S3, GCS, Azure, SFTP, memory, ...).

`RemoteFileSystem` replaces the operating system's file calls, so that all code that reads logs works on a store. A path
is `/<protocol>:/<path in the store>`. An error of the store (a refused connection, a timeout, wrong access keys)
becomes an OSError, like that of a failing disk; data read before stays valid. Calls that write fail with EROFS.

Reads are in blocks, some of which are cached; a replaced file is a different file.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from kafkalog.util.fileio import FileSystem

if TYPE_CHECKING:
    from typing_extensions import Buffer

BLOCK_BYTES: Final = 1 << 20
KEPT_BLOCKS: Final = 64
_FIRST_NUMBER: Final = 1 << 30  # of open files; above any descriptor of the system
WRITING: Final = (
    "pwrite", "pwritev", "ftruncate", "posix_fallocate", "fsync", "fdatasync", "rename", "unlink", "link", "mkdir",
    "rmdir", "utime", "chmod", "fchmod", "fchown", "clone", "sendfile",
)  # fmt: skip
"""Calls of a file system that write."""
_TIMES: Final = ("mtime", "LastModified", "last_modified", "updated", "timeModified", "modified", "created")
_LISTINGS: Final = 10
_VERSIONS: Final = ("ETag", "etag", "version_id", "md5Hash", "crc32c", "ino")


class RemoteStatus(NamedTuple):
    """Status of a file or directory in the store; `version` changes with the content."""

    is_directory: bool
    size: int
    mtime_ns: int
    version: str


class RemoteFileSystem(FileSystem):
    """The store `remote`, a file system of fsspec, below the path `root` (`/s3:`). Threads: as fsspec allows.

    `is_rooted`: its paths begin with a slash, as those of files do, and those in a bucket do not.
    """

    def __init__(self, remote: Any, protocol: str, *, is_rooted: bool = False) -> None:
        self.remote = remote
        self.root = f"/{protocol}:"
        self._is_rooted = is_rooted or remote.root_marker == "/" or protocol in ("file", "local")
        self._open_files: dict[int, tuple[str, RemoteStatus]] = {}
        self._numbers = count(_FIRST_NUMBER)
        self._block = lru_cache(maxsize=KEPT_BLOCKS)(self._read_block)
        for name in ("open", "close", "pread", "preadv", "fstat", "stat", "listdir", "scandir", "advise"):
            setattr(self, name, getattr(self, f"_{name}"))
        for name in (*WRITING, "next_data"):
            setattr(self, name, refuse)

    def path_of(self, remote_path: str) -> str:
        """Return the local path of a path in the store."""
        return f"{self.root}/{remote_path.strip('/')}"

    def remote_path(self, path: str) -> str:
        """Return the path in the store of a local path."""
        text = path.removeprefix(self.root).strip("/")
        return f"/{text}" if self._is_rooted else text

    def url_of(self, path: str) -> str:
        """Return the URL of a local path, as `kafkalog.open` accepts it."""
        return f"{self.root.strip('/:')}://{self.remote_path(path)}"

    def found_in(self, path: str) -> dict[str, RemoteStatus]:
        """Return the entries of the directory `path`, by name. Raises OSError."""
        where = self.remote_path(path)
        try:
            self.remote.invalidate_cache(where)
            listed = self.remote.ls(where, detail=True)
        except Exception as error:
            raise as_os_error(error, path) from error
        found = {}
        for one in listed:
            name = str(one["name"]).rstrip("/").rpartition("/")[2]
            if name and str(one["name"]).strip("/") != where.strip("/"):
                found[name] = parse_info(one)
        if not found and not self._info(path).is_directory:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return found

    def _info(self, path: str) -> RemoteStatus:
        try:
            return parse_info(self.remote.info(self.remote_path(path)))
        except Exception as error:
            raise as_os_error(error, path) from error

    # The calls

    def _stat(self, path: str | os.PathLike[str]) -> os.stat_result:
        text = os.fspath(path)
        found = self._info(text)
        if text.endswith("/") and not found.is_directory:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), text)
        return _status(text, found)

    def _open(self, path: str, flags: int, mode: int = 0o777) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            refuse(path)
        number = next(self._numbers)
        self._open_files[number] = path, self._info(path)
        return number

    def _close(self, number: int) -> None:
        self._open_files.pop(number, None)

    def _open_file(self, number: int) -> tuple[str, RemoteStatus]:
        try:
            return self._open_files[number]
        except KeyError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    def _fstat(self, number: int) -> os.stat_result:
        return _status(*self._open_file(number))

    def _pread(self, number: int, size: int, position: int) -> bytes:
        path, found = self._open_file(number)
        end = min(position + size, found.size)
        parts = []
        while position < end:
            first = position // BLOCK_BYTES
            block = self._block(path, found, first)
            piece = block[position - first * BLOCK_BYTES : end - first * BLOCK_BYTES]
            if not piece:
                break
            parts.append(piece)
            position += len(piece)
        return b"".join(parts)

    def _preadv(self, number: int, buffers: Iterable[Buffer], position: int) -> int:
        return read_into(buffers, lambda size, done: self._pread(number, size, position + done))

    def _read_block(self, path: str, found: RemoteStatus, number: int) -> bytes:
        start = number * BLOCK_BYTES
        return self.read_range(path, start, min(start + BLOCK_BYTES, found.size))

    def read_range(self, path: str, start: int, stop: int) -> bytes:
        """Return bytes [start, stop) of a file by one request, not cached; OSError for any other number of bytes."""
        try:
            data = bytes(self.remote.cat_file(self.remote_path(path), start=start, end=stop))
        except Exception as error:
            raise as_os_error(error, path) from error
        if len(data) != stop - start:
            raise OSError(f"the store returned {len(data)} of {stop - start} requested bytes")
        return data

    def _listdir(self, path: str | os.PathLike[str]) -> list[str]:
        return list(self.found_in(os.fspath(path)))

    def _scandir(self, path: str | os.PathLike[str]) -> AbstractContextManager[Iterator[RemoteEntry]]:
        text = os.fspath(path)
        found = self.found_in(text)
        return nullcontext(RemoteEntry(name, os.path.join(text, name), one) for name, one in found.items())

    def _advise(self, number: int, offset: int, length: int, advice: int) -> None:
        pass


class RemoteEntry(NamedTuple):
    """One name in a directory, with the methods of os.DirEntry."""

    name: str
    path: str
    found: RemoteStatus

    def inode(self) -> int:
        """Return a number that differs for another file of the same name."""
        return _inode(self.path, self.found)

    def is_dir(self) -> bool:
        """Return True for a directory."""
        return self.found.is_directory

    def is_file(self) -> bool:
        """Return True for a file."""
        return not self.found.is_directory

    def stat(self) -> os.stat_result:
        """Return the status of the file, as `os.stat` does."""
        return _status(self.path, self.found)


def read_into(buffers: Iterable[Buffer], read: Callable[[int, int], bytes]) -> int:
    """Fill the buffers one after another; `read` returns bytes of a size behind those done. Return their number."""
    done = 0
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        data = read(len(view), done)
        view[: len(data)] = data
        done += len(data)
        if len(data) < len(view):
            break
    return done


def refuse(*arguments: object, **named: object) -> NoReturn:
    """Raise OSError for a call that writes."""
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def as_os_error(error: Exception, path: str) -> OSError:
    """Return an error of the store as an OSError."""
    if isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EISDIR):
        return type(error)(error.errno, os.strerror(error.errno), path)
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if isinstance(error, NotADirectoryError):
        return NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    if isinstance(error, PermissionError):
        return PermissionError(errno.EACCES, f"the store denied access: {error}", path)
    reason = str(error) or "no reason given"
    return OSError(f"the store failed ({type(error).__name__}: {reason[:300]})")


def list_objects(remote: Any, path: str, *, detail: bool, is_local: bool) -> list[Any]:
    """List a path in a store, not from a cache, with the store's errors. FileNotFoundError where nothing is.

    Older versions of fsspec raise that also for a local directory a file of which is removed meanwhile; its store in
    memory raises KeyError then.
    """
    remote.invalidate_cache(path)
    for _ in range(_LISTINGS):
        try:
            return list(remote.ls(path, detail=detail))
        except KeyError:
            continue
        except FileNotFoundError:
            pass
        if not (is_local and os.path.isdir(path)):
            break
    return list(remote.ls(path, detail=detail))


def parse_info(info: dict[str, Any]) -> RemoteStatus:
    """Return the status in the description of a file by fsspec; its time is 0 if the store has none."""
    is_directory = info.get("type") == "directory"
    time = next((info[name] for name in _TIMES if info.get(name) is not None), 0)
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            time = 0
    seconds = time.timestamp() if isinstance(time, datetime) else float(time)
    version = next((str(info[name]) for name in _VERSIONS if info.get(name) is not None), "")
    return RemoteStatus(is_directory, int(info.get("size") or 0), int(seconds * 1e9), version)


def _inode(path: str, found: RemoteStatus) -> int:
    version = found.version or str(found.mtime_ns)
    return int.from_bytes(sha256(os.fsencode(f"{path}\0{version}")).digest()[:7], "big")


def _status(path: str, found: RemoteStatus) -> os.stat_result:
    mode = stat_module.S_IFDIR | 0o555 if found.is_directory else stat_module.S_IFREG | 0o444
    seconds = found.mtime_ns // 1_000_000_000
    fields = (mode, _inode(path, found), 0, 1, 0, 0, found.size, seconds, seconds, seconds)
    exact = {"st_mtime_ns": found.mtime_ns, "st_ctime_ns": found.mtime_ns, "st_atime_ns": found.mtime_ns}
    return os.stat_result(fields, {**exact, "st_blocks": -(-found.size // 512)})
