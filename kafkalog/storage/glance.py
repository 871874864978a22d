"""Looking up one offset or one time with a single read: what a random access needs in most logs.

The index names a place, one window is read from there, and the batch wanted lies in it whole. A glance never
trusts what it did not check: the batch it gives matches its CRC, and a time index entry must agree with the
batch it names. None means that it cannot tell (a larger batch, a sparse or damaged index, damaged data):
the caller then takes the thorough way, which also words the errors.
"""

from __future__ import annotations

from typing import Final, Protocol

from kafkalog._core.pick import pick, pick_by_time
from kafkalog._core.record import Record
from kafkalog._core.scan import find_offset
from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.storage.file_records import FileRecords
from kafkalog.types import OffsetAndTimestamp, OffsetPosition, TimestampOffset

WINDOW_BYTES: Final = 24 << 10
"""Holds an index interval (4096) and a batch of the producers' default size: read where no entry tells more."""

LARGEST_WINDOW_BYTES: Final = 80 << 10
"""More than this is not read on the word of an index: what it means may be many batches, or damage."""

OFFSET_BYTES: Final = 8
LARGEST_BATCH_BYTES: Final = 1 << 20
"""More than this is not read on the word of a size field that nothing has confirmed."""


class _OffsetIndex(Protocol):
    def lookup(self, target: int, /) -> OffsetPosition: ...
    def window(self, offset: int, /) -> tuple[int, int]: ...


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


def record_at_offset(segment: Segment, offset: int, is_last: bool = False) -> Record | None:
    """The record of the segment with exactly this offset; it holds its own bytes only.

    `is_last` says that no segment comes after this one.
    """
    try:
        index, records = segment.offset_index, segment.records  # of another process: it may be gone meanwhile
        position, size = index.window(offset)
        record = _record_in(records, position, size, offset, is_last)
        if record is None:
            start = index.lookup(offset).position
            if start < position:  # it lies before the batch that was skipped to
                record = _record_in(records, start, position - start, offset, is_last)
    except (IllegalArgument, StorageError):
        return None
    return record


def _record_in(records: FileRecords, position: int, size: int, offset: int, is_last: bool) -> Record | None:
    """The record, if its batch is among those from `position` on; `size` bytes are said to hold it, 0 for not known.

    The base offset of the batch behind them is read too: it bears out the offsets before it.
    """
    size = size + OFFSET_BYTES if 0 < size <= LARGEST_WINDOW_BYTES else WINDOW_BYTES
    data = records.read(position, size)
    record = pick(data, offset, is_last and position + len(data) >= records.size)
    if record is None:
        walk = find_offset(data, offset)
        if walk.position >= 0 and len(data) < walk.position + walk.size <= LARGEST_BATCH_BYTES:
            position += walk.position
            data = records.read(position, walk.size + OFFSET_BYTES)
            record = pick(data, offset, is_last and position + len(data) >= records.size)
    return record


def record_at_time(
    segment: Segment, timestamp: int, start_offset: int, is_last: bool = False
) -> OffsetAndTimestamp | None:
    """The first record of the segment at or after `timestamp` (ms) with an offset of at least `start_offset`."""
    try:
        index, records = segment.offset_index, segment.records
        known_timestamp, known_offset = segment.time_index.lookup(timestamp)
        if known_timestamp < 0:
            return None
        position, size = index.window(known_offset)
        if known_timestamp < timestamp:  # what is looked for lies in a batch behind that one
            behind, more = index.window(known_offset + 1)
            size = behind + more - position if more else 0
        if not 0 < size <= LARGEST_WINDOW_BYTES:
            size = WINDOW_BYTES
        data = records.read(position, size + OFFSET_BYTES)
        at_end = is_last and position + len(data) >= records.size
        found = pick_by_time(data, known_offset, known_timestamp, timestamp, start_offset, at_end)
        if found[0] < 0:
            position = index.lookup(known_offset).position
            data = records.read(position, LARGEST_WINDOW_BYTES)
            at_end = is_last and position + len(data) >= records.size
            found = pick_by_time(data, known_offset, known_timestamp, timestamp, start_offset, at_end)
    except (IllegalArgument, StorageError):
        return None
    return OffsetAndTimestamp._make(found) if found[0] >= 0 else None
