"""Listing of a partition directory's files: their length, the bytes in use, their disk space, their entries."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

from kafkalog._core.log.index import growing_offset_entries, growing_time_entries
from kafkalog.errors import CorruptRecord, StorageError
from kafkalog.storage.damage import next_sound
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, parse_base_offset
from kafkalog.storage.trailing_zeros import only_zeros
from kafkalog.util.fileio import OS, File, FileSystem
from kafkalog.util.os_errors import os_errors

DISK_BLOCK_BYTES = 512
PIECE_ENTRIES: Final = 1 << 14
_ENTRIES: Final = {
    INDEX_SUFFIX: (Struct(">ii"), growing_offset_entries),
    TIME_INDEX_SUFFIX: (Struct(">qi"), growing_time_entries),
}
_TAIL_BYTES: Final = 4096


class FileSummary(NamedTuple):
    """A file: its `length`, the `used` bytes of it, and the `disk` bytes allocated for it.

    `entries` is None for files that have none. An active segment's index is created at its full size
    (segment.index.bytes, 10 MiB): then `used` and `disk` are far below `length`.
    """

    name: str
    length: int
    used: int
    disk: int
    entries: int | None


def list_files(path: str, *, fs: FileSystem = OS) -> Iterator[FileSummary]:
    """Yield the regular files of a partition directory by name; one that is removed meanwhile is left out."""
    with os_errors("read the partition directory", path):
        names = sorted(fs.listdir(path))
    for name in names:
        file = os.path.join(path, name)
        try:
            if stat.S_ISREG(fs.stat(file).st_mode):
                yield _summary(file, name, fs)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError.from_os(error, "read the file", path=file) from error


def _summary(path: str, name: str, fs: FileSystem) -> FileSummary:
    with fs.open_file(path, "r") as file:
        status = file.stat()
        length, disk = status.st_size, status.st_blocks * DISK_BLOCK_BYTES
        suffix = os.path.splitext(name)[1]
        if parse_base_offset(name) is None:
            return FileSummary(name, length, length, disk, None)
        if suffix in _ENTRIES:
            entry, growing = _ENTRIES[suffix]
            entries = _count_entries(file, entry, growing)
            return FileSummary(name, length, entries * entry.size, disk, entries)
        used = _end_of_data(file, length, fs) if suffix == LOG_SUFFIX else length
        return FileSummary(name, length, used, disk, None)


def _count_entries(file: File, entry: Struct, growing: Callable[..., int]) -> int:
    """Return the number of an index's entries, read in pieces up to their end: the file may be long and sparse."""
    entries, before = 0, ()
    while True:
        data = file.pread(PIECE_ENTRIES * entry.size, entries * entry.size)
        count = growing(data, *before)
        entries += count
        if count < PIECE_ENTRIES:
            return entries
        before = entry.unpack_from(data, len(data) - entry.size)


def _end_of_data(file: File, length: int, fs: FileSystem) -> int:
    """Return the end of the data: the length, unless a preallocated file ends in zeros; then its headers are read.

    After damage, reading continues with the next sound batch.
    """
    tail = file.pread(_TAIL_BYTES, max(0, length - _TAIL_BYTES))
    if tail.strip(b"\0"):
        return length
    records = FileRecords(file, length, fs=fs, mutable=False)
    end = 0
    while True:
        with suppress(CorruptRecord):  # the zeros of the tail read as a batch of size 0
            for table in records.tables(end):
                end = max(end, table.stop_position)
        found = None if only_zeros(file, end, length) else next_sound(file, end, length, 0)
        if found is None:
            return end
        end = found.position
