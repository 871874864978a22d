"""RecordBatch: one batch in memory with its header, its records and the changes that are made in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from kafkalog._core.arrow.capsules import schema_of
from kafkalog._core.batch.decode import RecordTable
from kafkalog._core.batch.record import Record
from kafkalog._core.batch.scan import BatchHeader, BatchTable, scan
from kafkalog._core.log.assign import stamp_batch
from kafkalog.errors import CorruptRecord, IllegalArgument, UnsupportedForFormat
from kafkalog.records.column_reader import ColumnReader, kinds_of
from kafkalog.records.control import ControlRecord, control_record
from kafkalog.records.format import (
    BATCH_OVERHEAD_BYTES,
    MAGIC_V0,
    MAGIC_V2,
    MAX_SEQUENCE,
    NO_SEQUENCE,
    TimestampType,
    codec_name,
)
from kafkalog.records.table import Table
from kafkalog.records.tables import batch_table
from kafkalog.util.text import human_size

BATCH_COLUMNS: Final = ("key", "value", "offset", "timestamp", "timestampType", "headers")
"""Columns of a single batch, which does not know its topic and partition."""


class RecordSizes(NamedTuple):
    """Offset, timestamp, sequence and sizes of a record, without its bytes (REC-10). Sizes are -1 for null."""

    offset: int
    timestamp: int
    sequence: int
    key_size: int
    value_size: int


class RecordBatch:
    """A batch in a buffer. Header fields are attributes of `header`; the common ones are repeated here.

    The buffer is shared: `set_…` methods change it, and need it to be writable. Nothing is copied until a record's
    key or value is touched.

    >>> batch = next(log.batches())
    >>> batch
    <RecordBatch v2 [0, 2) 2 records 92 B>
    >>> batch.base_offset, batch.last_offset, batch.next_offset, batch.size, batch.is_valid
    (0, 1, 2, 92, True)
    >>> batch.header.count, bytes(batch) == bytes(batch.buffer)[: batch.size]
    (2, True)
    """

    __slots__ = ("_row", "_table", "buffer", "header")

    def __init__(self, buffer: bytes | bytearray | memoryview, table: BatchTable, row: int) -> None:
        self.buffer = buffer
        self._table = table
        self._row = row
        self.header: BatchHeader = table[row]

    @property
    def base_offset(self) -> int:
        """Offset of the first record the producer sent; reading it decompresses a v0 or v1 wrapper (REC-40)."""
        header = self.header
        if header.compression and header.magic < MAGIC_V2:
            return int(self.decode().offsets[0])
        return header.base_offset

    @property
    def last_offset(self) -> int:
        """Offset of the last record the producer sent, even if compaction removed that record."""
        return self.header.last_offset

    @property
    def next_offset(self) -> int:
        """Offset after this batch."""
        return self.header.last_offset + 1

    @property
    def size(self) -> int:
        """Size on disk in bytes."""
        return self.header.size

    @property
    def is_valid(self) -> bool:
        """True if size and checksum are right."""
        return self.header.is_valid

    def __bytes__(self) -> bytes:
        """Return a copy of the batch's bytes, as `Log.append_bytes` and `Log.replicate` accept them."""
        start = self.header.position
        return bytes(memoryview(self.buffer).cast("B")[start : start + self.header.size])

    def ensure_valid(self) -> None:
        """Raise CorruptRecord unless size and checksum are right (REC-14, REC-15, REC-42).

        >>> next(log.batches()).ensure_valid()
        """
        header = self.header
        if header.is_valid:
            return
        if header.magic >= MAGIC_V2 and header.size < BATCH_OVERHEAD_BYTES:
            reason = f"Record batch is corrupt (the size {header.size} is smaller than {BATCH_OVERHEAD_BYTES})"
        elif header.computed_crc == header.crc:
            reason = f"Record is corrupt (the size {header.size} is smaller than its header)"
        else:
            reason = f"Record is corrupt (stored crc = {header.crc}, computed crc = {header.computed_crc})"
        raise CorruptRecord(reason, offset=header.base_offset, position=header.position)

    def decode(self) -> RecordTable:
        """Return the records as a table.

        Raises InvalidRecord if the records are malformed, IllegalArgument for an unknown codec. A v0 or v1 message with
        a wrong checksum whose key or value runs past its end counts as one record, as in Kafka; reading that
        field raises the error.

        >>> list(next(log.batches()).decode().offsets)
        [0, 1]
        """
        return batch_table(self.buffer, self._table, self._row, lenient=not self.header.is_valid, ordered=False)

    def records(self) -> list[Record]:
        """Return all records.

        >>> [record.value for record in next(log.batches()).records()]
        [b'first', b'second']
        """
        return list(self.decode())

    def __iter__(self) -> Iterator[Record]:
        return iter(self.decode())

    def table(self, columns: Iterable[str] | None = None) -> Table:
        """Return the records as columns in memory, without the topic and partition columns.

        A batch does not know its topic and partition. Raises as `decode` does, and IllegalArgument for an unknown
        column.

        >>> len(next(log.batches()).table(["value"]))
        2
        """
        kinds = kinds_of(columns, BATCH_COLUMNS)
        reader = ColumnReader(kinds)
        pieces = chain(reader.read(self.buffer, self._table, self._row, self._row + 1), reader.rest())
        return Table.of(pieces, kinds)

    def __arrow_c_schema__(self) -> object:
        return schema_of(kinds_of(BATCH_COLUMNS))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table().__arrow_c_stream__(requested_schema)

    def sizes(self) -> list[RecordSizes]:
        """Return offsets, times, sequences and sizes of the records without creating keys or values (REC-10).

        >>> [one.value_size for one in next(log.batches()).sizes()]
        [5, 6]
        """
        table = self.decode()
        base, base_offset = self.header.base_sequence, self.header.base_offset
        columns = zip(table.offsets, table.timestamps, table.key_sizes, table.value_sizes, strict=True)
        return [
            RecordSizes(offset, timestamp, self._sequence(base, offset - base_offset), key, value)
            for offset, timestamp, key, value in columns
        ]

    def sequences(self) -> list[int]:
        """Return the sequence of each record: base sequence plus offset delta, wrapping to 0; -1 without one (REC-11).

        >>> next(log.batches()).sequences()
        [-1, -1]
        """
        return [sizes.sequence for sizes in self.sizes()]

    @staticmethod
    def _sequence(base: int, delta: int) -> int:
        # damaged bytes may give a negative offset delta; the sizes are returned anyway
        return NO_SEQUENCE if base < 0 else (base + delta) & MAX_SEQUENCE

    def offset_of_max_timestamp(self) -> int | None:
        """Return the offset of the first record with the batch's max timestamp; for LogAppendTime, the base offset.

        None for v0, which has no timestamps, and for a batch without records (REC-37). If no record has a timestamp,
        all are -1 and the first offset is returned.

        >>> next(log.batches()).offset_of_max_timestamp()
        0
        """
        header = self.header
        if header.magic == MAGIC_V0:
            return None
        if header.timestamp_type == TimestampType.LOG_APPEND_TIME:
            return self.base_offset
        table = self.decode()
        row = table.find_timestamp(header.max_timestamp, 0)
        return None if row < 0 else int(table.offsets[row])

    @property
    def control(self) -> ControlRecord | None:
        """Content of a control batch's first record; None for a data batch or an emptied one.

        A KRaft batch may hold more records: `control_record(record.key, record.value)` reads each. Raises InvalidRecord
        if the record is malformed. An unknown type is ControlType.UNKNOWN (REC-32, REC-33).

        >>> [batch.control for batch in log.batches()]
        [None]
        """
        if not self.header.is_control:
            return None
        table = self.decode()
        return control_record(table.key(0), table.value(0)) if len(table) else None

    def _editable(self) -> memoryview:
        if self.header.magic != MAGIC_V2:
            raise UnsupportedForFormat(f"a batch of format v{self.header.magic} cannot be changed in place")
        view = memoryview(self.buffer).cast("B")
        if view.readonly:
            raise IllegalArgument("the buffer is read-only: copy it into a bytearray first")
        return view[self.header.position : self.header.position + self.header.size]

    def _refresh(self) -> None:
        start = self.header.position
        self._table = scan(self.buffer, start, start + self.header.size)
        self._row = 0
        self.header = self._table[0]

    def set_last_offset(self, offset: int) -> None:
        """Shift all offsets so that the last one is `offset`; the checksum stays valid (REC-16).

        >>> data = bytearray(bytes(next(log.batches())))
        >>> batch = RecordBatch(data, scan(data), 0)
        >>> batch.set_last_offset(99)
        >>> batch.base_offset, batch.is_valid
        (98, True)
        """
        view = self._editable()
        base = offset - (self.header.last_offset - self.header.base_offset)
        view[0:8] = base.to_bytes(8, "big", signed=True)
        self._refresh()

    def set_partition_leader_epoch(self, epoch: int) -> None:
        """Write the leader epoch; the checksum stays valid (REC-17).

        >>> data = bytearray(bytes(next(log.batches())))
        >>> batch = RecordBatch(data, scan(data), 0)
        >>> batch.set_partition_leader_epoch(7)
        >>> batch.header.leader_epoch, batch.is_valid
        (7, True)
        """
        self._editable()[12:16] = epoch.to_bytes(4, "big", signed=True)
        self._refresh()

    def set_max_timestamp(self, kind: TimestampType, timestamp: int) -> None:
        """Set timestamp type and max timestamp (ms) and recompute the checksum; equal values change no byte.

        Raises IllegalArgument for NO_TIMESTAMP_TYPE, the type of v0 (REC-18, REC-19). The base timestamp does not
        change.

        >>> data = bytearray(bytes(next(log.batches())))
        >>> batch = RecordBatch(data, scan(data), 0)
        >>> batch.set_max_timestamp(TimestampType.LOG_APPEND_TIME, 1000)
        >>> [record.timestamp for record in batch], batch.is_valid
        ([1000, 1000], True)
        """
        if kind == TimestampType.NO_TIMESTAMP_TYPE:
            raise IllegalArgument("the timestamp type of a batch must be CreateTime or LogAppendTime")
        self._editable()
        stamp_batch(
            self.buffer,
            self._table,
            self._row,
            append_time_type=kind == TimestampType.LOG_APPEND_TIME,
            timestamp=timestamp,
        )
        self._refresh()

    def __repr__(self) -> str:
        """Return one line built from the header alone: no record is decoded, and damage is marked."""
        header = self.header
        is_wrapper = header.compression and header.magic < MAGIC_V2
        first = "..." if is_wrapper else str(header.base_offset)
        parts = [f"v{header.magic} [{first}, {self.next_offset})"]
        if header.count >= 0:
            parts.append(f"{header.count} record{'' if header.count == 1 else 's'}")
        parts.append(human_size(header.size))
        if header.compression:
            parts.append(codec_name(header.compression))
        if header.producer_id >= 0:
            parts.append(f"pid {header.producer_id}/{header.producer_epoch} seq {header.base_sequence}")
        parts += ["txn"] * header.is_transactional + ["control"] * header.is_control
        return f"<RecordBatch {' '.join(parts)}{'' if header.is_valid else ' damaged'}>"
