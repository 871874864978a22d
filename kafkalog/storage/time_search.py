"""Search for the first record of a segment at or after a time, by a walk that checks every batch it passes."""

from __future__ import annotations

from kafkalog._core.batch.pick import NOT_HERE, find_record_by_time
from kafkalog.storage.index.segment_index import TimeKind
from kafkalog.storage.segment_reader import Chunk, Extent, segment_chunks
from kafkalog.types import OffsetAndTimestamp, TimestampOffset


def find_offset_by_timestamp(
    extent: Extent, times: TimeKind, timestamp: int, start_offset: int
) -> OffsetAndTimestamp | None:
    """Return the first record at or after `timestamp` (ms) with an offset of at least `start_offset`; None if none.

    The walk begins at the batch that the time index names, if that batch has the time of its entry. CorruptRecord
    for damage before the record, which may have held an earlier one; InvalidRecord for a batch that cannot be
    decoded (SEG-18).
    """
    entry = times.lookup(timestamp)
    known = entry.offset if entry.timestamp >= 0 else extent.base_offset
    start = max(known, start_offset, extent.base_offset)
    is_checked = start != known or entry.timestamp < 0
    for chunk in segment_chunks(extent, start, extent.bound):
        if not is_checked and not _has_time(chunk, entry):
            return _first_of_all(extent, timestamp, start_offset)
        is_checked = True
        found = _first_in(chunk, timestamp, start_offset)
        if found is not None:
            return found
    return None if is_checked else _first_of_all(extent, timestamp, start_offset)


def _first_of_all(extent: Extent, timestamp: int, start_offset: int) -> OffsetAndTimestamp | None:
    for chunk in segment_chunks(extent, max(start_offset, extent.base_offset), extent.bound):
        found = _first_in(chunk, timestamp, start_offset)
        if found is not None:
            return found
    return None


def _has_time(chunk: Chunk, entry: TimestampOffset) -> bool:
    """Return True if the chunk's first batch holds the entry's offset and has its time."""
    batch = chunk.batches[chunk.first]
    return batch.base_offset <= entry.offset <= batch.last_offset and batch.max_timestamp == entry.timestamp


def _first_in(chunk: Chunk, timestamp: int, start_offset: int) -> OffsetAndTimestamp | None:
    table = chunk.batches
    if table.max_timestamp < timestamp:
        return None
    for row in range(chunk.first, chunk.last):
        if table[row].max_timestamp < timestamp:
            continue
        at = table.position(row) - chunk.position
        offset, found, epoch = find_record_by_time(chunk.data, at, timestamp, start_offset)
        if offset >= 0:
            return OffsetAndTimestamp(offset, found, epoch)
        if offset == NOT_HERE:
            continue
        records = chunk.batch_table(row)
        number = records.find_timestamp(timestamp, start_offset)
        if number >= 0:
            return OffsetAndTimestamp(records.offsets[number], records.timestamps[number], table.leader_epoch(row))
    return None
