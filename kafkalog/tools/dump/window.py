"""A part of a file in memory that moves forward, for one pass over a whole file."""

from __future__ import annotations

from kafkalog.util.fileio import File
from kafkalog.util.os_errors import os_errors

CHUNK_BYTES = 1 << 19


class FileWindow:
    """The bytes `buffer[start:stop]`, which are the file's from `position` on.

    Memory is one chunk, or the largest requested piece; that is never more than the file has left before `end`. A file
    that grows while it is read ends at its first end; one that is truncated ends at its new one.
    """

    __slots__ = ("_file", "buffer", "end", "position", "start", "stop")

    def __init__(self, file: File, end: int, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._file = file
        self.end = end
        self.buffer = bytearray(max(1, min(chunk_bytes, end)))
        self.start = 0
        self.stop = 0
        self.position = 0

    @property
    def base_position(self) -> int:
        """File position of the buffer's byte 0 (below 0 if the buffer was refilled in its middle)."""
        return self.position - self.start

    @property
    def left(self) -> int:
        """Bytes of the file from `position` to its end."""
        return self.end - self.position

    def advance(self, start: int, needed: int) -> bool:
        """Move the window to the buffer's byte `start` and fill it; return True if it holds at least `needed` bytes.

        Return False if fewer are left in the file. StorageError if it cannot be read.
        """
        self.position += start - self.start
        self.start = start
        if needed > self.left:
            return False
        kept = self.stop - start
        if needed > len(self.buffer):
            larger = bytearray(needed)
            larger[:kept] = memoryview(self.buffer)[start : self.stop]
            self.buffer = larger
        elif kept and start:
            with memoryview(self.buffer) as view:
                view[:kept] = view[start : self.stop]
        self.start = 0
        target = min(len(self.buffer), self.left)
        self.stop = kept + self._read(kept, target - kept)
        if self.stop < target:
            self.end = self.position + self.stop
        return self.stop >= needed

    def _read(self, at: int, size: int) -> int:
        if size <= 0:
            return 0
        with os_errors("read", self._file.path, self.position + at), memoryview(self.buffer) as view:
            return self._file.pread_into(view[at : at + size], self.position + at)
