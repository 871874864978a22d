"""Indexes made anew from the `.log` file: what is derived may be lost, and is never a reason to refuse a log."""

from __future__ import annotations

from struct import Struct
from typing import Final

from kafkalog._core.plan import RollRules, SegmentTail, plan_append
from kafkalog.errors import CorruptRecord, StorageError
from kafkalog.storage.segment import MAX_RELATIVE_OFFSET, NO_TIMESTAMP_YET, LogSegment
from kafkalog.util.fileio import FileSystem

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")


def offset_index_fits(fs: FileSystem, path: str, log_size: int, offsets: int) -> bool:
    """True when the `.index` file has entries, rising, that point into the `.log` of `log_size` bytes.

    `offsets` is how many the segment can hold at most. Looks at the length and the first and last entry only. False
    also for a missing file, and for one with a preallocated tail of zeros: that was not closed well.
    """
    ends = _ends(fs, path, _OFFSET_ENTRY)
    if ends is None:
        return False
    count, first, last = ends
    if not count:
        return True
    return first[0] >= 0 and count - 1 <= last[0] - first[0] < offsets > last[0] and 0 <= first[1] <= last[1] < log_size


def time_index_fits(fs: FileSystem, path: str, offsets: int) -> bool:
    """True when the `.timeindex` file has entries whose times rise; as `offset_index_fits`."""
    ends = _ends(fs, path, _TIME_ENTRY)
    if ends is None:
        return False
    count, first, last = ends
    return not count or (last[0] - first[0] >= count - 1 and 0 <= first[1] <= last[1] < offsets)


def last_entries_agree(segment: LogSegment) -> bool:
    """True when the last entry of each index of an open segment names a batch that is there."""
    index = segment.offset_index
    named = [index.entry(index.entries - 1)] if index.entries else []
    try:
        if any(segment.records.search_for_offset(offset, position) is None for offset, position in named):
            return False
        times = segment.time_index
        return not times.entries or segment.translate_offset(times.last_entry.offset) is not None
    except CorruptRecord:
        return False


def ends_whole(segment: LogSegment) -> bool:
    """True when the segment ends with a whole batch; False for a torn one, which recovery cuts off.

    The index gives the place to begin at; where it does not lead there, all batches are looked at. CorruptRecord for
    what no crash leaves: a whole batch with a wrong checksum, or bytes that are no batch (zeros are preallocated room).
    """
    index = segment.offset_index
    position = index.entry(index.entries - 1).position if index.entries else 0
    position = position if 0 <= position < segment.size else 0
    try:
        return _ends_whole(segment, position)
    except CorruptRecord:
        if position == 0:
            raise
        return _ends_whole(segment, 0)


def _ends_whole(segment: LogSegment, position: int) -> bool:
    end = position
    try:
        for table in segment.records.tables(position, check_crc=True):
            if table.first_invalid >= 0:
                raise _unsound(segment, table.position(table.first_invalid))
            end = table.position(len(table) - 1) + table.size(len(table) - 1)
    except CorruptRecord:
        if any(segment.records.read(end, segment.size - end)):
            raise _unsound(segment, end) from None
        return False
    return end == segment.size


def _unsound(segment: LogSegment, position: int) -> CorruptRecord:
    return CorruptRecord(
        "the last segment does not end with a whole, undamaged batch, though it was closed well",
        path=segment.path,
        position=position,
        hint='mode "r" reads what lies before it; `kafkalog repair` shows what is behind it',
    )


def _ends(fs: FileSystem, path: str, entry: Struct) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
    """(count, first entry, last entry) of an index file, a part of one at its end aside; None when it is missing."""
    try:
        with fs.open_file(path, "r") as file:
            size = file.size() // entry.size * entry.size
            if not size:
                return 0, (), ()
            first = entry.unpack(file.pread(entry.size, 0))
            last = entry.unpack(file.pread(entry.size, size - entry.size))
            return (size // entry.size, first, last) if any(last) else None  # zeros: room that was never used
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError.from_os(error, "read the index", path=path) from error


def rebuild_indexes(segment: LogSegment) -> None:
    """Write both indexes of a segment anew, by the rules of appending, with the final time entry (SEG-22).

    CorruptRecord where the data itself is damaged (a size field below 14); StorageError when the system fails.
    """
    offset_index, time_index = segment.offset_index, segment.time_index
    offset_index.reset()
    time_index.reset()
    rules = RollRules(
        segment.base_offset,
        MAX_RELATIVE_OFFSET,
        NO_TIMESTAMP_YET,
        segment.created_ms,
        segment.index_interval_bytes,
    )
    tail = SegmentTail(offset_slots=offset_index.max_entries, time_slots=time_index.max_entries - 1)
    for table in segment.records.tables():
        plan = plan_append(table, 0, tail, rules, segment.created_ms, True, True)
        segment.ensure_offset_in_range(table.last_offset)
        if plan.entries is not None:
            offset_index.extend(plan.entries)
            time_index.extend(plan.entries)
        tail = plan.tail
    if tail.max_timestamp >= 0:
        time_index.maybe_append(tail.max_timestamp, tail.offset_of_max_timestamp, skip_full_check=True)
    offset_index.trim_to_valid_size()
    time_index.trim_to_valid_size()
