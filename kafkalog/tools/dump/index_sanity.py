"""Checks of --index-sanity-check on a single index (format.md section 13, A7)."""

from __future__ import annotations

from kafkalog._core.text.listing import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from kafkalog.errors import CorruptIndex
from kafkalog.storage.file_slice import FileSlice
from kafkalog.util.fileio import File


def check_offset_index(file: File, size: int, base_offset: int) -> None:
    """Raise CorruptIndex if the last entry is below the base or the length is no multiple of the entry size."""
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


def check_time_index(file: File, size: int, base_offset: int) -> None:
    """Raise CorruptIndex if the times or the last offset go back, or the length is no multiple of the entry size."""
    if size >= TIME_ENTRY_BYTES:
        first_time = int.from_bytes(FileSlice(file, 0, 8).read(), "big", signed=True)
        last_time = int.from_bytes(
            FileSlice(file, (size // TIME_ENTRY_BYTES - 1) * TIME_ENTRY_BYTES, 8).read(), "big", signed=True
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
    """Return the relative offset of the last complete entry, which begins `at` bytes into the entry."""
    position = (size // entry_bytes - 1) * entry_bytes
    return int.from_bytes(FileSlice(file, position + at, 4).read(), "big", signed=True)
