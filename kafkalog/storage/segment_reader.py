"""Reading one segment from an offset on, chunk by chunk: every byte is checked, and damage raises an error.

An index is only a hint. It names the batch to begin at, and the walk must find that batch there; else the walk
begins at the segment's start. So neither an index nor a size field can skip a record. In a log that was closed cleanly,
an index that names batches behind the end of its segment shows that they were lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kafkalog._core.batch.decode import RecordTable
from kafkalog._core.batch.scan import REASON_END, REASON_PARTIAL, BatchTable, scan
from kafkalog.errors import CorruptRecord
from kafkalog.records import tables
from kafkalog.storage.damage import bad_row, damage_at, next_sound, sound_rows
from kafkalog.storage.file_slice import (
    HEADER_BYTES,
    LARGEST_OFFSET,
    LOG_OVERHEAD,
    FileSlice,
    claimed_size,
    is_worth_reading,
)
from kafkalog.storage.index.segment_index import OffsetKind
from kafkalog.storage.lazy_file import read_at
from kafkalog.storage.trailing_zeros import only_zeros

FIRST_CHUNK_BYTES: Final = 16 << 10
CHUNK_BYTES: Final = 256 << 10
WHOLE_CHUNK_BYTES: Final = 1 << 20
"""Bytes of a chunk of a read of all records: each chunk costs Python, for which threads take turns."""
_GROWTH: Final = CHUNK_BYTES // FIRST_CHUNK_BYTES
"""Most bytes of a chunk for each of the chunk before it: the end of a short read is not far."""
_ANY_OFFSET: Final = -1


class Extent(NamedTuple):
    """A segment in one state of its log: its batches are `data`, with offsets below `bound`.

    `bound` is the base offset of the next segment, or the log end in the last one (`is_last`). If the segment may
    continue above it, the next segments supply the batches from `bound` on, and `is_elsewhere` returns True if they
    hold a batch. `was_closed` returns True if the log was closed cleanly, so that its indexes belong to this data.
    """

    base_offset: int
    data: FileSlice
    bound: int
    is_last: bool = False
    offset_index: OffsetKind | None = None
    is_elsewhere: Callable[[bytes], bool] | None = None
    was_closed: Callable[[], bool] | None = None


class Chunk(NamedTuple):
    """Complete valid batches: rows `first` up to `last` of `batches`, whose bytes are `data`.

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
        """Offset after the last batch."""
        return self.batches.last_offset_of(self.last - 1) + 1

    def record_tables(self) -> Iterator[RecordTable]:
        """Yield the records, many batches at a time; errors as for `records.tables.record_tables`."""
        return tables.record_tables(
            self.data, self.batches, self.first, self.last, base_position=self.position, path=self.path
        )

    def batch_table(self, row: int) -> RecordTable:
        """Return the records of one batch; errors as for `records.tables.record_tables`."""
        return tables.batch_table(self.data, self.batches, row, base_position=self.position, path=self.path)

    def own_table(self) -> BatchTable:
        """Return a table of only the rows `first` up to `last`."""
        table = self.batches
        if not self.first and self.last == len(table):
            return table
        begin, last = table.position(self.first), self.last - 1
        size = table.position(last) + table.size(last) - begin
        return scan(self.data[begin - self.position :][:size], base_position=begin, check_crc=False)


class Anchor(NamedTuple):
    """Start of a walk: a batch's `position`, and the lowest offset it can have there.

    `last_offset` is the batch's last offset by an index entry; -1 if no entry is used.
    """

    position: int
    next_offset: int
    last_offset: int = _ANY_OFFSET


class NotAnchored(Exception):
    """The batch at an anchor does not match its index entry."""


def anchor_of(extent: Extent, start: int) -> Anchor:
    """Return the start of a walk to offset `start`, from the offset index."""
    base_offset = extent.base_offset
    if extent.offset_index is not None and start > base_offset:
        entry = extent.offset_index.lookup(start)
        if 0 < entry.position < extent.data.size and entry.offset >= base_offset:
            return Anchor(entry.position, base_offset, entry.offset)
    return Anchor(0, base_offset)


def segment_chunks(
    extent: Extent,
    start: int,
    stop: int,
    *,
    anchor: Anchor | None = None,
    check_crc: bool = True,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[Chunk]:
    """Yield the batches of a segment that hold offsets in [start, stop), in order; a chunk has about `chunk_bytes`.

    The walk begins at `anchor`, by default at the index's position. CorruptRecord with the position of the damage
    and the next expected offset, also for damage on the way to `start`.
    """
    first_anchor = anchor_of(extent, start) if anchor is None else anchor
    try:
        yield from SegmentWalk(extent, first_anchor, start, stop, check_crc, chunk_bytes).chunks()
    except NotAnchored:
        first_anchor = Anchor(0, extent.base_offset)
        yield from SegmentWalk(extent, first_anchor, start, stop, check_crc, chunk_bytes).chunks()


def anchor_behind(extent: Extent, error: CorruptRecord) -> Anchor | None:
    """Return where a walk continues behind damage, None if nowhere; add the sound offsets around it to `error`."""
    expected = error.offset or 0
    found = next_sound(extent.data.file, error.position or 0, extent.data.end, expected)
    error.last_sound_offset = expected - 1 if expected > extent.base_offset else None
    if found is None:
        error.next_sound_offset = None if extent.is_last else extent.bound
        return None
    error.next_sound_offset = min(found.base_offset, extent.bound)
    return Anchor(found.position, expected)


class SegmentWalk:
    """One walk over a segment's batches, from an anchor on.

    A batch that begins behind a gap is held back until the next one confirms it: the checksum does not cover base
    offsets, and one that is too high looks like a gap.
    """

    __slots__ = (
        "_anchor", "_at", "_bound", "_check_crc", "_chunk_bytes", "_end", "_extent", "_file", "_following",
        "_has_yielded", "_is_sure", "_is_wide", "_path", "_start", "_stop", "_want",
    )  # fmt: skip

    def __init__(
        self, extent: Extent, anchor: Anchor, start: int, stop: int, check_crc: bool = True,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:  # fmt: skip
        data = extent.data
        self._extent = extent
        self._file = data.file
        self._path = data.path
        self._anchor = anchor
        self._start = start
        self._bound = extent.bound if extent.is_elsewhere is None else LARGEST_OFFSET
        if extent.is_elsewhere is not None:
            self._stop = min(stop, extent.bound)
        else:  # what lies behind the bound of a closed segment is damage
            self._stop = stop if stop < extent.bound or extent.is_last else LARGEST_OFFSET
        self._check_crc = check_crc
        self._chunk_bytes = chunk_bytes
        self._at, self._following, entry = anchor
        self._end = data.end
        self._want = FIRST_CHUNK_BYTES
        self._is_wide = False  # the read held the whole batch behind the first one
        self._is_sure = entry < 0  # the walk relies on no index entry
        self._has_yielded = False

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks; raise NotAnchored, before the first one, if the anchor is wrong."""
        while self._at < self._end and self._following < self._stop:
            data, table = self._read()
            good = rows = sound_rows(table, data, self._following, self._bound)
            if not self._is_sure:
                self._check_anchor(table, good)
            if good and table.begins_behind_gap(good - 1, self._following):
                if self._must_wait(table, good):
                    rows -= 1
                elif not self._is_within(data, table, good - 1):
                    good = rows = good - 1
            if rows:
                first = 0 if self._has_yielded else self._first_row(table, rows)
                self._following = table.last_offset_of(rows - 1) + 1
                last = rows if self._extent.is_elsewhere is None else self._rows_below_bound(table, rows)
                if first < last:
                    self._has_yielded = self._is_sure = True
                    yield Chunk(data, table, first, last, self._path, self._at)
                if self._following >= self._stop:
                    break
            if good < len(table):
                raise self._damage(bad_row(table, good, self._following, self._extent.bound, self._path))
            if not self._advance(data, table, rows):
                break
        if not self._is_sure:
            raise NotAnchored  # nothing confirms that the segment ends below `start`
        self._check_end()

    def _check_end(self) -> None:
        """Raise CorruptRecord if the segment ends before its index does, and the walk wanted what is missing.

        Without that, batches that were cut off between two others look like a gap that compaction left.
        """
        extent, index = self._extent, self._extent.offset_index
        if extent.is_last or extent.was_closed is None or index is None or not index.entries:
            return
        if self._following < min(self._stop, extent.bound):
            last = index.lookup(extent.bound - 1)
            if last.offset >= self._following and last.position >= self._end and extent.was_closed():
                what = f"the segment ends before its index, which has a batch with offset {last.offset}"
                raise damage_at(what, self._path, self._following, self._end)

    def _read(self) -> tuple[bytes, BatchTable]:
        at = self._at
        data = read_at(self._file, min(self._want, self._end - at), at)
        return data, scan(data, file_mode=True, base_position=at, check_crc=self._check_crc)

    def _check_anchor(self, table: BatchTable, good: int) -> None:
        """Raise NotAnchored if the first batch cannot be the one that the index entry names.

        Releases before 3.9.1 wrote one entry for several batches, so the batch may end below the entry's offset.
        """
        if len(table) and self._at == self._anchor.position:
            last_offset = table.last_offset_of(0)
            if not good or last_offset > self._anchor.last_offset:
                raise NotAnchored
            self._is_sure = last_offset == self._anchor.last_offset

    def _must_wait(self, table: BatchTable, good: int) -> bool:
        """Return True if a batch follows that can confirm the last of the `good` rows, which begins behind a gap."""
        is_last = good < len(table) or self._at + table.valid_bytes >= self._end
        return not is_last and not (self._is_wide and good == 1)

    def _rows_below_bound(self, table: BatchTable, rows: int) -> int:
        """Return the number of `rows` that begin below the bound; the next segments supply those behind it."""
        row = table.row_of(self._extent.bound, rows)
        return row + (row < rows and table.base_offset(row) < self._extent.bound)

    def _is_within(self, data: bytes, table: BatchTable, row: int) -> bool:
        """Return True if an unconfirmed batch lies below the bound, or other segments hold it too."""
        is_elsewhere = self._extent.is_elsewhere
        if is_elsewhere is None or table.last_offset_of(row) < self._extent.bound:
            return True
        begin = table.position(row) - self._at
        return is_elsewhere(data[begin : begin + table.size(row)])

    def _first_row(self, table: BatchTable, rows: int) -> int:
        """Return the first row to yield, `rows` if none; raise NotAnchored if a gap precedes it."""
        first = table.row_of(self._start, rows)
        if first < rows and not self._is_sure and table.base_offset(first) > self._start:
            raise NotAnchored  # no earlier batch confirms the gap
        return first

    def _advance(self, data: bytes, table: BatchTable, rows: int) -> bool:
        """Move to the data behind the yielded rows; return False if only zeros remain. CorruptRecord."""
        if len(data) < min(self._want, self._end - self._at):  # another process has truncated the file
            raise self._cut(self._at + len(data))
        if rows < len(table):
            self._at = table.position(rows)
            self._is_wide = rows == 0
            self._want = self._wide(table.size(rows)) if self._is_wide else self._chunk_bytes
            return True
        self._is_wide = False
        if table.stop_reason not in (REASON_END, REASON_PARTIAL):
            if self._ends_in_zeros(table.stop_position):
                return False
            raise self._bad_size(table.stop_value, table.stop_position)
        self._at += table.valid_bytes
        if self._end - self._at < HEADER_BYTES and not self._extent.is_last and self._ends_in_zeros(self._at):
            return False
        if rows:
            claimed = claimed_size(data[table.valid_bytes : table.valid_bytes + LOG_OVERHEAD])
            self._want = _fitting(claimed, min(self._chunk_bytes, len(data) * _GROWTH))
        else:
            self._take_large(data)
        return True

    def _take_large(self, data: bytes) -> None:
        """Prepare to read the next batch whole, after a read that held a part of it. CorruptRecord."""
        size = claimed_size(data)
        self._want = max(self._chunk_bytes, size)
        if self._at + self._want > self._end and self._at + len(data) == self._end:
            raise self._cut(self._at)
        if not is_worth_reading(self._file, self._at, size):
            raise self._bad_size(size - LOG_OVERHEAD, self._at)

    def _wide(self, size: int) -> int:
        """Return the number of bytes to read for the batch of `size` bytes here and the next one."""
        at = min(self._at + size, self._end)
        claimed = claimed_size(read_at(self._file, min(LOG_OVERHEAD, self._end - at), at))
        is_whole = claimed <= self._end - at and is_worth_reading(self._file, at, claimed)
        return size + (max(CHUNK_BYTES, claimed) if is_whole else CHUNK_BYTES)

    def _ends_in_zeros(self, position: int) -> bool:
        """Return True if the rest is preallocated: zeros, in the last segment or behind its last offset."""
        is_complete = self._extent.is_last or self._following == self._extent.bound
        return is_complete and only_zeros(self._file, position, self._end)

    def _bad_size(self, field: int, position: int) -> Exception:
        what = f"the size field {field} does not match the batch here"
        return self._damage(damage_at(what, self._path, self._following, position))

    def _cut(self, position: int) -> Exception:
        what = "the segment ends in the middle of a batch"
        return self._damage(damage_at(what, self._path, self._following, position))

    def _damage(self, error: CorruptRecord) -> Exception:
        """Return the error to raise: the damage, or NotAnchored if a wrong anchor may be the only fault."""
        return error if self._is_sure else NotAnchored()


def _fitting(size: int, chunk_bytes: int) -> int:
    """Return the number of bytes to read if the next batch has `size` bytes: a chunk, or whole large batches.

    Batches mostly have similar sizes, and a partial batch at a chunk's end is read again with the next chunk.
    """
    if not chunk_bytes // 8 < size <= chunk_bytes:
        return chunk_bytes
    return min(chunk_bytes // size * (size + size // 32), chunk_bytes)
