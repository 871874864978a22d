"""End of the last segment of a directory that another process writes: after its last complete valid batch."""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkalog.errors import CorruptRecord
from kafkalog.storage.damage import MisplacedBatch, next_sound
from kafkalog.storage.file_slice import FileSlice
from kafkalog.storage.lazy_file import DataFile, read_at
from kafkalog.storage.names import MAX_OFFSET
from kafkalog.storage.segment_reader import Anchor, Chunk, Extent, SegmentWalk

HEADER_BYTES: Final = 61
MAX_OFFSETS: Final = 2**31
_HINT: Final = (
    "`kafkalog consume --on-damage skip` reads the sound records before it; `kafkalog repair --truncate-tail --apply` "
    "cuts it off and keeps a copy; after an unclean shutdown, opening the log for writing cuts it off too"
)


class SegmentEnd(NamedTuple):
    """End of a segment: `size` bytes that end with a complete valid batch, followed by a possible `problem`.

    `damage` is the first damage before that, behind which a sound batch follows. `header` is the first 61 bytes of
    the last batch, at `last_position` (-1: no batch). While they are unchanged, the data before them was not
    truncated and rewritten.
    """

    size: int
    next_offset: int
    last_position: int = -1
    header: bytes = b""
    leader_epoch: int = -1
    problem: CorruptRecord | None = None
    damage: CorruptRecord | None = None


def empty_end(base_offset: int) -> SegmentEnd:
    """Return the end of an empty segment."""
    return SegmentEnd(0, base_offset)


def has_last_batch(file: DataFile, end: SegmentEnd) -> bool:
    """Return True if the last batch of `end` is unchanged at its position."""
    if end.last_position < 0:
        return True
    return read_at(file, len(end.header), end.last_position) == end.header


def find_end(file: DataFile, base_offset: int, end: SegmentEnd, length: int) -> SegmentEnd:
    """Return the end of a file of `length` bytes, behind its last sound batch, found by a walk from `end`.

    Its `problem` describes the data after that batch, its `damage` the data between sound ones.
    """
    damage = end.damage
    while True:
        end = extend_end(file, base_offset, end, length)
        if end.problem is not None:
            found = next_sound(file, end.size, length, end.next_offset)
            if found is not None:
                damage = damage or end.problem
                end = SegmentEnd(found.position, end.next_offset, leader_epoch=end.leader_epoch)
                continue
        return end if damage is None else end._replace(damage=damage)


def extend_end(file: DataFile, base_offset: int, end: SegmentEnd, length: int) -> SegmentEnd:
    """Return the end of the sound data in a file of `length` bytes, found by a walk from `end`.

    The walk stops before the first batch that is incomplete or damaged, or whose offsets do not ascend or do not fit
    the segment. Zeros up to the end (a preallocated file) are not a problem.
    """
    if end.problem is not None:
        end = end._replace(problem=None)
    bound = min(base_offset + MAX_OFFSETS, MAX_OFFSET)  # a log's end is an offset too
    extent = Extent(base_offset, FileSlice(file, 0, length), bound, is_last=True)
    try:
        for chunk in SegmentWalk(extent, Anchor(end.size, end.next_offset), 0, bound).chunks():
            end = _after(chunk)
    except CorruptRecord as error:
        if not isinstance(error, MisplacedBatch):
            error.hint = _HINT
        return end._replace(problem=error)
    return end


def _after(chunk: Chunk) -> SegmentEnd:
    """Return the end behind a chunk's last batch."""
    table, row = chunk.batches, chunk.last - 1
    position, size = table.position(row), table.size(row)
    at = position - chunk.position
    return SegmentEnd(
        size=position + size,
        next_offset=table.last_offset_of(row) + 1,
        last_position=position,
        header=chunk.data[at : at + min(HEADER_BYTES, size)],
        leader_epoch=table.leader_epoch(row),
    )
