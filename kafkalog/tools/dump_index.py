"""The dump tool's text of `.index` and `.timeindex` files (format.md section 13, A5 to A7)."""

from __future__ import annotations

import os
from typing import BinaryIO

from kafkalog._core.listing import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, list_entries
from kafkalog._core.text import TextBuffer
from kafkalog.errors import CorruptIndex, StorageError, UnsupportedForFormat
from kafkalog.tools.dump_options import DumpOptions
from kafkalog.util.fileio import File, FileSystem

CHUNK_ENTRIES = 1 << 14


def dump_index(path: str, base_offset: int, out: BinaryIO, options: DumpOptions, *, fs: FileSystem) -> None:
    """Writes the entries of an offset index: `offset: 2 position: 87`."""
    with _opened(path, options, fs) as file:
        size = file.size()
        if size < OFFSET_ENTRY_BYTES:
            out.write(os.fsencode(f"{path} is empty.\n"))
        elif options.index_sanity_check:
            _check_offset_index(file, size, base_offset)
            out.write(os.fsencode(f"{path} passed sanity check.\n"))
        else:
            _list(file, size // OFFSET_ENTRY_BYTES, base_offset, out, times=False)


def dump_time_index(path: str, base_offset: int, out: BinaryIO, options: DumpOptions, *, fs: FileSystem) -> None:
    """Writes the entries of a time index: `timestamp: 1002 offset: 2`; without entries, nothing."""
    with _opened(path, options, fs) as file:
        size = file.size()
        if options.index_sanity_check:
            _check_time_index(file, size, base_offset)
            out.write(os.fsencode(f"{path} passed sanity check.\n"))
        else:
            _list(file, size // TIME_ENTRY_BYTES, base_offset, out, times=True)


def _opened(path: str, options: DumpOptions, fs: FileSystem) -> File:
    if options.verify_index_only and not options.index_sanity_check:
        raise UnsupportedForFormat("--verify-index-only: entries cannot be compared with the log yet", path=path)
    try:
        return fs.open_file(path, "r")
    except OSError as error:
        raise StorageError.from_os(error, "open", path=path) from error


def _list(file: File, entries: int, base_offset: int, out: BinaryIO, *, times: bool) -> None:
    """Writes the first `entries` entries, or those before the unused tail."""
    size = TIME_ENTRY_BYTES if times else OFFSET_ENTRY_BYTES
    text = TextBuffer()
    for first in range(0, entries, CHUNK_ENTRIES):
        data = _read(file, min(CHUNK_ENTRIES, entries - first) * size, first * size)
        more = list_entries(text, data[: len(data) - len(data) % size], base_offset, times=times, first=first == 0)
        out.write(text)
        text.clear()
        if not more or not data:
            return


def _check_offset_index(file: File, size: int, base_offset: int) -> None:
    """CorruptIndex unless the last entry is not below the base and the length holds whole entries (A7)."""
    last = _entry(file, size, OFFSET_ENTRY_BYTES, 0)
    if last < 0:
        raise CorruptIndex(
            f"Corrupt index found, index file ({file.path}) has non-zero size but the last offset is "
            f"{base_offset + last} which is less than the base offset {base_offset}",
            path=file.path,
        )
    if size % OFFSET_ENTRY_BYTES:
        raise CorruptIndex(
            f"Index file {file.path} is corrupt, found {size} bytes which is neither positive nor a multiple of 8",
            path=file.path,
        )


def _check_time_index(file: File, size: int, base_offset: int) -> None:
    """CorruptIndex unless times go up from the first entry to the last and the length holds whole entries (A7)."""
    if size >= TIME_ENTRY_BYTES:
        first_time = int.from_bytes(_read(file, 8, 0), "big", signed=True)
        last_time = int.from_bytes(
            _read(file, 8, (size // TIME_ENTRY_BYTES - 1) * TIME_ENTRY_BYTES), "big", signed=True
        )
        last = _entry(file, size, TIME_ENTRY_BYTES, 8)
        found = f"Corrupt time index found, time index file ({file.path}) has non-zero size but the last "
        if last_time < first_time:
            raise CorruptIndex(
                f"{found}timestamp is {last_time} which is less than the first timestamp {first_time}", path=file.path
            )
        if last < 0:
            raise CorruptIndex(
                f"{found}offset is {base_offset + last} which is less than the first offset {base_offset}",
                path=file.path,
            )
    if size % TIME_ENTRY_BYTES:
        raise CorruptIndex(
            f"Time index file {file.path} is corrupt, found {size} bytes which is neither positive nor a multiple "
            "of 12",
            path=file.path,
        )


def _entry(file: File, size: int, entry_bytes: int, at: int) -> int:
    """The relative offset of the last whole entry, which begins `at` bytes into the entry."""
    position = (size // entry_bytes - 1) * entry_bytes
    return int.from_bytes(_read(file, 4, position + at), "big", signed=True)


def _read(file: File, size: int, position: int) -> bytes:
    try:
        return file.pread(size, position)
    except OSError as error:
        raise StorageError.from_os(error, "read", path=file.path, position=position) from error
