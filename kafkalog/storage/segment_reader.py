"""Reading one segment from an offset on, chunk by chunk: every byte is checked, and damage is raised where it is.

An index is advice. It names the batch to begin at, and the walk from there must show that batch; else the walk begins
at the segment's start. So neither an index nor a size field can lead past a record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from kafkalog._core.scan import REASON_END, REASON_PARTIAL, BatchTable, scan
from kafkalog._core.values import OffsetPosition
from kafkalog.errors import CorruptRecord
from kafkalog.storage.batch_search import only_zeros
from kafkalog.storage.damage import bad_row, damage_at, sound_rows
from kafkalog.storage.file_slice import LARGEST_OFFSET, LOG_OVERHEAD, FileSlice, claimed_size, is_worth_reading

FIRST_CHUNK_BYTES: Final = 16 << 10
CHUNK_BYTES: Final = 256 << 10
_ANY_OFFSET: Final = -1


class OffsetIndex(Protocol):
    """What says where a walk may begin."""

    def lookup(self, target: int, /) -> OffsetPosition: ...


class Extent(NamedTuple):
    """A segment in one state of its log: its batches are `data`, and their offsets lie below `bound`.

    `bound` is the base offset of the next segment, or the log end in the last one (`is_last`). Where the next one
    `overlaps` this one, the batches from its base on are read there.
    """

    base_offset: int
    data: FileSlice
    bound: int
    is_last: bool = False
    offset_index: OffsetIndex | None = None
    overlaps: bool = False


class Chunk(NamedTuple):
    """Whole valid batches: rows `first` up to `last` of `batches`, whose bytes are `data`.

    Positions in `batches` are those in the file `path`; `data` begins at `position` there.
    """

    data: bytes
    batches: BatchTable
    first: int
    last: int
    path: str
    position: int

    @property
    def next_offset(self) -> int:
        """The offset after the last batch."""
        return self.batches.last_offset_of(self.last - 1) + 1

    def own_table(self) -> BatchTable:
        """A table of the rows `first` up to `last` alone."""
        table = self.batches
        if not self.first and self.last == len(table):
            return table
        begin, last = table.position(self.first), self.last - 1
        size = table.position(last) + table.size(last) - begin
        return scan(self.data[begin - self.position :][:size], base_position=begin, check_crc=False)


class Anchor(NamedTuple):
    """Where a walk begins: a batch's `position`, and the least offset it can have there.

    `last_offset` is the last offset that an index entry gives the batch; -1 where no entry is relied on.
    """

    position: int
    next_offset: int
    last_offset: int = _ANY_OFFSET


class NotAnchored(Exception):
    """The batch at an anchor is not the one that the index entry describes."""


def anchor_of(extent: Extent, start: int) -> Anchor:
    """Return where to begin a walk to offset `start`, by the offset index."""
    base_offset = extent.base_offset
    if extent.offset_index is not None and start > base_offset:
        entry = extent.offset_index.lookup(start)
        if 0 < entry.position < extent.data.size and entry.offset >= base_offset:
            return Anchor(entry.position, base_offset, entry.offset)
    return Anchor(0, base_offset)


def segment_chunks(
    extent: Extent, start: int, stop: int, *, anchor: Anchor | None = None, check_crc: bool = True
) -> Iterator[Chunk]:
    """Yield the batches of a segment that hold offsets in [start, stop), in order.

    The walk begins at `anchor`, by default where the index says. CorruptRecord with the place of the damage and the
    offset that would have come next, also for damage on the way to `start`.
    """
    given = anchor_of(extent, start) if anchor is None else anchor
    try:
        yield from SegmentWalk(extent, given, start, stop, check_crc).chunks()
    except NotAnchored:
        yield from SegmentWalk(extent, Anchor(0, extent.base_offset), start, stop, check_crc).chunks()


class SegmentWalk:
    """One walk over a segment's batches, from an anchor on.

    A batch that begins behind a gap is held back until the next one bears it out: base offsets lie outside the
    checksum, and one that is too high looks like a gap.
    """

    __slots__ = (
        "_anchor", "_asked", "_at", "_bound", "_check_crc", "_data", "_extent", "_following", "_given", "_is_sure",
        "_is_wide", "_piece", "_start", "_stop", "_table", "_want",
    )  # fmt: skip

    def __init__(self, extent: Extent, anchor: Anchor, start: int, stop: int, check_crc: bool = True) -> None:
        self._extent = extent
        self._anchor = anchor
        self._start = start
        self._bound = LARGEST_OFFSET if extent.overlaps else extent.bound
        self._stop = min(stop, extent.bound) if extent.overlaps else stop
        self._check_crc = check_crc
        self._piece = extent.data.slice(anchor.position, extent.data.size - anchor.position)
        self._at = 0
        self._want = FIRST_CHUNK_BYTES
        self._is_wide = False  # the read took the batch behind the first one in whole
        self._following = anchor.next_offset
        self._is_sure = anchor.last_offset < 0  # the walk needs no index entry to be true
        self._given = False

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks; NotAnchored, before the first one, where the anchor does not hold."""
        while self._at < self._piece.size and self._following < self._stop:
            self._read()
            table = self._table
            good = sound_rows(table, self._data, self._following, self._bound)
            self._check_anchor(good)
            rows = self._borne_out(good)
            if rows:
                chunk = self._chunk(rows)
                if chunk.first < rows:
                    self._given = True
                    yield chunk
                self._following = chunk.next_offset
                if self._following >= self._stop:
                    break
            if good < len(table):
                raise self._damage(bad_row(table, good, self._following, self._bound, self._piece.path))
            if not self._goes_on(good, rows):
                break
        if not self._is_sure and not self._given:
            raise NotAnchored  # nothing bears out that the segment ends below `start`

    def _read(self) -> None:
        piece = self._piece
        self._asked = asked = min(self._want, piece.size - self._at)
        self._data = piece.slice(self._at, asked).read()
        position = piece.position + self._at
        self._table = scan(self._data, file_mode=True, base_position=position, check_crc=self._check_crc)

    def _check_anchor(self, good: int) -> None:
        """NotAnchored where the first batch is not one that the index entry may name.

        Releases before 3.9.1 wrote one entry for several batches, so the batch may end below the entry's offset.
        """
        if self._is_sure or self._given or not len(self._table):
            return
        entry = self._anchor.last_offset
        if self._at == 0:
            if not good or self._table.last_offset_of(0) > entry:
                raise NotAnchored
            self._is_sure = self._table.last_offset_of(0) == entry

    def _borne_out(self, good: int) -> int:
        """Return how many of the `good` rows to give: the last one waits, behind a gap, for the batch after it."""
        table = self._table
        is_last = good < len(table) or self._at + table.valid_bytes >= self._piece.size
        if not good or is_last or self._is_wide and good == 1:
            return good
        return good - 1 if table.begins_behind_gap(good - 1, self._following) else good

    def _chunk(self, rows: int) -> Chunk:
        table = self._table
        first = 0
        if not self._given:
            first = bisect_left(memoryview(table.last_offsets), self._start, 0, rows)
            if first < rows and not self._is_sure and table.base_offset(first) > self._start:
                raise NotAnchored  # a gap that no batch before it bears out
        return Chunk(self._data, table, first, rows, self._piece.path, self._piece.position + self._at)

    def _goes_on(self, good: int, rows: int) -> bool:
        """Place the next read behind the rows that were given; False at an end of zeros. CorruptRecord."""
        table, piece = self._table, self._piece
        position = piece.position + self._at
        if len(self._data) < self._asked:
            raise self._cut(position + len(self._data))
        if rows < good:
            self._at = table.position(rows) - piece.position
            self._is_wide = rows == 0
            self._want = self._wide(table.size(rows)) if self._is_wide else CHUNK_BYTES
            return True
        self._is_wide = False
        if table.stop_reason not in (REASON_END, REASON_PARTIAL):
            if self._ends_in_zeros(table.stop_position):
                return False
            raise self._bad_size(table.stop_value, table.stop_position)
        self._at += table.valid_bytes
        self._want = CHUNK_BYTES
        if not good:
            self._take_large(position)
        return True

    def _take_large(self, position: int) -> None:
        """Read the batch at `position`, of which the last read held a part, as a whole. CorruptRecord."""
        piece, size = self._piece, claimed_size(self._data)
        self._want = max(CHUNK_BYTES, size)
        if self._at + self._want > piece.size and self._asked == piece.size - self._at:
            raise self._cut(position)
        if not is_worth_reading(piece.file, position, size):
            raise self._bad_size(size - LOG_OVERHEAD, position)

    def _wide(self, size: int) -> int:
        """Return how many bytes to read to have the batch of `size` bytes here and the one after it."""
        piece, at = self._piece, self._at + size
        claimed = claimed_size(piece.slice(min(at, piece.size), LOG_OVERHEAD).read())
        is_whole = claimed <= piece.size - at and is_worth_reading(piece.file, piece.position + at, claimed)
        return size + (max(CHUNK_BYTES, claimed) if is_whole else CHUNK_BYTES)

    def _ends_in_zeros(self, position: int) -> bool:
        """Return True if the rest is room reserved ahead: zeros, in the last segment or behind its last offset."""
        extent = self._extent
        is_complete = extent.is_last or self._following == extent.bound
        return is_complete and only_zeros(self._piece.file, position, extent.data.size)

    def _bad_size(self, field: int, position: int) -> Exception:
        what = f"the size field {field} is not that of the batch here"
        return self._damage(damage_at(what, self._piece.path, self._following, position))

    def _cut(self, position: int) -> Exception:
        what = "the segment ends in the middle of a batch"
        return self._damage(damage_at(what, self._piece.path, self._following, position))

    def _damage(self, error: CorruptRecord) -> Exception:
        """Return the error to raise: the damage, or NotAnchored where a wrong anchor may be all that is wrong."""
        return error if self._is_sure or self._given else NotAnchored()
