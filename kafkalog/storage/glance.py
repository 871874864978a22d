"""Looking up one offset or one time with a single read: what a random access needs in most logs.

The index names a place, one window is read from there, and the batch wanted lies in it whole. A glance never
trusts what it did not check: the batch it gives matches its CRC, and a time index entry must agree with the
batch it names. None means that it cannot tell (a larger batch, a sparse or damaged index, damaged data):
the caller then takes the thorough way, which also words the errors.
"""

from __future__ import annotations

from typing import Final, Protocol

from kafkalog._core.decode import decode
from kafkalog._core.scan import BatchTable, HeaderWalk, find_max_timestamp, find_offset, scan
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
        walk = find_offset(data, offset)
        at = walk.position
        if at < 0:
            return None
        batch = data[at : at + walk.size]
        if len(batch) < walk.size <= LARGEST_BATCH_BYTES:
            batch = segment.records.read(position + at, walk.size)
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
        walk = find_offset(data, known.offset)
        data, table = found = _whole(segment, data, position, walk)
        if not table.first_offset <= known.offset <= table.last_offset or table.max_timestamp != known.timestamp:
            return None
        if known.timestamp < timestamp:
            found = _next_with_time(segment, found, position + walk.position, timestamp)
    except (IllegalArgument, StorageError, _CannotTell):
        return None
    data, table = found
    records = decode(data, table)
    row = records.find_timestamp(timestamp, start_offset)
    if row < 0:
        return None
    record = records[row]
    return OffsetAndTimestamp(record.offset, record.timestamp, table.last_leader_epoch)


class _CannotTell(Exception):
    """A glance is not enough."""


def _whole(segment: Segment, data: bytes, position: int, walk: HeaderWalk) -> tuple[bytes, BatchTable]:
    """The bytes and one-row table of the batch that a walk over `data` found, read anew where it is cut off there."""
    at, size = walk.position, walk.size
    if at < 0 or size > LARGEST_BATCH_BYTES:
        raise _CannotTell
    if at + size > len(data):
        data, at = segment.records.read(position + at, size), 0
    table = scan(data, at, min(at + size, len(data)), file_mode=True)
    if table.count != 1 or table.first_invalid >= 0:
        raise _CannotTell
    return data, table


def _next_with_time(
    segment: Segment, named: tuple[bytes, BatchTable], position: int, timestamp: int
) -> tuple[bytes, BatchTable]:
    """The first batch with a record at or after `timestamp`, behind the batch `named` at `position` of the file."""
    data, table = named
    at = table.position(0)
    walk = find_max_timestamp(data, timestamp, at)
    if walk.position < 0:
        position += walk.resume_position - at
        at = 0
        data = segment.records.read(position, WINDOW_BYTES)
        walk = find_max_timestamp(data, timestamp)
    return _whole(segment, data, position - at, walk)
