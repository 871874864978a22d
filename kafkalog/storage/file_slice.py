"""A fixed range of a data file, read with pread."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkalog._core.batch.scan import REASON_SIZE, BatchHeader, BatchTable, scan
from kafkalog.errors import CorruptRecord, FormatError, IllegalArgument, StorageError
from kafkalog.storage.batch_search import checksum_holds
from kafkalog.storage.lazy_file import DataFile, read_at

if TYPE_CHECKING:
    from kafkalog.util.buffers import Data

LOG_OVERHEAD: Final = 12
"""Bytes of a batch before the part that its size field counts."""
HEADER_BYTES: Final = 17
"""Bytes that contain a batch's offset, size and magic; with fewer left, iteration ends (format.md §5)."""
HINT: Final = "everything before this position is readable; `kafkalog verify` shows where sound batches follow"
_NO_END_HINT: Final = 'mode "r" reads everything before it; `kafkalog verify` shows its position'
LARGEST_OFFSET: Final = 2**63 - 1
MAX_FILE_SIZE: Final = 2**31 - 1
FIRST_CHUNK: Final = 64 * 1024
LARGEST_CHUNK: Final = 1024 * 1024
LARGE_BATCH_BYTES: Final = 16 << 20
"""Largest batch read at once, in bytes; a larger one is read whole only after its checksum was verified in pieces."""


class FileSlice:
    """`size` bytes of a file from `position`, with fixed bounds.

    Data is read only by the methods. A slice holds the file, which stays readable after it was closed, renamed or
    deleted. A file that was truncated yields fewer bytes, never an error. Threads: immutable, any number may read.
    """

    __slots__ = ("file", "position", "size")

    def __init__(self, file: DataFile, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    @property
    def path(self) -> str:
        """Name of the file when it was opened or last renamed."""
        return self.file.path

    @property
    def end(self) -> int:
        """Position in the file after the last byte."""
        return self.position + self.size

    def read(self) -> bytes:
        """Return the bytes of the range; StorageError if the file system fails."""
        return read_at(self.file, self.size, self.position)

    def read_into(self, buffer: Data) -> int:
        """Read into the writable `buffer` and return the number of bytes, at most the slice's size."""
        try:
            return self.file.pread_into(memoryview(buffer)[: self.size], self.position)
        except OSError as error:
            raise StorageError.from_os(error, "read", path=self.path, position=self.position) from error

    def slice(self, position: int, size: int) -> FileSlice:
        """Return a part of this slice: `position` counts from its start, and its end stays within it (FILE-6).

        IllegalArgument for a negative position or size, or a position beyond this slice.
        """
        start, length = clamp(position, size, self.size, self.path)
        return FileSlice(self.file, self.position + start, length)

    def tables(self, *, check_crc: bool = False, whole: bool = False) -> Iterator[BatchTable]:
        """Yield tables of the complete batches, chunk by chunk; positions are the file's. Raises as `scanned` does."""
        for _, table in self.scanned(check_crc=check_crc, whole=whole):
            yield table

    def scanned(self, *, check_crc: bool = False, whole: bool = False) -> Iterator[tuple[bytes, BatchTable]]:
        """Yield chunks of the slice with the tables of their complete batches; positions are the file's.

        A chunk begins at the first batch of its table. Any magic is accepted (format.md §5). A last batch that is
        incomplete, or claims more than the slice holds, ends the slice without error: that is a torn tail. With
        `whole` the slice is known to end with a batch, and a torn tail raises CorruptRecord. So does a size field
        below 14. The batches before were yielded then.
        """
        position, end, chunk = self.position, self.position + self.size, FIRST_CHUNK
        while end - position >= HEADER_BYTES:
            requested = min(chunk, end - position)
            data = read_at(self.file, requested, position)
            table = scan(data, check_crc=check_crc, file_mode=True, base_position=position)
            if len(table):
                yield data, table
            if table.stop_reason == REASON_SIZE:
                raise bad_size(table.stop_value, self.path, table.stop_position)
            position = table.stop_position
            if len(data) < requested:
                break
            if len(table):
                chunk = min(chunk * 2, LARGEST_CHUNK)
                continue
            # not one complete batch: read as much as it claims, if the slice holds that
            chunk = claimed_size(data)
            if chunk <= requested or chunk > end - position:
                break
        if whole and position < end:
            message = f"an incomplete batch: only {end - position} bytes remain in the segment"
            raise CorruptRecord(message, path=self.path, position=position, hint=HINT)

    def batches(self, *, check_crc: bool = False) -> Iterator[BatchHeader]:
        """Yield the header of each complete batch, in file order; raises as `tables` does."""
        for table in self.tables(check_crc=check_crc):
            yield from table

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"<FileSlice [{self.position}, {self.end}) of {self.path}>"


def clamp(position: int, size: int, limit: int, path: str) -> tuple[int, int]:
    """Return `position` and the part of `size` that ends by `limit` (FILE-4, FILE-5).

    IllegalArgument for a negative position or size, or a position above `limit`.
    """
    if position < 0 or size < 0 or position > limit:
        raise IllegalArgument(
            f"invalid range of a file of {limit} bytes: position {position}, size {size}", path=path, position=position
        )
    return position, min(size, limit - position)


def claimed_size(data: bytes) -> int:
    """Return the size that the batch at the start of `data` claims; 0 if its size field is missing."""
    if len(data) < LOG_OVERHEAD:
        return 0
    return int.from_bytes(data[8:12], "big", signed=True) + LOG_OVERHEAD


def is_worth_reading(file: DataFile, position: int, size: int) -> bool:
    """Return False for a batch that claims to be huge but is invalid, so that its size field allocates no memory.

    StorageError if the file system fails.
    """
    return size <= LARGE_BATCH_BYTES or checksum_holds(file, position, size)


def check_file_size(size: int, path: str | os.PathLike[str]) -> None:
    """Raise FormatError above 2^31-1 bytes."""
    if size > MAX_FILE_SIZE:
        raise FormatError(
            f"the file has {size} bytes; a segment has at most 2^31-1", path=path, hint="it is not a Kafka segment"
        )


def check_next_offset(last_offset: int, path: str, position: int | None = None) -> int:
    """Return the offset after `last_offset`; CorruptRecord if there is none, since a log's end is an offset too."""
    if last_offset < LARGEST_OFFSET:
        return last_offset + 1
    raise CorruptRecord(
        f"a batch ends at offset {last_offset}, which leaves none for the log end",
        path=path, offset=last_offset, position=position, hint=_NO_END_HINT,
    )  # fmt: skip


def bad_size(value: int, path: str, position: int) -> CorruptRecord:
    """Return the error for a batch whose size field claims `value` bytes after the field."""
    return CorruptRecord(
        f"a batch's size field is {value}; the minimum is 14",
        path=path,
        position=position,
        hint=HINT,
    )
