"""Writer of cleaned segments: one buffer, each byte written once, in pieces aligned with the page cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.cleaner.segment_reader import page_buffer
from kafkalog.storage.index.abstract_index import IndexEntry
from kafkalog.storage.segment import LogSegment

if TYPE_CHECKING:
    from kafkalog._core.batch.scan import BatchTable

_SMALLEST_BUFFER: Final = 4096
_MOST_ENTRIES: Final = 4096


class SegmentWriter:
    """A buffer of `buffer_bytes` that writes one new segment after the other.

        writer.begin(segment)
        writer.append(data, table)      # and so on
        writer.finish()

    A write of a whole buffer at a multiple of its size gets one large piece of the page cache instead of several small
    ones. Index entries are written by the thousand. The segment is unusable until `finish` returns; after an error the
    caller must drop it. Threads: one.
    """

    __slots__ = ("_buffer", "_entries", "_have", "_segment", "buffer_bytes", "writes")

    def __init__(self, buffer_bytes: int) -> None:
        self.buffer_bytes = max(buffer_bytes, _SMALLEST_BUFFER)
        self.writes = 0
        """Number of data writes so far."""
        self._buffer = page_buffer(self.buffer_bytes)
        self._have = 0
        self._entries: list[IndexEntry] = []

    def begin(self, segment: LogSegment) -> None:
        """Begin writing to a new segment; unfinished data of an earlier one is discarded."""
        self._segment = segment
        self._have = 0
        self._entries.clear()

    def append(self, data: memoryview, table: BatchTable) -> None:
        """Append the batches of `table`, which cover all of `data`; errors as for `LogSegment.append`."""
        plan = self._segment.plan(table)
        self._segment.tail = plan.tail
        self._entries += plan.entries or ()
        if len(self._entries) >= _MOST_ENTRIES:
            self._index()
        at, size = 0, len(data)
        while self._have + size - at >= self.buffer_bytes:
            end = at + self.buffer_bytes - self._have
            if self._have:
                self._buffer[self._have :] = data[at:end]
                self._write(self._buffer)
            else:
                self._write(data[at:end])
            at, self._have = end, 0
        end = self._have + size - at
        self._buffer[self._have : end] = data[at:]
        self._have = end

    def finish(self) -> None:
        """Write the remaining data and index entries; the segment is then complete. StorageError."""
        if self._have:
            self._write(self._buffer[: self._have])
            self._have = 0
        self._index()

    def _write(self, piece: memoryview) -> None:
        self._segment.records.append(piece)
        self.writes += 1

    def _index(self) -> None:
        self._segment.add_entries(self._entries)
        self._entries.clear()
