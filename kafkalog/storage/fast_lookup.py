"""Fast look-up of one offset or one time with a single read, sufficient for random access in most logs.

The index names a position, one window is read from there, and the whole batch is in it. Unverified data is never
trusted: the returned batch matches its CRC, and a time index entry must agree with the batch it names. None means
that the fast look-up cannot decide (a larger batch, a sparse or damaged index, damaged data). The caller then uses
the full look-up, which also raises the errors.
"""

from __future__ import annotations

from typing import Any, Final

from kafkalog._core.batch.pick import pick, pick_by_time
from kafkalog._core.batch.record import Record
from kafkalog._core.batch.scan import find_offset
from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.segments import AnySegment, LogSegments
from kafkalog.types import OffsetAndTimestamp

WINDOW_BYTES: Final = 24 << 10
"""Read if no entry gives a size; holds an index interval (4096) and a batch of the producers' default size."""

LARGEST_WINDOW_BYTES: Final = 80 << 10
"""Limit for a size derived from an index: a larger one may mean many batches, or damage."""

OFFSET_BYTES: Final = 8
LARGEST_BATCH_BYTES: Final = 1 << 20
"""Limit for a size field that nothing has confirmed."""


def record_at_offset(segment: AnySegment, offset: int, log: Any) -> Record | None:
    """Return the record with exactly this offset in a segment of `log`; it holds only its own bytes.

    The base offset of the following batch is read too: it confirms the offsets before it.
    """
    try:
        index, records = segment.offset_index, segment.records  # another process may have deleted these files
        position, size = index.window(offset)
        size = size + OFFSET_BYTES if 0 < size <= LARGEST_WINDOW_BYTES else WINDOW_BYTES
        data = records.read(position, size)
        if not position and _begins_below(segment, data):
            return None
        record = pick(data, offset, len(data) < size and _is_end(records, position + len(data), segment, log.segments))
        if record is None:
            record = _in_large_batch(segment, offset, log, position, data)
        if record is None:
            start = index.lookup(offset).position
            if start < position:  # the record is before the batch that was skipped to
                size = position - start
                data = records.read(start, size + OFFSET_BYTES if size <= LARGEST_WINDOW_BYTES else WINDOW_BYTES)
                record = pick(data, offset) or _in_large_batch(segment, offset, log, start, data)
    except (IllegalArgument, StorageError):
        return None
    return record


def _begins_below(segment: AnySegment, data: bytes) -> bool:
    """Return True if the segment's first batch, at the start of `data`, claims an offset below the segment."""
    return int.from_bytes(data[:OFFSET_BYTES], "big", signed=True) < segment.base_offset


def _is_end(records: FileRecords, end: int, segment: AnySegment, segments: LogSegments[Any]) -> bool:
    """Return True if the log ends at position `end` of the segment."""
    return end >= records.size and segment is segments.last


def _in_large_batch(segment: AnySegment, offset: int, log: Any, position: int, data: bytes) -> Record | None:
    """Return the record if its batch begins in the `data` at `position` and ends behind it."""
    walk = find_offset(data, offset)
    if walk.position < 0 or not len(data) < walk.position + walk.size <= LARGEST_BATCH_BYTES:
        return None
    records, position = segment.records, position + walk.position
    data = records.read(position, walk.size + OFFSET_BYTES)
    return pick(data, offset, _is_end(records, position + len(data), segment, log.segments))


def record_at_time(
    segment: AnySegment, timestamp: int, start_offset: int, segments: LogSegments[Any]
) -> OffsetAndTimestamp | None:
    """Return the first record at or after `timestamp` (ms) with an offset of at least `start_offset`.

    `segment` is one of `segments`, those of the log.
    """
    try:
        index, records = segment.offset_index, segment.records
        known_timestamp, known_offset = segment.time_index.lookup(timestamp)
        if known_timestamp < 0:
            return None
        position, size = index.window(known_offset)
        if known_timestamp < timestamp:  # the record is in a batch behind that one
            behind, more = index.window(known_offset + 1)
            size = behind + more - position if more else 0
        size = OFFSET_BYTES + (size if 0 < size <= LARGEST_WINDOW_BYTES else WINDOW_BYTES)
        data = records.read(position, size)
        if not position and _begins_below(segment, data):
            return None
        at_end = len(data) < size and _is_end(records, position + len(data), segment, segments)
        found = pick_by_time(data, known_offset, known_timestamp, timestamp, start_offset, at_end)
        if found[0] < 0:
            position = index.lookup(known_offset).position
            data = records.read(position, LARGEST_WINDOW_BYTES)
            at_end = _is_end(records, position + len(data), segment, segments)
            found = pick_by_time(data, known_offset, known_timestamp, timestamp, start_offset, at_end)
    except (IllegalArgument, StorageError):
        return None
    return OffsetAndTimestamp._make(found) if found[0] >= 0 else None
