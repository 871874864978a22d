"""A read-only file system with files that are made of objects of a store, beside those of another file system."""

from __future__ import annotations

import errno
import os
import stat as stat_module
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kafkalog.tiered.span_files import VirtualFile
from kafkalog.util.fileio import FileSystem
from kafkalog.util.remote_files import WRITING, read_into, refuse

if TYPE_CHECKING:
    from typing_extensions import Buffer

_FIRST_NUMBER: Final = 3 << 29  # of open virtual files; above those of a RemoteFileSystem, and still a C int


class VirtualFileSystem(FileSystem):
    """The file system `base` with additional files, which `virtual_files` gives for a directory. Threads: safe.

    A listing has a name once, as the file of `base`; an open and a status look at the virtual files first.
    """

    def __init__(self, base: FileSystem) -> None:
        self.base = base
        self._open_files: dict[int, VirtualFile] = {}
        self._numbers = count(_FIRST_NUMBER)
        for name in ("open", "close", "pread", "preadv", "fstat", "stat", "listdir", "scandir", "advise", "next_data"):
            setattr(self, name, getattr(self, f"_{name}"))
        for name in WRITING:
            setattr(self, name, refuse)

    def virtual_files(self, directory: str, *, refresh: bool = False) -> Mapping[str, VirtualFile]:
        """Return the virtual files of a directory by name; with `refresh`, as they are now. Raises KafkalogError."""
        raise NotImplementedError

    def _virtual(self, path: str) -> VirtualFile | None:
        directory, name = os.path.split(path)
        return self.virtual_files(directory).get(name)

    # The calls

    def _open(self, path: str, flags: int, mode: int = 0o777) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            refuse(path)
        file = self._virtual(path)
        if file is None:
            return self.base.open(path, flags, mode)
        file.size()  # raises what an open of the file would raise
        number = next(self._numbers)
        self._open_files[number] = file
        return number

    def _close(self, number: int) -> None:
        if number < _FIRST_NUMBER:
            self.base.close(number)
        else:
            self._open_files.pop(number, None)

    def _file(self, number: int) -> VirtualFile:
        try:
            return self._open_files[number]
        except KeyError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    def _pread(self, number: int, size: int, position: int) -> bytes:
        if number < _FIRST_NUMBER:
            return self.base.pread(number, size, position)
        return self._file(number).read(position, size)

    def _preadv(self, number: int, buffers: Iterable[Buffer], position: int) -> int:
        if number < _FIRST_NUMBER:
            return self.base.preadv(number, list(buffers), position)
        file = self._file(number)
        return read_into(buffers, lambda size, done: file.read(position + done, size))

    def _fstat(self, number: int) -> os.stat_result:
        if number < _FIRST_NUMBER:
            return self.base.fstat(number)
        return _status(self._file(number))

    def _stat(self, path: str | os.PathLike[str]) -> os.stat_result:
        text = os.fspath(path)
        file = self._virtual(text)
        return self.base.stat(text) if file is None else _status(file)

    def _listdir(self, path: str | os.PathLike[str]) -> list[str]:
        text = os.fspath(path)
        names = self.base.listdir(text)
        return [*names, *sorted(self.virtual_files(text, refresh=True).keys() - set(names))]

    def _scandir(self, path: str | os.PathLike[str]) -> AbstractContextManager[Iterator[Any]]:
        text = os.fspath(path)
        with cast(Any, self.base).scandir(text) as found:
            entries = list(found)
        names = {entry.name for entry in entries}
        virtual = self.virtual_files(text, refresh=True)
        more = [VirtualEntry(name, os.path.join(text, name), virtual[name]) for name in sorted(virtual.keys() - names)]
        return nullcontext(iter([*entries, *more]))

    def _advise(self, number: int, offset: int, length: int, advice: int) -> None:
        if number < _FIRST_NUMBER:
            self.base.advise(number, offset, length, advice)

    def _next_data(self, number: int, position: int) -> int:
        if number < _FIRST_NUMBER:
            return self.base.next_data(number, position)
        return position


class VirtualDirectory(VirtualFileSystem):
    """The file system `base` with one additional directory, `path`: `name` in the directory `parent` of `base`."""

    def __init__(self, base: FileSystem, parent: str, name: str) -> None:
        super().__init__(base)
        self._parent = parent
        self.path = os.path.join(parent, name)

    # The calls

    def _stat(self, path: str | os.PathLike[str]) -> os.stat_result:
        text = os.fspath(path)
        return self.base.stat(self._parent) if text.rstrip("/") == self.path else super()._stat(text)

    def _listdir(self, path: str | os.PathLike[str]) -> list[str]:
        text = os.fspath(path)
        if text.rstrip("/") != self.path:
            return self.base.listdir(text)
        return sorted(self.virtual_files(text, refresh=True))

    def _scandir(self, path: str | os.PathLike[str]) -> AbstractContextManager[Iterator[Any]]:
        text = os.fspath(path)
        if text.rstrip("/") != self.path:
            return super()._scandir(text)
        files = self.virtual_files(text, refresh=True)
        return nullcontext(VirtualEntry(name, os.path.join(text, name), file) for name, file in sorted(files.items()))


class VirtualEntry(NamedTuple):
    """A virtual file in a directory, with the methods of os.DirEntry."""

    name: str
    path: str
    file: VirtualFile

    def inode(self) -> int:
        """Return a number that differs for another content."""
        return _inode(self.file)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return False."""
        return False

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return True."""
        return True

    def is_symlink(self) -> bool:
        """Return False."""
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return the status of the file, as `os.stat` does."""
        return _status(self.file)


def _inode(file: VirtualFile) -> int:
    return int.from_bytes(sha256(file.identity.encode()).digest()[:7], "big")


def _status(file: VirtualFile) -> os.stat_result:
    size, seconds = file.size(), file.mtime_ns // 1_000_000_000
    fields = (stat_module.S_IFREG | 0o444, _inode(file), 0, 1, 0, 0, size, seconds, seconds, seconds)
    exact = {"st_mtime_ns": file.mtime_ns, "st_ctime_ns": file.mtime_ns, "st_atime_ns": file.mtime_ns}
    return os.stat_result(fields, {**exact, "st_blocks": -(-size // 512)})
