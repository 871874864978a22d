"""MemoryRecords: batches in a buffer, one after the other, iterated by the rules of memory (format.md section 5)."""

from __future__ import annotations

from collections.abc import Iterator

from kafkalog._core.batch.scan import REASON_MAGIC, REASON_SIZE, BatchTable, scan
from kafkalog.errors import CorruptRecord
from kafkalog.records.batch import RecordBatch
from kafkalog.records.format import LOG_OVERHEAD_BYTES

_MIN_SIZE_FIELD = 14
_HEADER_TO_MAGIC = 17


class MemoryRecords:
    """A buffer of batches. Nothing is copied; the batches refer to the buffer.

    A partial batch at the end ends the iteration silently. A size field below 14, or a format above 2 or below 0,
    raises CorruptRecord (REC-34).
    """

    __slots__ = ("_table", "buffer")

    def __init__(self, buffer: bytes | bytearray | memoryview) -> None:
        self.buffer = buffer
        self._table: BatchTable | None = None

    @property
    def table(self) -> BatchTable:
        """The batch table of the buffer, with checksums computed."""
        if self._table is None:
            self._table = scan(self.buffer)
        return self._table

    @property
    def size(self) -> int:
        """Bytes in the buffer."""
        return memoryview(self.buffer).nbytes

    @property
    def valid_bytes(self) -> int:
        """Bytes of whole batches; raises CorruptRecord where the iteration would."""
        self._raise_stop(self.table)
        return self.table.valid_bytes

    def batches(self) -> Iterator[RecordBatch]:
        """Yield the whole batches in order, then raise CorruptRecord for a damaged frame; checksums are not checked."""
        table = self.table
        for row in range(len(table)):
            yield RecordBatch(self.buffer, table, row)
        self._raise_stop(table)

    @staticmethod
    def _raise_stop(table: BatchTable) -> None:
        if table.stop_reason == REASON_SIZE:
            raise CorruptRecord(
                f"Record size {table.stop_value} is less than the minimum record overhead ({_MIN_SIZE_FIELD})",
                position=table.stop_position,
            )
        if table.stop_reason == REASON_MAGIC:
            raise CorruptRecord(f"Invalid magic found in record: {table.stop_value}", position=table.stop_position)

    def first_batch_size(self) -> int | None:
        """Return the first batch's size by its size field, even if its body is incomplete; None below 17 bytes.

        Raises CorruptRecord for a size field below 14 or an unknown format (REC-35).
        """
        head = bytes(memoryview(self.buffer).cast("B")[:_HEADER_TO_MAGIC])
        if len(head) < _HEADER_TO_MAGIC:
            return None
        self._raise_stop(scan(head, check_crc=False))
        return int.from_bytes(head[8:12], "big") + LOG_OVERHEAD_BYTES

    def __repr__(self) -> str:
        return f"<MemoryRecords of {self.size} B>"
