"""Reading segments from front to back through one buffer, each byte once (CLN-27)."""

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
    """A buffer of `buffer_bytes` for the segments of one pass, that grows for a longer batch and shrinks back.

        reader.begin(segment.records)
        while chunk := reader.chunk():
            used = ...                      # whole batches at the start of the chunk, in bytes
            reader.advance(used) if used else reader.grow(needed)
        reader.end()

    What is cut off at a chunk's end is moved to the front, not read again. What was not in the page cache before does
    not stay there. Threads: one.
    """

    __slots__ = ("_advice", "_buffer", "_end", "_file", "_fs", "_size", "_start", "buffer_bytes", "position", "records")

    def __init__(self, buffer_bytes: int, fs: FileSystem) -> None:
        self.buffer_bytes = max(buffer_bytes, _SMALLEST_BUFFER)
        self.position = 0
        """Where the next chunk begins in the file."""
        self._buffer = page_buffer(self.buffer_bytes)
        self._fs = fs
        self._start = self._end = 0  # of what is in the buffer and not used yet
        self._size = 0

    def begin(self, records: FileRecords, position: int = 0) -> None:
        """Read `records` from `position`, where a batch begins, up to their present end. StorageError."""
        self.records = records
        self.position = position
        self._start = self._end = 0
        self._size = records.size
        self._file: File = records.opened()
        self._advice = ScanAdvice(self._file, self._size, self._fs)

    @property
    def capacity(self) -> int:
        """Bytes of the buffer as it is now."""
        return len(self._buffer)

    @property
    def unread(self) -> int:
        """Bytes of the file from `position` on."""
        return self._size - self.position

    def chunk(self, most: int = 0) -> memoryview:
        """The bytes from `position` on, as many as the buffer holds; empty at the end of the segment.

        At most `most` bytes, unless that is 0. It is valid until the next call. CorruptRecord where the file ends
        before it should, StorageError.
        """
        view = self._buffer
        have = self._end - self._start
        if self._start:
            view[:have] = view[self._start : self._end]
            self._start, self._end = 0, have
        wanted = min(len(view), self.unread, most or self.unread) - have
        if wanted > 0:
            read = FileSlice(self._file, self.position + have, wanted).read_into(view[have:])
            if read < wanted:
                raise self._corrupt(f"the file ends {wanted - read} bytes before it should")
            self._end += read
        return view[: min(self._end, most or self._end)]

    def advance(self, used: int) -> None:
        """Go on behind the first `used` bytes of the last chunk."""
        self._start += used
        self.position += used
        self._advice.passed(self.position)

    def skip(self, size: int) -> None:
        """Go on behind `size` bytes that nobody has to see; they are not read."""
        if size < self._end - self._start:
            self._start += size
        else:
            self._start = self._end = 0
        self.position += size
        self._advice.passed(self.position)

    def grow(self, needed: int) -> None:
        """Make room for a batch of `needed` bytes, not one of which was used of the last chunk.

        CorruptRecord where the segment does not hold it: no memory is taken on the word of a damaged size field.
        """
        if needed > self.unread or needed <= len(self._buffer):
            claim = f"a batch claims {needed} bytes, {self.unread} are left" if needed else "a batch is cut off"
            raise self._corrupt(claim)
        if needed > LARGE_BATCH_BYTES and not is_worth_reading(self._file, self.position, needed):
            raise self._corrupt(f"the batch of {needed} bytes does not match its CRC")
        grown = page_buffer(needed)
        have = self._end - self._start
        grown[:have] = self._buffer[self._start : self._end]
        self._buffer = grown
        self._start, self._end = 0, have

    def end(self) -> None:
        """The segment was read; a buffer that grew is given back."""
        self._advice.done(self.position)
        del self._file, self._advice, self.records
        if len(self._buffer) > self.buffer_bytes:
            self._buffer = page_buffer(self.buffer_bytes)

    def _corrupt(self, message: str) -> CorruptRecord:
        return CorruptRecord(message, path=self.records.path, position=self.position, hint=HINT)


def page_buffer(size: int) -> memoryview:
    """Memory that begins with a page: the system copies into it faster, and it goes back when it is dropped.

    MemoryError.
    """
    try:
        return memoryview(mmap(-1, size))
    except OSError as error:
        raise MemoryError(f"no memory for a buffer of {size} bytes") from error
