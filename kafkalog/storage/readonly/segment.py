"""One segment of a directory owned by another process: finds offsets and times, with its indexes as hints only."""

from __future__ import annotations

from typing import Final

from kafkalog._core.batch.record import Record
from kafkalog._core.batch.scan import REASON_PARTIAL, BatchHeader, scan
from kafkalog.errors import CorruptRecord, IllegalArgument, InvalidRecord
from kafkalog.records.tables import batch_table
from kafkalog.storage.damage import first_offset
from kafkalog.storage.file_slice import HEADER_BYTES, FileSlice, claimed_size, is_worth_reading
from kafkalog.storage.readonly.end import MAX_OFFSETS, SegmentEnd, empty_end, extend_end
from kafkalog.storage.readonly.files import Descriptors, ViewFiles
from kafkalog.storage.readonly.listing import UnopenedSegment
from kafkalog.storage.segment_reader import Extent
from kafkalog.storage.time_search import find_offset_by_timestamp
from kafkalog.storage.trailing_zeros import only_zeros
from kafkalog.types import OffsetAndTimestamp, OffsetPosition
from kafkalog.util.fileio import FileSystem

ADVISED_WINDOW: Final = 16 << 10
ANY_TIMESTAMP: Final = 2**63 - 1


class ViewSegment(ViewFiles):
    """A segment of another process's log, up to `size` bytes.

    Every index entry is checked against the data before use; if it is wrong, the data is scanned from the segment's
    start. Threads: safe.
    """

    __slots__ = ("_known_end", "_largest", "following")

    def __init__(
        self, directory: str, listed: UnopenedSegment, *, fs: FileSystem, descriptors: Descriptors
    ) -> None:
        super().__init__(directory, listed, fs=fs, descriptors=descriptors)
        self.following: ViewSegment | None = None  # never one before it: a cycle would keep files open
        self._largest = (-1, -1)
        self._known_end: tuple[int, SegmentEnd] | None = None

    def forget_indexes(self) -> None:
        """Discard the copies of the indexes and cached results, after the file was truncated or replaced."""
        super().forget_indexes()
        self._largest = (-1, -1)
        self._known_end = None

    def _batch_at(self, position: int) -> BatchHeader | None:
        """Return the complete valid batch that begins at `position`; None if there is none."""
        records = self.records
        if not 0 <= position <= records.size - HEADER_BYTES:
            return None
        data = records.read(position, ADVISED_WINDOW)
        table = scan(data, file_mode=True, base_position=position, max_batches=1)
        if not len(table) and table.stop_reason == REASON_PARTIAL and len(data) >= HEADER_BYTES:
            size = claimed_size(data)
            if position + size > records.size or not is_worth_reading(self.file, position, size):
                return None
            data = records.read(position, size)
            table = scan(data, file_mode=True, base_position=position, max_batches=1)
        return table[0] if len(table) and table.first_invalid < 0 else None

    def _advised(self, entry: OffsetPosition) -> BatchHeader | None:
        """Return the batch that an index entry points at, if one begins there and ends at or below its offset.

        Files written before 3.9.1 may name the last offset of several batches, so the batch may end below it.
        """
        batch = self._batch_at(entry.position)
        if batch is None or not self.base_offset <= batch.base_offset <= batch.last_offset <= entry.offset:
            return None
        return batch

    def boundary_after(self, position: int) -> BatchHeader | None:
        """Return the first batch at or after byte `position` that the offset index lists; None if it lists none."""
        entry = self.offset_index.fetch_upper_bound_offset(OffsetPosition(self.base_offset, position), 0)
        return None if entry is None else self._advised(entry)

    def _start_position(self, offset: int) -> int:
        """Return where to begin a walk to `offset`: the index entry's position if it is valid, else 0."""
        entry = self.offset_index.lookup(offset)
        if entry.position <= 0 or self._advised(entry) is None:
            return 0
        return entry.position

    def translate_offset(self, offset: int) -> tuple[int, int, int] | None:
        """Return (base offset, position, size) of the first batch that ends at or above `offset`; None if none.

        If that batch begins above `offset`, there is a gap or a damaged header before it. For damage its position is
        returned, so that a read there raises the error.
        """
        start = self._start_position(offset)
        found = self.records.search_for_offset(offset, start)
        if found is None or found[0] <= offset:
            return found
        end = self._walked(start, found[1])
        return found if end.problem is None else (offset, end.size, found[1] - end.size)

    def _walked(self, start: int, stop: int) -> SegmentEnd:
        """Return the end of the complete valid batches from `start`, a batch's position, up to `stop`."""
        return extend_end(self.file, self.base_offset, SegmentEnd(start, self.base_offset), stop)

    def advised_end(self) -> SegmentEnd | None:
        """Return a position near the end, from the last index entry, from which the rest can be walked.

        None without a valid entry; `size` and `next_offset` are the beginning of that batch. An entry whose batch
        ends at the entry's offset takes precedence: it confirms the base offset.
        """
        index = self.offset_index
        found: SegmentEnd | None = None
        step = 1
        number = index.entries - 1
        while number >= 0:
            entry = index.entry(number)
            batch = self._advised(entry)
            if batch is not None:
                end = SegmentEnd(batch.position, self._first_offset(batch))
                if batch.last_offset == entry.offset:
                    return end
                found = found or end
            number -= step  # entries of truncated data may follow the valid ones
            step *= 2
        return found

    def _first_offset(self, batch: BatchHeader) -> int:
        """Return the first offset of a batch; the header of a compressed v0 or v1 message has the last one."""
        if batch.magic >= 2 or not batch.compression:
            return batch.base_offset
        data = self.records.read(batch.position, batch.size)
        table = scan(data, file_mode=True, base_position=batch.position, max_batches=1)
        return first_offset(data, table, 0) if len(table) else batch.base_offset

    def hidden_at(self, offset: int, end: SegmentEnd | None = None) -> int | None:
        """Return the position of damage that hides `offset`, which no walk found; None if the segment ends below it.

        `end` is the end of the segment, if the view knows it; otherwise it is determined from the last batches.
        """
        if end is None:
            end = self._end()
        if end.size < self.size:
            return end.size
        if offset >= end.next_offset or not self.size:
            return None
        return extend_end(self.file, self.base_offset, empty_end(self.base_offset), self.size).size

    def _end(self) -> SegmentEnd:
        """Return the end of the complete valid batches of a rolled segment."""
        known = self._known_end
        if known is None or known[0] != self.size:
            start = self.advised_end() or empty_end(self.base_offset)
            known = self.size, extend_end(self.file, self.base_offset, start, self.size)
            self._known_end = known
        return known[1]

    @property
    def largest_timestamp(self) -> int:
        """Largest timestamp (ms) of all batches; -1 if none has one.

        Taken from the last time index entry, if the data confirms it, and the batches after it; else from all
        batches. Damage among them may hide any time: the value is then the largest possible one, so that a search
        covers this segment.
        """
        known_size, largest = self._largest
        size = self.size
        if known_size != size:
            position = 0
            index = self.time_index
            if index.entries:
                position = self._timed_position(*index.last_entry) or 0
            end = self._walked(position, size)
            if end.size < size and not self._only_zeros_follow(end):
                largest = ANY_TIMESTAMP
            else:
                tables = self.records.slice(position, end.size - position).tables()
                largest = max((table.max_timestamp for table in tables), default=-1)
            self._largest = (size, largest)
        return largest

    def _only_zeros_follow(self, end: SegmentEnd) -> bool:
        """Return True if zeros follow the last batch, and the next segment begins there: they hide no record."""
        following = self.following
        if following is None or following.base_offset != end.next_offset:
            return False
        return only_zeros(self.file, end.size, self.size)

    def _timed_position(self, timestamp: int, offset: int) -> int | None:
        """Return the position of the batch a time index entry names; None unless its times confirm the entry."""
        found = self.translate_offset(offset)
        if found is None:
            return None
        batch = self._batch_at(found[1])
        if batch is None or batch.base_offset > offset or batch.max_timestamp != timestamp:
            return None
        return batch.position

    def extent(self, data: FileSlice, bound: int, *, is_last: bool) -> Extent:
        """Return the segment to walk over, with offsets below `bound`."""
        was_closed = self.was_closed if self.is_elsewhere is None else None
        return Extent(self.base_offset, data, bound, is_last, self.offset_index, self.is_elsewhere, was_closed)

    def find_offset_by_timestamp(
        self, timestamp: int, start_offset: int, bound: int | None = None
    ) -> OffsetAndTimestamp | None:
        """Return the first record at or after time `timestamp` (ms) with an offset of at least `start_offset`.

        `bound` is the base offset of the next segment; raises as `time_search` does.
        """
        end = self.base_offset + MAX_OFFSETS if bound is None else bound
        data = self.records.slice(0, self.size)
        extent = self.extent(data, end, is_last=bound is None)
        return find_offset_by_timestamp(extent, self.time_index, timestamp, start_offset)

    def __repr__(self) -> str:
        size = "?" if self.size < 0 else str(self.size)
        return f"<ViewSegment {self.base_offset} {size} B {self.path}>"

    def batch_with(self, offset: int) -> bytes:
        """Return the complete valid batch with base offset `offset`; b"" if there is none."""
        found = self.translate_offset(offset)
        batch = None if found is None else self._batch_at(found[1])
        if batch is None or batch.base_offset != offset:
            return b""
        return self.records.read(batch.position, batch.size)


def hold_batch(segment: ViewSegment, batch: bytes) -> bool:
    """Return True if `segment` or one behind it has a batch with the same offsets and all records of `batch`.

    The cleaner removes records of a batch, never its offsets. False also if the batch there cannot be decoded. True for
    a batch that begins below `segment`, which the segment before has alone.
    """
    header = scan(batch)[0]
    if header.base_offset < segment.base_offset:
        return True
    while segment.following is not None and segment.following.base_offset <= header.base_offset:
        segment = segment.following
    try:
        other = segment.batch_with(header.base_offset)
        return bool(other) and scan(other)[0].last_offset == header.last_offset and _records(batch) <= _records(other)
    except (CorruptRecord, InvalidRecord, IllegalArgument):
        return False


def _records(batch: bytes) -> set[Record]:
    return set(batch_table(batch, scan(batch), 0))
