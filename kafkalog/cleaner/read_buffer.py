"""The memory that a cleaner reads segments through: each byte of a segment comes into it once."""

from __future__ import annotations

from typing import Final

from kafkalog.errors import CorruptRecord
from kafkalog.storage.file_slice import claimed_size, is_worth_reading
from kafkalog.storage.readable_records import ReadableRecords
from kafkalog.storage.scan_advice import ScanAdvice

HINT: Final = "nothing was changed; a replica or a backup may have what is damaged"


class ReadBuffer:
    """`size_bytes` of memory over one segment after another: whole batches are taken from its front.

        buffer.begin(records, position)
        while data := buffer.fill():            the file's bytes from `buffer.position` on
            buffer.advance(...)                 as many as whole batches take, or
            buffer.grow()                       where not even one is whole (CLN-27)
        buffer.end()

    Memory is reused: what `fill` gave has no meaning after the next call. What the reading brought into the page cache
    is given up behind it. `bytes_read` is what the last `fill` read from the file. Threads: one.
    """

    __slots__ = ("_advice", "_memory", "_records", "bytes_read", "data", "position", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.position = 0
        self.bytes_read = 0
        self.data = memoryview(b"")
        self._memory = memoryview(bytearray(size_bytes))
        self._records: ReadableRecords | None = None
        self._advice: ScanAdvice | None = None

    def begin(self, records: ReadableRecords, position: int) -> None:
        """Reads the segment `records` next, from the batch at `position` on; StorageError where it cannot be opened."""
        self._records = records
        self._advice = records.read_through()
        self.position = position
        self.data = self._memory[:0]

    def fill(self) -> memoryview:
        """What was not taken, and as much behind it as there is room for; empty at the end of the segment.

        StorageError when the file system fails, CorruptRecord where the file is shorter than its segment.
        """
        records, rest = self._begun(), self.data
        self._memory[: len(rest)] = rest
        end = self.position + len(rest)
        self.bytes_read = records.read_into(self._memory[len(rest) :], end) if end < records.size else 0
        self.data = self._memory[: len(rest) + self.bytes_read]
        if not len(self.data) and self.position < records.size:
            raise self._corrupt(f"the file ends here, the segment has {records.size} bytes")
        return self.data

    def advance(self, size: int) -> None:
        """The first `size` bytes are done with."""
        self.position += size
        self.data = self.data[size:]
        if self._advice is not None:
            self._advice.passed(self.position)

    def grow(self) -> None:
        """Make room for the batch at the front, which is longer than the memory.

        CorruptRecord where its size field cannot be right: the segment holds less, or what it covers is no batch. So no
        memory is taken on the word of a damaged one (CLN-28).
        """
        records = self._begun()
        size, left = claimed_size(bytes(self.data[:12])), records.size - self.position
        if size > left:
            raise self._corrupt(f"a batch claims {size} bytes, the segment has {left}")
        if size <= len(self.data) or len(self.data) < len(self._memory):
            raise self._corrupt(f"the {len(self.data)} bytes left in the file are no whole batch")
        if not is_worth_reading(records.slice(self.position, size).file, self.position, size):
            raise self._corrupt(f"the batch of {size} bytes does not match its CRC")
        memory = memoryview(bytearray(max(size, self.size_bytes)))
        memory[: len(self.data)] = self.data
        self._memory, self.data = memory, memory[: len(self.data)]

    def end(self) -> None:
        """The segment is read: a buffer that grew is as small as before."""
        if self._advice is not None:
            self._advice.done(self.position)
        self._advice = self._records = None
        self.data = self._memory[:0]
        if len(self._memory) > self.size_bytes:
            self._memory = memoryview(bytearray(self.size_bytes))

    @property
    def path(self) -> str:
        """The file that is being read."""
        return self._begun().path

    @property
    def capacity(self) -> int:
        """Bytes of memory at the moment."""
        return len(self._memory)

    def _corrupt(self, what: str) -> CorruptRecord:
        return CorruptRecord(what, path=self.path, position=self.position, hint=HINT)

    def _begun(self) -> ReadableRecords:
        assert self._records is not None, "no segment was begun"
        return self._records
