"""Write a directory to one file, and restore it from there: creating many small files takes far longer.

The file has the length of its table in eight bytes, the table in JSON, and the contents in the table's order.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Container, Iterator
from typing import Final, NamedTuple

from kafkalog.errors import StorageError

_LENGTH: Final = struct.Struct("<Q")
_SMALL_BYTES: Final = 1 << 16
"""The contents of files up to this size are compared; larger ones of equal size and time count as equal."""
_PIECE_BYTES: Final = 1 << 20
_MAX_BUFFERS: Final = 512


class _Row(NamedTuple):
    """A file in the table, or a directory: its size is -1."""

    path: str
    size: int
    mtime_ns: int
    mode: int

    @property
    def is_directory(self) -> bool:
        return self.size < 0


_MISSING: Final = _Row("", -1, 0, 0)


def write_archive(directory: str, path: str, left_out: Container[str], marker: str = "") -> None:
    """Write the directory, without the names `left_out` at its top, to a new file at `path`. OSError, StorageError.

    An empty file named `marker`, if any, is added.
    """
    rows = [row for row in _rows(directory) if row.path not in left_out]
    added = [_Row(marker, 0, 0, 0o644)] if marker else []
    table = json.dumps(rows + added).encode()
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        gathered = [_LENGTH.pack(len(table)) + table]
        for row in rows:
            if not row.is_directory:
                _copy_into(target, gathered, os.path.join(directory, row.path), row.size)
        _write_all(target, gathered)
    finally:
        os.close(target)


def restore_archive(path: str, directory: str, left_alone: Container[str]) -> None:
    """Restore the directory from the archive, except the names `left_alone` at its top. OSError.

    Equal files are not written.
    """
    found = {row.path: row for row in _rows(directory) if row.path not in left_alone}
    archive = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        position = _LENGTH.size + _LENGTH.unpack(os.pread(archive, _LENGTH.size, 0))[0]
        rows = [_Row(*row) for row in json.loads(os.pread(archive, position - _LENGTH.size, _LENGTH.size))]
        wanted = {row.path: row for row in rows}
        for row in found.values():
            if row.path not in wanted or wanted[row.path].is_directory != row.is_directory:
                _remove(os.path.join(directory, row.path), row)
                found[row.path] = _MISSING
        for row in rows:
            target = os.path.join(directory, row.path)
            if row.is_directory:
                os.makedirs(target, exist_ok=True)
            elif row.path not in left_alone:
                _restore_file(archive, position, target, row, found.get(row.path, _MISSING))
            position += max(0, row.size)
    finally:
        os.close(archive)


def _rows(directory: str, prefix: str = "") -> Iterator[_Row]:
    """Yield a row for each entry of the directory, a subdirectory before its own entries."""
    with os.scandir(directory) as entries:
        for entry in entries:
            name = prefix + entry.name
            if entry.is_dir():
                yield _Row(name, -1, 0, 0)
                yield from _rows(entry.path, name + "/")
            else:
                stat = entry.stat()
                yield _Row(name, stat.st_size, stat.st_mtime_ns, stat.st_mode & 0o777)


def _copy_into(target: int, gathered: list[bytes], path: str, size: int) -> None:
    """Append a file's bytes: a small file to the list `gathered`, which is written when it is long enough."""
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if size <= _SMALL_BYTES:
            gathered.append(os.read(source, size + 1))  # one byte more: a longer file has replaced it
            copied = len(gathered[-1])
            if len(gathered) >= _MAX_BUFFERS:
                _write_all(target, gathered)
        else:
            _write_all(target, gathered)
            copied = _copy(source, 0, target, size)
    finally:
        os.close(source)
    if copied != size:
        raise StorageError("the file changed while it was copied", path=path)


def _copy(source: int, position: int, target: int, size: int) -> int:
    """Copy up to `size` bytes from `position` to the end of `target`, and return their number."""
    left = size
    while left and (piece := os.pread(source, min(left, _PIECE_BYTES), position)):
        _write_all(target, [piece])
        position += len(piece)
        left -= len(piece)
    return size - left


def _write_all(target: int, gathered: list[bytes]) -> None:
    """Write the buffers and clear the list."""
    data = memoryview(b"".join(gathered))
    gathered.clear()
    while data:
        data = data[os.write(target, data) :]


def _restore_file(archive: int, position: int, path: str, row: _Row, found: _Row) -> None:
    if row.size <= _SMALL_BYTES:
        content = os.pread(archive, row.size, position)
        is_equal = found.size == row.size and _content(path, row.size) == content
    else:
        is_equal = found == row
    if not is_equal:
        _write_file(archive, position, path, row, found)
    if not is_equal or found.mtime_ns != row.mtime_ns:
        os.utime(path, ns=(row.mtime_ns, row.mtime_ns))


def _write_file(archive: int, position: int, path: str, row: _Row, found: _Row) -> None:
    """Overwrite a file, which is faster than a new one. A hard-linked file, as in a fork of the log, is replaced."""
    if found is not _MISSING and os.stat(path).st_nlink > 1:
        os.unlink(path)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, row.mode)
    try:
        _copy(archive, position, target, row.size)
        if found.size > row.size:  # last: a file cut to 0 bytes and rewritten is flushed by some file systems
            os.ftruncate(target, row.size)
    finally:
        os.close(target)


def _content(path: str, size: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)


def _remove(path: str, row: _Row) -> None:
    """Remove a file or directory, unless it was removed with its parent."""
    if row.is_directory and os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
