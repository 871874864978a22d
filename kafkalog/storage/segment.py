"""One segment of a log: a `.log` file with its two indexes.

The `.log` file holds batches back to back; the indexes are sparse and follow from it (format.md section 7), so a
lost one is rebuilt. The rules of appending are in `_core/plan.pyx`; the owner plans, the segment writes.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Final, TypeVar

from kafkalog._core.plan import NO_ROLL, AppendPlan, RollRules, SegmentTail, plan_append
from kafkalog._core.scan import BatchTable, scan
from kafkalog.config import LogConfig
from kafkalog.errors import IllegalArgument, SegmentOffsetOverflow
from kafkalog.storage.aborted_txns import AbortedTxn
from kafkalog.storage.abstract_index import Brought
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.file_slice import check_next_offset
from kafkalog.storage.index import OffsetIndex
from kafkalog.storage.lazy_index import LazyIndex
from kafkalog.storage.names import index_file_name, log_file_name, time_index_file_name, txn_index_file_name
from kafkalog.storage.readable_records import FIRST_WINDOW, SMALL_WINDOW
from kafkalog.storage.segment_files import SegmentFiles
from kafkalog.storage.segment_reader import Extent
from kafkalog.storage.time_index import TimeIndex
from kafkalog.storage.time_search import find_offset_by_timestamp
from kafkalog.storage.transaction_index import TransactionIndex
from kafkalog.types import FetchDataInfo, LogOffsetMetadata, OffsetAndTimestamp, TimestampOffset
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.interrupts import deferred_interrupts

X = TypeVar("X", OffsetIndex, TimeIndex)

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_LONG_BATCH_BYTES: Final = 8192
"""Where index entries are farther apart, batches are long: a search needs their headers only, not what lies between."""
_FIRST_BATCH_BYTES: Final = 4096
NO_TIMESTAMP_YET: Final = 2**63 - 1
"""What `first_batch_timestamp` says of a segment without a time (SEG-33)."""
NOT_READ: Final = SegmentTail()
"""The tail of a segment that was opened but not made ready for appends."""


class LogSegment(SegmentFiles):
    """A segment, open: `records` is its FileRecords, `tail` what the next append needs to know, NOT_READ until then.

    Threads: appends, cuts, rename and close belong to the owner's lock; lookups and reads may run beside them.
    """

    __slots__ = (
        "_is_fresh",
        "base_offset",
        "clock",
        "created_ms",
        "is_damaged",
        "index_interval_bytes",
        "max_index_size",
        "roll_jitter_ms",
        "tail",
    )

    def __init__(
        self,
        records: FileRecords,
        offset_index: LazyIndex[OffsetIndex],
        time_index: LazyIndex[TimeIndex],
        txn_index: TransactionIndex,
        base_offset: int,
        config: LogConfig,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(records, offset_index, time_index, txn_index)
        self.base_offset = base_offset
        self.clock = clock
        self.created_ms = clock.milliseconds()
        self.is_damaged = False  # recovery found damage in it and left it there: its indexes may lack entries
        self.index_interval_bytes: int = config.index_interval_bytes
        self.max_index_size: int = config.segment_index_bytes
        self.roll_jitter_ms = config.random_jitter_ms()
        self.tail = NOT_READ
        self._is_fresh = False  # new, and its indexes not made yet

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        base_offset: int,
        config: LogConfig,
        *,
        fs: FileSystem = OS,
        clock: Clock = SYSTEM_CLOCK,
        file_already_exists: bool = False,
        init_file_size: int = 0,
        preallocate: bool = False,
        suffix: str = "",
    ) -> LogSegment:
        """The segment that begins at `base_offset`; its `.log` file is made unless it exists, its indexes at first use.

        StorageError names the file the system refused.
        """
        folder = os.fspath(directory)
        size = config.segment_index_bytes
        records = FileRecords.open(
            os.path.join(folder, log_file_name(base_offset, suffix)),
            fs=fs,
            file_already_exists=file_already_exists,
            init_file_size=init_file_size,
            preallocate=preallocate,
        )
        offsets = LazyIndex(
            os.path.join(folder, index_file_name(base_offset, suffix)),
            partial(open_index, OffsetIndex, base_offset, size, fs),
            fs,
        )
        times = LazyIndex(
            os.path.join(folder, time_index_file_name(base_offset, suffix)),
            partial(open_index, TimeIndex, base_offset, size, fs),
            fs,
        )
        aborted = TransactionIndex(os.path.join(folder, txn_index_file_name(base_offset, suffix)), base_offset, fs=fs)
        return cls(records, offsets, times, aborted, base_offset, config, clock)

    # What it holds

    @property
    def last_known_offset(self) -> int:
        """The last offset where this process wrote or read it; -1 for a segment not looked into, or empty."""
        return self.tail.last_offset

    @property
    def end_offset(self) -> int:
        """The offset behind the last batch, the base offset where there is none; for a segment ready for appends."""
        last = self.tail.last_offset
        return last + 1 if last >= 0 else self.base_offset

    def _tail_with(self, last_offset: int, largest: TimestampOffset, rolling_timestamp: int) -> SegmentTail:
        offsets, times = self.offset_index, self.time_index
        return SegmentTail(
            self.records.size,
            last_offset,
            largest.timestamp,
            largest.offset if largest.timestamp >= 0 else -1,
            rolling_timestamp,
            0,
            offsets.max_entries - offsets.entries,
            times.max_entries - 1 - times.entries,
            times.last_entry.timestamp,
        )

    def become_active(self, known: SegmentTail | None = None) -> int:
        """Make the segment ready for appends; returns the next offset.

        The indexes are opened (made, if missing) at their full length again, the last offset is looked up; not where it
        is `known`, by a pass over all of the segment (bytes since the last index entry count from now on: SEG-36).
        """
        self.resize_indexes(self.max_index_size)
        if known is not None:
            largest = TimestampOffset(known.max_timestamp, known.offset_of_max_timestamp)
            self.tail = self._tail_with(known.last_offset, largest, known.rolling_timestamp)
            return self.end_offset
        next_offset = self.read_next_offset()
        last = next_offset - 1 if self.size else -1
        self.tail = self._tail_with(last, self.read_largest_timestamp(), self._first_timestamp())
        return next_offset

    def begin(self) -> None:
        """Make a new segment ready for appends: its indexes are made with the first one, as in the reference."""
        slots, time_slots = self.max_index_size // OffsetIndex.entry_size, self.max_index_size // TimeIndex.entry_size
        if self.size or not slots or not time_slots:
            self.become_active()
        else:
            self.tail = SegmentTail(offset_slots=slots, time_slots=time_slots - 1)
            self._is_fresh = True

    def _ready_tail(self) -> SegmentTail:
        if self.tail is NOT_READ:
            self.become_active()
        return self.tail

    def _first_timestamp(self) -> int:
        first = next(self.records.batches(0, min(self.size, _FIRST_BATCH_BYTES)), None)
        first = first or next(self.records.batches(), None)
        return -1 if first is None else first.max_timestamp

    def roll_rules(self, config: LogConfig) -> RollRules:
        """The limits of this segment under `config`; its jitter stays what it was when it began (LOG-15)."""
        max_wait = config.max_segment_age_ms - self.roll_jitter_ms
        return RollRules(
            self.base_offset,
            config.segment_size,
            max(max_wait, 0),
            self.created_ms,
            self.index_interval_bytes,
        )

    # Appending

    def ensure_offset_in_range(self, offset: int) -> None:
        """Return when the offset can be stored relative to the base; SegmentOffsetOverflow otherwise (SEG-2)."""
        if not 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET:
            raise SegmentOffsetOverflow(
                f"offset {offset} does not fit a segment that begins at {self.base_offset}",
                path=self.path,
                offset=offset,
            )

    def append(self, data: Any, table: BatchTable | None = None) -> AppendPlan:
        """What was appended: all whole batches of `data`, with the offsets they have.

        SegmentOffsetOverflow where one does not fit; StorageError when the disk refuses, nothing is appended
        then. The segment's limits are the owner's business: they are not looked at here.
        """
        if table is None:
            table = scan(data, check_crc=False)
        plan = self.plan(table)
        self.write(memoryview(data)[: table.valid_bytes], plan)
        return plan

    def plan(self, table: BatchTable) -> AppendPlan:
        """What it means to append the batches of `table`, whatever the segment's limits say; nothing is changed.

        SegmentOffsetOverflow where one does not fit.
        """
        rules = RollRules(
            self.base_offset,
            MAX_RELATIVE_OFFSET,
            NO_TIMESTAMP_YET,
            self.created_ms,
            self.index_interval_bytes,
        )
        plan = plan_append(table, 0, self._ready_tail(), rules, self.created_ms, True, True)
        if plan.roll_reason != NO_ROLL:
            self.ensure_offset_in_range(table.last_offset)
        return plan

    def add_entries(self, entries: list[Brought]) -> None:
        """Index what was written without; StorageError leaves some of them out, and the segment of no use."""
        if self._is_fresh:
            self.open_indexes()
        if entries:
            self._indexes_changed = True
            self.offset_index.extend(entries)
            self.time_index.extend(entries)

    def write(self, data: Any, plan: AppendPlan) -> None:
        """Append the bytes that `plan` is about, then its index entries; on any error the segment is as before.

        Space for the entries is reserved first: a full disk shows before a byte of data is written.
        """
        if self._is_fresh:
            self.open_indexes()
        entries = plan.entries
        if entries is None:
            self.records.append(data)
            self.tail = plan.tail
            return
        before = self.tail
        offset_index, time_index = self.offset_index, self.time_index
        self._indexes_changed = True
        try:
            offset_index.reserve(len(entries))
            time_index.reserve(len(entries))
            self.records.append(data)
            offset_index.extend(entries)
            time_index.extend(entries)
            self._indexes_changed = True  # again: a flush meanwhile has synced what was there before
            self.tail = plan.tail
        except BaseException:
            self.revert(before)
            raise

    def revert(self, tail: SegmentTail) -> None:
        """Make the segment end as it did when `tail` was its tail: what a failed append left goes (idempotent)."""
        if self.records.size > tail.size:
            self.records.truncate_to(tail.size)
        keep = tail.last_offset + 1 if tail.last_offset >= 0 else self.base_offset
        self.offset_index.truncate_to(keep)
        self.time_index.truncate_to(keep)
        self.txn_index.truncate_to(keep)
        self.tail = tail

    def add_aborted(self, entry: AbortedTxn) -> None:
        """Note an aborted transaction whose marker is in this segment."""
        self._indexes_changed = True
        self.txn_index.append(entry)
        self._indexes_changed = True  # again: a flush meanwhile has synced what was there before

    # Reading

    def translate_offset(self, offset: int, start_position: int = 0) -> tuple[int, int, int] | None:
        """(base offset, position, size) of the first batch that ends at or above `offset`; None past the last one.

        The index gives the place to begin at, the headers after it are walked.
        """
        index, records = self.offset_index, self.records
        position = index.lookup(offset).position
        if position < start_position:
            position = start_position
        window = SMALL_WINDOW if index.entries * _LONG_BATCH_BYTES < records.size else FIRST_WINDOW
        return records.search_for_offset(offset, position, window)

    def read(
        self, start_offset: int, max_size: int, max_position: int | None = -1, min_one_message: bool = False
    ) -> FetchDataInfo | None:
        """The data from the batch that holds `start_offset` on (or the next one), at most `max_size` bytes of it.

        None when the segment ends below the offset. `max_position` bounds the bytes (-1: the segment's end, None: not
        known, so nothing is handed out). With `min_one_message` the first batch comes whole, whatever its size. The
        metadata names the batch found (SEG-8 to SEG-10). IllegalArgument for a negative `max_size`.
        """
        if max_size < 0:
            raise IllegalArgument(f"a read of {max_size} bytes makes no sense", path=self.path)
        found = self.translate_offset(start_offset)
        if found is None:
            return None
        base_offset, position, size = found
        place = LogOffsetMetadata(base_offset, self.base_offset, position)
        wanted = size if min_one_message and size > max_size else max_size
        if wanted == 0 or max_position is None:
            return FetchDataInfo(place, self.records.slice(position, 0))
        end = self.records.size if max_position < 0 else max_position
        return FetchDataInfo(
            place, self.records.slice(position, max(0, min(end - position, wanted))), wanted < size
        )

    def read_next_offset(self) -> int:
        """Return the offset after the last batch; the base offset where there is none (SEG-19).

        CorruptRecord for a size that no batch has, and for a last offset with none after it.
        """
        last = self.offset_index.last_offset
        position = self.offset_index.lookup(last).position
        next_offset = self.base_offset
        for table in self.records.tables(position):
            if len(table):
                row = len(table) - 1
                next_offset = check_next_offset(table.last_offset_of(row), self.path, table.position(row))
        return next_offset

    # Times

    def read_largest_timestamp(self) -> TimestampOffset:
        """The largest timestamp with its batch's last offset: the last index entry, or a batch after it (SEG-14)."""
        entry = self.time_index.last_entry
        position = self.offset_index.lookup(entry.offset).position
        after = self.records.largest_timestamp_after(position)
        return after if after.timestamp > entry.timestamp else entry

    @property
    def max_timestamp_so_far(self) -> int:
        """The largest timestamp of a batch here, -1 where none has one; of a closed segment by its last index entry."""
        tail = self.tail
        return tail.max_timestamp if tail is not NOT_READ else self.time_index.last_entry.timestamp

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp in ms; the file's time where no batch has one (SEG-15)."""
        largest = self.max_timestamp_so_far
        return largest if largest >= 0 else self.records.last_modified_ms()

    @property
    def first_batch_timestamp(self) -> int:
        """The largest timestamp of the first batch; 2^63-1 where there is none (SEG-33)."""
        first = self._first_timestamp() if self.tail is NOT_READ else self.tail.rolling_timestamp
        return first if first >= 0 else NO_TIMESTAMP_YET

    def time_waited_for_roll(self, now_ms: int, message_timestamp: int) -> int:
        """Ms since the segment began, by its first batch's time where it has one, else by the clock (SEG-16)."""
        tail = self._ready_tail()
        if tail.size and tail.rolling_timestamp >= 0:
            return message_timestamp - tail.rolling_timestamp
        return now_ms - self.created_ms

    def find_offset_by_timestamp(
        self, timestamp: int, start_offset: int, bound: int | None = None
    ) -> OffsetAndTimestamp | None:
        """The first record at or after the time whose offset is at least `start_offset` (SEG-18).

        `bound` is the offset at which the next segment begins; errors as for `time_search`.
        """
        extent = Extent(
            self.base_offset,
            self.records.slice(0, self.records.size),
            self.base_offset + MAX_RELATIVE_OFFSET + 1 if bound is None else bound,
            bound is None,
            self.offset_index,
        )
        return find_offset_by_timestamp(extent, self.time_index, timestamp, start_offset)

    def find_largest_timestamp(self) -> OffsetAndTimestamp | None:
        """The first record that carries the largest timestamp; None where no batch has one."""
        tail = self.tail
        if tail is not NOT_READ:
            largest = TimestampOffset(tail.max_timestamp, tail.offset_of_max_timestamp)
        else:
            largest = self.time_index.last_entry
        if largest.timestamp < 0:
            return None
        position = self.offset_index.lookup(largest.offset).position
        return self.records.search_for_timestamp(largest.timestamp, position, self.base_offset)

    # Cutting, closing, going away

    def truncate_to(self, offset: int) -> int:
        """The bytes cut: all batches that end at or above `offset` are gone, and the segment takes appends again.

        A batch that holds the offset in its middle goes whole (SEG-11). The indexes have their full length
        after it; a segment cut to nothing begins anew in time (SEG-13).
        """
        self.pin_indexes()
        found = self.translate_offset(offset)
        tail = self._ready_tail()
        largest, rolling = tail.max_timestamp, tail.rolling_timestamp
        self._indexes_changed = True
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.resize_indexes(self.max_index_size)
        cut = 0 if found is None else self.records.truncate_to(found[1])
        if self.records.size == 0:
            self.created_ms = self.clock.milliseconds()
            rolling = -1
        last = self.read_next_offset() - 1 if self.records.size else -1
        stamp = self.read_largest_timestamp() if largest >= 0 else TimestampOffset(-1, -1)
        self.tail = self._tail_with(last, stamp, rolling)
        return cut

    def open_indexes(self) -> None:
        """Make both indexes of a new segment, at their full length; what an attempt before left is of no use."""
        with deferred_interrupts():
            for index in (self.offset_index, self.time_index):
                if index.entries:
                    index.reset()
            self.resize_indexes(self.max_index_size)
            self._is_fresh = False

    def resize_indexes(self, size: int) -> None:
        """Give both indexes room for `size` bytes; one with more entries keeps them, and the next append rolls."""
        self.pin_indexes()
        offsets, times = self.offset_index, self.time_index
        final_entry = times.entry_size
        for index, least in ((offsets, offsets.size_in_bytes), (times, times.size_in_bytes + final_entry)):
            length = max(size, least)
            if not index.resize(length) and index.read_only:  # it has that length already: lift the write protection
                index.trim_to_valid_size()
                index.resize(length)

    def add_final_time_entry(self) -> None:
        """Write the largest timestamp into the slot that the time index kept free for it."""
        tail = self.tail
        if tail.max_timestamp < 0:
            return  # nothing was appended here: the index stays unopened
        index = self.time_index
        last = index.last_entry
        # an index made before the data was damaged may have more than the data shows
        if tail.max_timestamp >= last.timestamp and tail.offset_of_max_timestamp >= last.offset:
            before = index.entries
            index.maybe_append(tail.max_timestamp, tail.offset_of_max_timestamp, skip_full_check=True)
            if index.entries != before:
                self._indexes_changed = True

    def on_become_inactive(self) -> None:
        """Close the book on a rolled segment: final time entry, files trimmed, indexes read-only (SEG-28)."""
        self._indexes_changed = True
        self.add_final_time_entry()
        self.offset_index.trim_to_valid_size()
        self.time_index.trim_to_valid_size()
        self.records.trim()
        self.offset_index.make_read_only()
        self.time_index.make_read_only()
        self._indexes_changed = True
        self.unpin_indexes()
        self.records.end_appends()

    def sanity_check(self) -> None:
        """Return when both indexes fit themselves; CorruptIndex otherwise (SEG-29)."""
        self.offset_index.sanity_check()
        self.time_index.sanity_check()

    def close(self) -> None:
        """Final time entry, then trim and close all files; every one is closed even if one fails. Harmless twice."""
        if self.records.closed:
            return
        try:
            self.add_final_time_entry()
        finally:
            self.close_files()

    def __repr__(self) -> str:
        return f"<LogSegment {self.base_offset} {self.size} B {self.path}>"


def open_index(kind: type[X], base_offset: int, max_index_size: int, fs: FileSystem, path: str) -> X:
    """The index at `path`, made where it is missing."""
    return kind(path, base_offset, max_index_size, fs=fs)
