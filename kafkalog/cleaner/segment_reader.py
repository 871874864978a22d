"""Sequential reader of segments through one buffer, each byte read once (CLN-27)."""

from __future__ import annotations

from mmap import mmap
from typing import Final

from kafkalog.errors import CorruptRecord
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.file_slice import HINT, LARGE_BATCH_BYTES, FileSlice, is_worth_reading
from kafkalog.storage.scan_advice import ScanAdvice
from kafkalog.util.fileio import File, FileSystem

_SMALLEST_BUFFER: Final = 4096


class SegmentReader:
    """A buffer of `buffer_bytes` for the segments of one pass; it grows for a longer batch and shrinks back.

        reader.begin(segment.records)
        while chunk := reader.chunk():
            used = ...                      # whole batches at the start of the chunk, in bytes
            reader.advance(used) if used else reader.grow(needed)
        reader.end()

    A batch cut off at a chunk's end is moved to the front, not read again. Data that was not in the page cache before
    is dropped from it. Threads: one.
    """

    __slots__ = ("_advice", "_buffer", "_end", "_file", "_fs", "_size", "_start", "buffer_bytes", "position", "records")

    def __init__(self, buffer_bytes: int, fs: FileSystem) -> None:
        self.buffer_bytes = max(buffer_bytes, _SMALLEST_BUFFER)
        self._buffer = page_buffer(self.buffer_bytes)
        self._fs = fs

    def begin(self, records: FileRecords, position: int = 0) -> None:
        """Read `records` from `position`, the start of a batch, up to their current end. StorageError."""
        self.records = records
        self.position = position
        """File position of the next chunk."""
        self._start = self._end = 0  # of the unused bytes in the buffer
        self._size = records.size
        self._file: File = records.opened()
        self._advice = ScanAdvice(self._file, self._size, self._fs)

    @property
    def capacity(self) -> int:
        """Current size of the buffer in bytes."""
        return len(self._buffer)

    @property
    def unread(self) -> int:
        """Bytes of the file from `position` on."""
        return self._size - self.position

    def chunk(self, most: int = 0) -> memoryview:
        """Return the bytes from `position` on, as many as the buffer holds; empty at the end of the segment.

        At most `most` bytes are returned, unless that is 0. The view is valid until the next call. CorruptRecord if the
        file is shorter than the segment; StorageError.
        """
        view = self._buffer
        have = self._end - self._start
        if self._start:
            view[:have] = view[self._start : self._end]
            self._start, self._end = 0, have
        count = min(len(view), self.unread, most or self.unread) - have
        if count > 0:
            read = FileSlice(self._file, self.position + have, count).read_into(view[have:])
            if read < count:
                raise self._corrupt(f"the file is {count - read} bytes too short")
            self._end += read
        return view[: min(self._end, most or self._end)]

    def advance(self, used: int) -> None:
        """Continue after the first `used` bytes of the last chunk."""
        self._start += used
        self.position += used
        self._advice.passed(self.position)

    def skip(self, size: int) -> None:
        """Continue after `size` bytes without reading them."""
        if size < self._end - self._start:
            self._start += size
        else:
            self._start = self._end = 0
        self.position += size
        self._advice.passed(self.position)

    def grow(self, needed: int) -> None:
        """Make room for a batch of `needed` bytes; no byte of the last chunk was used.

        CorruptRecord if the segment does not hold it: a damaged size field allocates no memory.
        """
        if needed > self.unread or needed <= len(self._buffer):
            if not needed:
                raise self._corrupt("a batch is truncated")
            raise self._corrupt(f"a batch claims {needed} bytes, but only {self.unread} are left")
        if needed > LARGE_BATCH_BYTES and not is_worth_reading(self._file, self.position, needed):
            raise self._corrupt(f"the batch of {needed} bytes does not match its CRC")
        grown = page_buffer(needed)
        have = self._end - self._start
        grown[:have] = self._buffer[self._start : self._end]
        self._buffer = grown
        self._start, self._end = 0, have

    def end(self) -> None:
        """Finish the segment and release a buffer that grew."""
        self._advice.done(self.position)
        del self._file, self._advice, self.records
        if len(self._buffer) > self.buffer_bytes:
            self._buffer = page_buffer(self.buffer_bytes)

    def _corrupt(self, message: str) -> CorruptRecord:
        return CorruptRecord(message, path=self.records.path, position=self.position, hint=HINT)


def page_buffer(size: int) -> memoryview:
    """Return page-aligned memory: copying into it is faster, and dropping it returns it to the system.

    MemoryError.
    """
    try:
        return memoryview(mmap(-1, size))
    except OSError as error:
        raise MemoryError(f"no memory for a buffer of {size} bytes") from error
