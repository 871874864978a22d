"""Reading a log from one offset to another across segments; damage is raised, or skipped and reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from kafkalog._core.batch.record import Record
from kafkalog._core.batch.scan import BatchTable
from kafkalog.errors import CorruptRecord
from kafkalog.storage.damage import bad_row
from kafkalog.storage.file_slice import LARGEST_OFFSET
from kafkalog.storage.segment_reader import Anchor, Chunk, Extent, anchor_behind, segment_chunks
from kafkalog.storage.segments import LogSegments, Segment

if TYPE_CHECKING:
    from kafkalog.storage.log import UnifiedLog
    from kafkalog.storage.readonly.view import LogView

    Walkable: TypeAlias = "LogView | UnifiedLog"
    """A log open for writing, or a view of another process's log."""


def log_chunks(log: Walkable, start: int, stop: int) -> Iterator[Chunk]:
    """Yield the batches of a log that hold offsets in [start, stop), in order.

    CorruptRecord, with its position, for damage before `stop`, after the batches before it. This includes damage at
    the end of a view that was closed cleanly. OffsetOutOfRange if the log's start moved past the next offset,
    StorageError.
    """
    while start < stop:
        extent = log.extent(start)
        for chunk in segment_chunks(extent, start, stop):
            yield chunk
            start = chunk.next_offset
        if extent.is_last:
            break
        start = max(start, extent.bound)
    damage = log.tail_damage
    if damage is not None and stop >= log.log_end_offset:
        raise damage


def data_records(log: Walkable, start: int, stop: int) -> Iterator[Record]:
    """Yield the records of the batches that hold offsets in [start, stop), without control batches.

    Errors as for `log_chunks`; InvalidRecord for records that cannot be read.
    """
    for chunk in log_chunks(log, start, stop):
        for row in range(chunk.first, chunk.last):
            if not chunk.batches[row].is_control:
                yield from chunk.batch_table(row)


def sound_chunks(
    extent: Extent,
    start: int,
    stop: int,
    damaged: Callable[[CorruptRecord], object],
    *,
    anchor: Anchor | None = None,
) -> Iterator[Chunk]:
    """Yield the sound batches of a segment that hold offsets in [start, stop), in order, from `anchor` on if given.

    `damaged` is called with the error for each damage between them, after the batches before it. StorageError.
    """
    while True:
        try:
            for chunk in segment_chunks(extent, start, stop, anchor=anchor):
                yield chunk
                start = chunk.next_offset
            return
        except CorruptRecord as error:
            anchor = anchor_behind(extent, error)
            damaged(error)
        if anchor is None:
            return


def bound_of(segments: LogSegments[Segment], base_offset: int) -> int:
    """Return the exclusive upper bound of a segment's offsets: the base of the next segment, if there is one."""
    following = segments.higher(base_offset)
    return LARGEST_OFFSET if following is None else int(following.base_offset)


def check_rows(table: BatchTable, next_offset: int, bound: int, path: str, base_position: int = 0) -> int:
    """Return the offset after the last batch of a table, whose batches must ascend from `next_offset` to `bound`.

    CorruptRecord for the first one that does not ascend, or whose checksum was compared and is wrong; the table's
    positions count from `base_position` of the file.
    """
    rows = table.sound_rows(next_offset, bound)
    if rows:
        next_offset = table.last_offset_of(rows - 1) + 1
    if rows < len(table):
        error = bad_row(table, rows, next_offset, bound, path)
        error.position = table.position(rows) + base_position
        raise error
    return next_offset
