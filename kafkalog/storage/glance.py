"""Looking up one offset or one time with a single read: what a random access needs in most logs.

The index names a place, one window is read from there, and the batch wanted lies in it whole. A glance never
trusts what it did not check: the batch it gives matches its CRC, and a time index entry must agree with the
batch it names. None means that it cannot tell (a larger batch, a sparse or damaged index, damaged data):
the caller then takes the thorough way, which also words the errors.
"""

from __future__ import annotations

from typing import Final, Protocol

from kafkalog._core.decode import RecordTable, decode
from kafkalog._core.scan import BatchTable, find_max_timestamp, find_offset, scan
from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.storage.file_records import FileRecords
from kafkalog.types import OffsetAndTimestamp, OffsetPosition, TimestampOffset

WINDOW_BYTES: Final = 24 << 10
"""Holds an index interval (4096) and a batch of the producers' default size (16 KiB)."""

LARGEST_BATCH_BYTES: Final = 1 << 20
"""More than this is not read on the word of a size field that nothing has confirmed."""


class _OffsetIndex(Protocol):
    def lookup(self, target: int, /) -> OffsetPosition: ...


class _TimeIndex(Protocol):
    def lookup(self, target: int, /) -> TimestampOffset: ...


class Segment(Protocol):
    """What is looked at: LogSegment and ViewSegment are such."""

    @property
    def records(self) -> FileRecords: ...
    @property
    def offset_index(self) -> _OffsetIndex: ...
    @property
    def time_index(self) -> _TimeIndex: ...


def batch_at_offset(segment: Segment, offset: int) -> tuple[bytes, BatchTable] | None:
    """The valid batch that holds `offset`, its bytes alone, with its one-row table."""
    try:
        position = segment.offset_index.lookup(offset).position
        data = segment.records.read(position, WINDOW_BYTES)
        found = find_offset(data, offset)
        at = found.position
        if at < 0:
            return None
        batch = data[at : at + found.size]
        if len(batch) < found.size <= LARGEST_BATCH_BYTES:
            batch = segment.records.read(position + at, found.size)
    except (IllegalArgument, StorageError):
        return None
    table = scan(batch, file_mode=True)
    if table.count != 1 or table.first_invalid >= 0 or not table.first_offset <= offset <= table.last_offset:
        return None
    return batch, table


def record_at_time(segment: Segment, timestamp: int, start_offset: int) -> OffsetAndTimestamp | None:
    """The first record of the segment at or after `timestamp` (ms) with an offset of at least `start_offset`."""
    try:
        known = segment.time_index.lookup(timestamp)
        if known.timestamp < 0:
            return None
        position = segment.offset_index.lookup(known.offset).position
        data = segment.records.read(position, WINDOW_BYTES)
    except (IllegalArgument, StorageError):
        return None
    named = find_offset(data, known.offset)
    at = named.position
    if at < 0:
        return None
    table = scan(data, at, min(at + named.size, len(data)), file_mode=True)
    if table.count != 1 or table.first_invalid >= 0:
        return None
    if table.max_timestamp != known.timestamp or not table.first_offset <= known.offset <= table.last_offset:
        return None
    if known.timestamp < timestamp:
        found = find_max_timestamp(data, timestamp, at)
        if found.position < 0:
            return None
        table = scan(data, found.position, min(found.position + found.size, len(data)), file_mode=True)
        if table.count != 1 or table.first_invalid >= 0:
            return None
    return _first(decode(data, table), table, timestamp, start_offset)


def _first(
    records: RecordTable, table: BatchTable, timestamp: int, start_offset: int
) -> OffsetAndTimestamp | None:
    row = records.find_timestamp(timestamp, start_offset)
    if row < 0:
        return None
    record = records[row]
    return OffsetAndTimestamp(record.offset, record.timestamp, table.last_leader_epoch)
