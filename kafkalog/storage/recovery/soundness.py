"""Checks that a segment's indexes and end are as a clean shutdown leaves them; else they are rebuilt or cut."""

from __future__ import annotations

from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

from kafkalog.errors import CorruptRecord
from kafkalog.storage.damage import MisplacedBatch, bad_row
from kafkalog.storage.file_slice import LARGEST_OFFSET
from kafkalog.storage.segment import MAX_RELATIVE_OFFSET, LogSegment
from kafkalog.storage.trailing_zeros import only_zeros
from kafkalog.util.fileio import FileSystem
from kafkalog.util.os_errors import os_errors

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")
_HEADER: Final = Struct(">q8xb6xi")
"""Base offset, magic, and the last offset delta of format v2."""
_UNSOUND: Final = (
    "`kafkalog verify` shows the damage; `kafkalog consume --on-damage skip` reads the sound records; "
    "`kafkalog repair --excise --apply` removes the damaged bytes, keeps a copy, and the log opens again"
)
Pair = tuple[int, int]


class _Ends(NamedTuple):
    """Number of entries of an index, and the fields of its first and last one."""

    entries: int
    first: Pair
    last: Pair


def offset_index_fits(fs: FileSystem, path: str, log_size: int, offsets: int) -> bool:
    """Return True if the `.index` file is empty, or its entries rise and point into the `.log` of `log_size` bytes.

    `offsets` is the largest number of offsets the segment can hold. Only the length and the first and last entry are
    checked. False also for a missing file, and for one with a preallocated tail of zeros: that was not closed
    cleanly.
    """
    ends = _ends(fs, path, _OFFSET_ENTRY)
    return ends is not None and (not ends.entries or offset_ends_fit(*ends, log_size, offsets))


def time_index_fits(fs: FileSystem, path: str, offsets: int) -> bool:
    """Return True if the `.timeindex` file is empty or its times rise; otherwise as `offset_index_fits`."""
    ends = _ends(fs, path, _TIME_ENTRY)
    return ends is not None and (not ends.entries or time_ends_fit(*ends, offsets))


def offset_ends_fit(count: int, first: Pair, last: Pair, log_size: int, offsets: int) -> bool:
    """Return True if the first and last (relative offset, position) of `count` entries fit an offset index.

    False if the last one is zero: that is unused space.
    """
    rises = first[0] >= 0 and count - 1 <= last[0] - first[0] and last[0] < offsets
    return rises and 0 <= first[1] <= last[1] < log_size and any(last)


def time_ends_fit(count: int, first: Pair, last: Pair, offsets: int) -> bool:
    """Return True if the first and last (timestamp, relative offset) fit a time index; as `offset_ends_fit`."""
    rises = last[0] - first[0] >= count - 1 and 0 <= first[1] <= last[1] < offsets
    return rises and (last[0] > 0 or last[1] > 0)


def last_entries_agree(segment: LogSegment) -> bool:
    """Return True if the last entry of each index of an open segment names an existing batch."""
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
    """Return True if the segment ends with a complete batch; False for a torn one, which recovery cuts off.

    The check begins at the index's last entry; if that is wrong, all batches are checked. CorruptRecord for damage
    that no crash leaves: a complete batch with a wrong checksum, or bytes that are no batch (zeros are preallocated
    space).
    """
    position = _last_indexed(segment)
    try:
        return _ends_whole(segment, position)
    except CorruptRecord:
        if position == 0:
            raise
        return _ends_whole(segment, 0)


def _last_indexed(segment: LogSegment) -> int:
    """Return the position of the last index entry's batch; 0 if no batch there ends at the entry's offset."""
    index = segment.offset_index
    if not index.entries:
        return 0
    entry = index.entry(index.entries - 1)
    if not 0 < entry.position <= segment.size - _HEADER.size:
        return 0
    base, magic, delta = _HEADER.unpack(segment.records.read(entry.position, _HEADER.size))
    return entry.position if base + (delta if magic >= 2 else 0) == entry.offset else 0


def _ends_whole(segment: LogSegment, position: int) -> bool:
    end, before = position, None
    try:
        for table in segment.records.tables(position, check_crc=True):
            if table.first_invalid >= 0:
                end = table.position(table.first_invalid)
                raise unsound_end(segment, end)
            for row, (base, last) in enumerate(zip(table.base_offsets, table.last_offsets, strict=True)):
                # the log would end there, whatever the checksum says, or have no end offset
                is_near = before is None or before < base <= before + MAX_RELATIVE_OFFSET
                if last < base or last == LARGEST_OFFSET or not is_near:
                    end = table.position(row)
                    raise unsound_end(segment, end)
                before = last
            end = table.position(len(table) - 1) + table.size(len(table) - 1)
    except CorruptRecord:
        if not only_zeros(segment.records.slice(0, 0).file, end, segment.size):
            raise unsound_end(segment, end) from None
        return False
    return end == segment.size


def reaches_beyond(segment: LogSegment, offset: int) -> bool:
    """Return True if the segment ends above `offset`, False if its end is damaged or none that a segment can have.

    No checksum covers a batch's offset.
    """
    try:
        return offset < segment.read_next_offset() <= segment.base_offset + MAX_RELATIVE_OFFSET + 1
    except CorruptRecord:
        return False


def misplaced_end(segment: LogSegment) -> MisplacedBatch | None:
    """Return the damage of a recovered segment whose last batch begins at or below the end of the previous one.

    Recovery keeps such a batch, as the reference does, because it ends above the previous one.
    """
    index = segment.offset_index
    start = index.entry(index.entries - 2).position if index.entries > 1 else 0  # the last entry may be the last batch
    found, before = None, -1
    for table in segment.records.tables(start, check_crc=False):  # recovery has compared the checksums
        if table.sound_rows(before + 1, LARGEST_OFFSET) == len(table):
            found, before = None, table.last_offset_of(len(table) - 1)
            continue
        for row, base in enumerate(table.base_offsets):
            found = bad_row(table, row, before + 1, LARGEST_OFFSET, segment.path) if base <= before else None
            before = table.last_offset_of(row)
    return found if isinstance(found, MisplacedBatch) else None


def unsound_end(segment: LogSegment, position: int) -> CorruptRecord:
    """Return the error for an end that no crash leaves in a log that was closed cleanly."""
    return CorruptRecord(
        "the last segment does not end with a complete, undamaged batch although it was closed cleanly",
        path=segment.path,
        position=position,
        hint=_UNSOUND,
    )


def _ends(fs: FileSystem, path: str, entry: Struct) -> _Ends | None:
    """Return the first and last entry of an index file, ignoring a partial one at its end; None if it is missing."""
    with os_errors("read the index", path), suppress(FileNotFoundError), fs.open_file(path, "r") as file:
        count = file.size() // entry.size
        if not count:
            return _Ends(0, (0, 0), (0, 0))
        first, last = (entry.unpack(file.pread(entry.size, at * entry.size)) for at in (0, count - 1))
        return _Ends(count, first, last)
    return None
