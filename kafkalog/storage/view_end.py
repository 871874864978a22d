"""Where the last segment of a directory that another process writes ends: after its last whole valid batch."""

from __future__ import annotations

from operator import lt
from typing import Final, NamedTuple

from kafkalog._core.scan import REASON_MAGIC, REASON_PARTIAL, REASON_SIZE, BatchTable, scan
from kafkalog.errors import CorruptRecord, StorageError
from kafkalog.storage.file_slice import LARGEST_OFFSET, LOG_OVERHEAD, claimed_size, is_worth_reading
from kafkalog.storage.lazy_file import DataFile

FIRST_WALK_BYTES: Final = 64 << 10
WALK_BYTES: Final = 1 << 20
HEADER_BYTES: Final = 61
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
ZEROS_LOOKED_AT: Final = 4096
_HINT: Final = "reading ends before it; opening the log for recovery cuts it off here"


class SegmentEnd(NamedTuple):
    """What lies at the end of a segment: `size` bytes of whole valid batches, then maybe a `problem`.

    `header` is the first 61 bytes of the last batch, at `last_position` (-1: no batch): while they stay
    the same, what lies before them has not been cut and written anew.
    """

    size: int
    next_offset: int
    last_position: int = -1
    header: bytes = b""
    leader_epoch: int = -1
    problem: CorruptRecord | None = None


def empty_end(base_offset: int) -> SegmentEnd:
    """The end of a segment without a byte."""
    return SegmentEnd(0, base_offset)


def still_there(file: DataFile, end: SegmentEnd) -> bool:
    """True when the last batch of `end` lies where it lay, unchanged."""
    if end.last_position < 0:
        return True
    return _read(file, len(end.header), end.last_position) == end.header


def _read(file: DataFile, size: int, position: int) -> bytes:
    try:
        return file.pread(size, position)
    except OSError as error:
        raise StorageError.from_os(error, "read the segment", path=file.path, position=position) from error


def extend_end(file: DataFile, base_offset: int, end: SegmentEnd, length: int) -> SegmentEnd:
    """The end of a file of `length` bytes, found by walking on from `end`: header by header, CRC by CRC.

    The walk stops before the first batch that is cut off or damaged, whose offsets do not go up, or whose
    offsets do not fit the segment. Zeros up to the end (a preallocated file) are no problem.
    """
    end = end._replace(problem=None)
    want = FIRST_WALK_BYTES
    while end.size < length:
        data = _read(file, min(want, length - end.size), end.size)
        table = scan(data, file_mode=True, base_position=end.size)
        good = _good_rows(table, base_offset, end.next_offset)
        if good:
            end = _after_row(table, good - 1, data, end)
        if good < len(table):
            return end._replace(problem=_bad_batch(file.path, table, good, end))
        if table.stop_reason == REASON_PARTIAL and not good:
            size = claimed_size(data)
            if size > len(data) and end.size + size <= length and is_worth_reading(file, end.size, size):
                want = size
                continue
        if table.stop_reason in (REASON_SIZE, REASON_MAGIC) or not good:
            return end._replace(problem=_bad_tail(file, table, data, end, length))
        want = WALK_BYTES
    return end


def _good_rows(table: BatchTable, base_offset: int, next_offset: int) -> int:
    """How many batches from the first on are whole, valid, ascending and within the segment's range."""
    rows = len(table)
    if rows == 0:
        return 0
    rising = rising_rows(table, next_offset)
    limit = min(base_offset + MAX_RELATIVE_OFFSET, LARGEST_OFFSET - 1)  # the log end is an offset too
    if table.last_offset <= limit:
        return rising
    return next((row for row in range(rising) if table.last_offset_of(row) > limit), rising)


def rising_rows(table: BatchTable, next_offset: int) -> int:
    """How many rows from the first on are valid and begin at or above `next_offset`, then above one another.

    Offsets lie outside the CRC, so this is all that shows a damaged one.
    """
    rows = len(table) if table.first_invalid < 0 else table.first_invalid
    if rows <= 0:
        return 0
    ends = memoryview(table.last_offsets).tolist()
    starts = memoryview(table.base_offsets).tolist()
    if starts[0] < next_offset:
        return 0
    if table.monotonic and all(map(lt, ends, starts[1:])):
        return rows
    return next((row for row in range(1, rows) if ends[row - 1] >= starts[row]), rows)


def _after_row(table: BatchTable, row: int, data: bytes, end: SegmentEnd) -> SegmentEnd:
    position = table.position(row)
    at = position - end.size
    return SegmentEnd(
        size=position + table.size(row),
        next_offset=table.last_offset_of(row) + 1,
        last_position=position,
        header=data[at : at + min(HEADER_BYTES, table.size(row))],
        leader_epoch=table.leader_epoch(row),
    )


def _bad_batch(path: str, table: BatchTable, row: int, end: SegmentEnd) -> CorruptRecord:
    batch = table[row]
    if not batch.is_valid:
        what = f"a batch of {batch.size} bytes has a CRC that does not match its bytes"
    elif batch.base_offset < end.next_offset:
        what = f"a batch begins at offset {batch.base_offset}, below the {end.next_offset} that comes next"
    else:
        what = f"a batch ends at offset {batch.last_offset}, which is out of the segment's range"
    return CorruptRecord(what, path=path, offset=end.next_offset, position=end.size, hint=_HINT)


def _bad_tail(file: DataFile, table: BatchTable, data: bytes, end: SegmentEnd, length: int) -> CorruptRecord | None:
    """The problem with bytes that are no whole batch; None where they are the zeros of preallocation."""
    tail = _read(file, min(ZEROS_LOOKED_AT, length - end.size), end.size)
    if not tail or (len(tail) >= LOG_OVERHEAD and tail.count(0) == len(tail)):
        return None
    left = length - end.size
    if table.stop_reason == REASON_PARTIAL and len(tail) >= LOG_OVERHEAD:
        what = f"the last batch is cut off: {left} of its {claimed_size(tail)} bytes are there"
    elif table.stop_reason == REASON_SIZE:
        what = f"no batch can have the size field {table.stop_value}"
    else:
        what = f"{left} bytes at the end are no whole batch"
    return CorruptRecord(what, path=file.path, offset=end.next_offset, position=end.size, hint=_HINT)
