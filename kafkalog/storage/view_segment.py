"""One segment of a directory that another process owns: finding offsets and times, its indexes only advice."""

from __future__ import annotations

from typing import Final

from kafkalog._core.scan import REASON_PARTIAL, BatchHeader, scan
from kafkalog.storage.damage import first_offset
from kafkalog.storage.file_slice import HEADER_BYTES, claimed_size, is_worth_reading
from kafkalog.storage.segment_reader import Extent
from kafkalog.storage.time_search import find_offset_by_timestamp
from kafkalog.storage.view_end import MAX_OFFSETS, SegmentEnd, empty_end, extend_end
from kafkalog.storage.view_files import Descriptors, ViewFiles
from kafkalog.storage.view_listing import ListedSegment
from kafkalog.types import OffsetAndTimestamp, OffsetPosition
from kafkalog.util.fileio import FileSystem

ADVISED_WINDOW: Final = 16 << 10
ANY_TIMESTAMP: Final = 2**63 - 1


class ViewSegment(ViewFiles):
    """A segment of another process's log, up to `size` bytes.

    Whatever an index says is checked against the data before it is used; where it is wrong, the data is
    scanned from the segment's start. Threads: safe.
    """

    __slots__ = ("_known_end", "_largest")

    def __init__(
        self, directory: str, listed: ListedSegment, *, fs: FileSystem, descriptors: Descriptors
    ) -> None:
        super().__init__(directory, listed, fs=fs, descriptors=descriptors)
        self._largest = (-1, -1)
        self._known_end: tuple[int, SegmentEnd] | None = None

    def forget_indexes(self) -> None:
        """Drops the copies of the indexes and what was found out: the file was cut or replaced."""
        super().forget_indexes()
        self._largest = (-1, -1)
        self._known_end = None

    def _batch_at(self, position: int) -> BatchHeader | None:
        """The whole valid batch that begins at `position`; None where there is none."""
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
        """The batch that an index entry points at, if one begins there and holds offsets up to the entry's.

        Files written before 3.9.1 may name the last offset of several batches, so the batch may end below it.
        """
        batch = self._batch_at(entry.position)
        if batch is None or not self.base_offset <= batch.base_offset <= batch.last_offset <= entry.offset:
            return None
        return batch

    def boundary_after(self, position: int) -> BatchHeader | None:
        """The first batch at or after byte `position` that the offset index knows; None where it knows none."""
        entry = self.offset_index.fetch_upper_bound_offset(OffsetPosition(self.base_offset, position), 0)
        return None if entry is None else self._advised(entry)

    def _start_position(self, offset: int) -> int:
        """Where to begin a walk to `offset`: the index's advice where it holds, else 0."""
        entry = self.offset_index.lookup(offset)
        if entry.position <= 0 or self._advised(entry) is None:
            return 0
        return entry.position

    def translate_offset(self, offset: int) -> tuple[int, int, int] | None:
        """(base offset, position, size) of the first batch that ends at or above `offset`; None for none.

        Where that begins above `offset`, there is a gap, or a damaged header on the way: then the place of
        the damage is returned, so that whoever reads there learns of it.
        """
        start = self._start_position(offset)
        found = self.records.search_for_offset(offset, start)
        if found is None or found[0] <= offset:
            return found
        end = self._walked(start, found[1])
        return found if end.problem is None else (offset, end.size, found[1] - end.size)

    def _walked(self, start: int, stop: int) -> SegmentEnd:
        """How far the bytes from `start`, a batch's position, up to `stop` are whole valid batches."""
        return extend_end(self.file, self.base_offset, SegmentEnd(start, self.base_offset), stop)

    def advised_end(self) -> SegmentEnd | None:
        """A place near the end from which the rest can be walked: where the last index entry points.

        None without an entry that holds; `size` and `next_offset` are the beginning of that batch. An entry whose batch
        ends at the entry's offset comes first: it bears the base offset out.
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
            number -= step  # entries of data that was cut away may follow those that hold
            step *= 2
        return found

    def _first_offset(self, batch: BatchHeader) -> int:
        """Return the first offset of a batch; the header of a compressed message of v0 or v1 has the last one."""
        if batch.magic >= 2 or not batch.compression:
            return batch.base_offset
        data = self.records.read(batch.position, batch.size)
        table = scan(data, file_mode=True, base_position=batch.position, max_batches=1)
        return first_offset(data, table, 0) if len(table) else batch.base_offset

    def hidden_at(self, offset: int, end: SegmentEnd | None = None) -> int | None:
        """Where damage hides `offset`, which no walk found here; None where the segment really ends below it.

        `end` is where the segment ends, if the view knows; else the last batches are looked at.
        """
        if end is None:
            end = self._end()
        if end.size < self._size:
            return end.size
        if offset >= end.next_offset or not self._size:
            return None
        return extend_end(self.file, self.base_offset, empty_end(self.base_offset), self._size).size

    def _end(self) -> SegmentEnd:
        """Where the whole valid batches of a rolled segment end."""
        known = self._known_end
        if known is None or known[0] != self._size:
            start = self.advised_end() or empty_end(self.base_offset)
            known = self._size, extend_end(self.file, self.base_offset, start, self._size)
            self._known_end = known
        return known[1]

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp (ms) of all batches; -1 where none has one.

        The last time index entry, where the data bears it out, and the batches after it; else all batches.
        Damage among them may hide any time: then it is the largest there can be, so that a search looks here.
        """
        known_size, largest = self._largest
        size = self.size
        if known_size != size:
            position = 0
            index = self.time_index
            if index.entries:
                position = self._timed_position(*index.last_entry) or 0
            if self._walked(position, size).problem is not None:
                largest = ANY_TIMESTAMP
            else:
                largest = self.records.largest_timestamp_after(position).timestamp
            self._largest = (size, largest)
        return largest

    def _timed_position(self, timestamp: int, offset: int) -> int | None:
        """The position of the batch that a time index entry names; None unless its times bear the entry out."""
        found = self.translate_offset(offset)
        if found is None:
            return None
        batch = self._batch_at(found[1])
        if batch is None or batch.base_offset > offset or batch.max_timestamp != timestamp:
            return None
        return batch.position

    def find_offset_by_timestamp(
        self, timestamp: int, start_offset: int, bound: int | None = None
    ) -> OffsetAndTimestamp | None:
        """The first record at or after time `timestamp` (ms) with an offset of at least `start_offset`.

        `bound` is the offset at which the next segment begins; errors as for `time_search`.
        """
        end = self.base_offset + MAX_OFFSETS if bound is None else bound
        data = self.records.slice(0, self._size)
        extent = Extent(self.base_offset, data, end, bound is None, self.offset_index, self.overlaps)
        return find_offset_by_timestamp(extent, self.time_index, timestamp, start_offset)

    def __repr__(self) -> str:
        size = "?" if self._size < 0 else str(self._size)
        return f"<ViewSegment {self.base_offset} {size} B {self.path}>"
