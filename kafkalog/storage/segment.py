"""One segment of a log: a `.log` file with its two indexes.

The `.log` file holds consecutive batches; the indexes are sparse and derived from it (format.md section 7), so a
lost one is rebuilt. The rules of appending are in `_core/log/plan.pyx`; the owner plans, the segment writes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from kafkalog._core.batch.scan import BatchTable, scan
from kafkalog._core.log.index_append import write_indexed
from kafkalog._core.log.plan import AppendPlan, plan_append
from kafkalog._core.log.roll import NO_ROLL, RollRules, SegmentTail
from kafkalog.config.topic import LogConfig
from kafkalog.errors import CorruptIndex, IllegalArgument, SegmentOffsetOverflow
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.file_slice import check_next_offset
from kafkalog.storage.index.aborted_txns import AbortedTxn
from kafkalog.storage.index.abstract_index import IndexEntry
from kafkalog.storage.index.offset_index import OffsetIndex
from kafkalog.storage.index.time_index import TimeIndex
from kafkalog.storage.names import LOG_SUFFIX, base_name
from kafkalog.storage.readable_records import FIRST_WINDOW, SMALL_WINDOW
from kafkalog.storage.segment_files import Indexes, SegmentFiles
from kafkalog.storage.segment_reader import Extent
from kafkalog.storage.time_search import find_offset_by_timestamp
from kafkalog.types import FetchDataInfo, LogOffsetMetadata, OffsetAndTimestamp, TimestampOffset
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.os_errors import os_errors

if TYPE_CHECKING:
    from kafkalog.util.buffers import Data

_LOG: Final = logging.getLogger(__name__)
X = TypeVar("X", OffsetIndex, TimeIndex)

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_LONG_BATCH_BYTES: Final = 8192
"""Above this distance of index entries, batches are long: a search reads only their headers."""
_FIRST_BATCH_BYTES: Final = 4096
NO_TIMESTAMP_YET: Final = 2**63 - 1
"""Value of `first_batch_timestamp` for a segment without a time (SEG-33)."""
NOT_READ: Final = SegmentTail()
"""Tail of a segment that was opened but not prepared for appends."""


class LogSegment(SegmentFiles):
    """An open segment: `records` is its FileRecords, `tail` the state for appends, NOT_READ until prepared.

    Threads: appends, truncation, rename and close need the owner's lock; look-ups and reads may run in parallel.
    """

    __slots__ = (
        "_is_fresh",
        "base_offset",
        "clock",
        "created_ms",
        "index_interval_bytes",
        "is_damaged",
        "max_index_size",
        "roll_jitter_ms",
        "tail",
    )

    def __init__(
        self,
        records: FileRecords,
        index_factory: Callable[[], Indexes],
        base_offset: int,
        config: LogConfig,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(records, index_factory)
        self.base_offset = base_offset
        self.clock = clock
        self.created_ms = clock.milliseconds()
        self.is_damaged = False  # recovery left damage in it: its indexes may lack entries
        self.index_interval_bytes: int = config.index_interval_bytes
        self.max_index_size: int = config.segment_index_bytes
        self.roll_jitter_ms = config.random_jitter_ms()
        self.tail = NOT_READ
        self._is_fresh = False  # new, and its indexes are not created yet

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
        preallocated_bytes: int = 0,
        suffix: str = "",
    ) -> LogSegment:
        """Open the segment at `base_offset`; create a missing `.log` file. The first use creates the indexes.

        StorageError names the file the system refused.
        """
        stem = os.path.join(os.fspath(directory), base_name(base_offset))
        records = FileRecords.open(
            stem + LOG_SUFFIX + suffix,
            fs=fs,
            file_already_exists=file_already_exists,
            preallocated_bytes=preallocated_bytes,
        )
        index_factory = partial(index_files, stem, suffix, base_offset, config.segment_index_bytes, fs)
        segment = cls(records, index_factory, base_offset, config, clock)
        segment._index_files()  # it is about to be written or scanned
        return segment

    # Properties

    @property
    def last_known_offset(self) -> int:
        """Last offset, if this process wrote or read it; -1 if not, or if the segment is empty."""
        return self.tail.last_offset

    @property
    def end_offset(self) -> int:
        """Offset behind the last batch, the base offset if there is none; for a segment prepared for appends."""
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
        """Prepare the segment for appends; return the next offset.

        The indexes are opened (created, if missing) at their full length again, and the last offset is looked up. A
        full scan passes its result as `known`, which saves that (bytes since the last index entry then count from
        now on: SEG-36).
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
        """Prepare a new segment for appends; the first append creates its indexes, as in the reference."""
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
        """Return the limits of this segment under `config`; its jitter is fixed when it begins (LOG-15)."""
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
        """Raise SegmentOffsetOverflow if the offset cannot be stored relative to the base (SEG-2)."""
        if not 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET:
            raise SegmentOffsetOverflow(
                f"offset {offset} does not fit a segment that begins at {self.base_offset}",
                path=self.path,
                offset=offset,
            )

    def append(self, data: Data, table: BatchTable | None = None) -> AppendPlan:
        """Append every complete batch of `data`, keeping its offsets. Return the AppendPlan.

        SegmentOffsetOverflow if a batch does not fit; StorageError if the disk refuses. Nothing is appended then.
        The segment's limits are not checked here; the owner does that.
        """
        if table is None:
            table = scan(data, check_crc=False)
        plan = self.plan(table)
        self.write(memoryview(data)[: table.valid_bytes], plan)
        return plan

    def plan(self, table: BatchTable) -> AppendPlan:
        """Plan the append of the batches of `table`, ignoring the segment's limits; change nothing.

        SegmentOffsetOverflow if a batch does not fit.
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

    def add_entries(self, entries: list[IndexEntry]) -> None:
        """Add index entries for data already written; a StorageError leaves some missing and the segment unusable."""
        if self._is_fresh:
            self.open_indexes()
        if entries:
            self._indexes_changed = True
            self.offset_index.extend(entries)
            self.time_index.extend(entries)

    def write(self, data: Data, plan: AppendPlan) -> None:
        """Append the bytes that `plan` describes, then its index entries; any error leaves the segment unchanged.

        Space for the entries is reserved first: a full disk is detected before a byte of data is written.
        """
        if self._is_fresh:
            self.open_indexes()
        if plan.entries is not None:
            return write_indexed(self, partial(self.records.append, data), plan.entries, plan.tail)
        self.records.append(data)
        self.tail = plan.tail

    def revert(self, tail: SegmentTail) -> None:
        """Restore the segment to the state of `tail`, removing the remains of a failed append (idempotent)."""
        if self.records.size > tail.size:
            self.records.truncate_to(tail.size)
        keep = tail.last_offset + 1 if tail.last_offset >= 0 else self.base_offset
        self.offset_index.truncate_to(keep)
        self.time_index.truncate_to(keep)
        self.txn_index.truncate_to(keep)
        self.tail = tail

    def add_aborted(self, entry: AbortedTxn) -> None:
        """Add an aborted transaction whose marker is in this segment."""
        self._indexes_changed = True
        self.txn_index.append(entry)
        self._indexes_changed = True  # again: a concurrent flush may have synced only the older entries

    # Reading

    def translate_offset(self, offset: int) -> tuple[int, int, int] | None:
        """Return (base offset, position, size) of the first batch that ends at or above `offset`; None if none.

        The walk over headers begins at the position from the index.
        """
        index, records = self.offset_index, self.records
        position = index.lookup(offset).position
        if position > records.size:
            position = 0  # the index is damaged
        window = SMALL_WINDOW if index.entries * _LONG_BATCH_BYTES < records.size else FIRST_WINDOW
        return records.search_for_offset(offset, position, window)

    def read(
        self, start_offset: int, max_size: int, max_position: int | None = -1, min_one_message: bool = False
    ) -> FetchDataInfo | None:
        """Return the data from the batch that holds `start_offset` on (or the next one), at most `max_size` bytes.

        None if the segment ends below the offset. `max_position` bounds the bytes (-1: the segment's end; None:
        unknown, so the data is empty). With `min_one_message` the first batch is returned whole, whatever its size.
        The metadata gives the position of the batch found (SEG-8 to SEG-10). IllegalArgument for a negative
        `max_size`.
        """
        if max_size < 0:
            raise IllegalArgument(f"the size of a read cannot be negative: {max_size}", path=self.path)
        found = self.translate_offset(start_offset)
        if found is None:
            return None
        base_offset, position, size = found
        place = LogOffsetMetadata(base_offset, self.base_offset, position)
        limit = size if min_one_message and size > max_size else max_size
        if limit == 0 or max_position is None:
            return FetchDataInfo(place, self.records.slice(position, 0))
        end = self.records.size if max_position < 0 else max_position
        return FetchDataInfo(
            place, self.records.slice(position, max(0, min(end - position, limit))), limit < size
        )

    def read_next_offset(self) -> int:
        """Return the offset after the last batch; the base offset if there is none (SEG-19).

        CorruptRecord for an impossible size, and for a last offset with none after it.
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
        """Return the largest timestamp and its batch's last offset, from the index's end or a later batch (SEG-14)."""
        entry = self.time_index.last_entry
        position = self.offset_index.lookup(entry.offset).position
        after = self.records.largest_timestamp_after(position)
        return after if after.timestamp > entry.timestamp else entry

    @property
    def max_timestamp_so_far(self) -> int:
        """Largest timestamp of a batch here, -1 if none has one; for a closed segment from its last index entry."""
        tail = self.tail
        return tail.max_timestamp if tail is not NOT_READ else self.time_index.last_entry.timestamp

    @property
    def largest_timestamp(self) -> int:
        """Largest timestamp in ms; the file's modification time if no batch has one (SEG-15)."""
        largest = self.max_timestamp_so_far
        return largest if largest >= 0 else self.records.last_modified_ms()

    @property
    def first_batch_timestamp(self) -> int:
        """Largest timestamp of the first batch; 2^63-1 if there is none (SEG-33)."""
        first = self._first_timestamp() if self.tail is NOT_READ else self.tail.rolling_timestamp
        return first if first >= 0 else NO_TIMESTAMP_YET

    def find_offset_by_timestamp(
        self, timestamp: int, start_offset: int, bound: int | None = None
    ) -> OffsetAndTimestamp | None:
        """Return the first record at or after the time whose offset is at least `start_offset` (SEG-18).

        `bound` is the base offset of the next segment; raises as `time_search` does.
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
        """Return the first record with the largest timestamp; None if no batch has one."""
        tail = self.tail
        if tail is not NOT_READ:
            largest = TimestampOffset(tail.max_timestamp, tail.offset_of_max_timestamp)
        else:
            largest = self.time_index.last_entry
        if largest.timestamp < 0:
            return None
        position = self.offset_index.lookup(largest.offset).position
        return self.records.search_for_timestamp(largest.timestamp, position, self.base_offset)

    # Truncating, closing, deleting

    def truncate_to(self, offset: int) -> int:
        """Remove all batches that end at or above `offset`, prepare for appends, and return the bytes cut.

        A batch that holds the offset in its middle is removed whole (SEG-11). The indexes have their full length
        afterwards; a segment without batches restarts its age (SEG-13).
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
        """Create both indexes of a new segment at their full length; entries of an earlier attempt are dropped."""
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
            if not index.resize(length) and index.read_only:  # the length is unchanged: remove the write protection
                index.trim_to_valid_size()
                index.resize(length)

    def add_final_time_entry(self) -> None:
        """Write the largest timestamp into the slot that the time index reserves for it."""
        tail = self.tail
        if tail.max_timestamp < 0:
            return  # nothing was appended here: the index stays closed
        index = self.time_index
        last = index.last_entry
        # an index written before the data was damaged may have more than the data shows
        if tail.max_timestamp >= last.timestamp and tail.offset_of_max_timestamp >= last.offset:
            before = index.entries
            index.maybe_append(tail.max_timestamp, tail.offset_of_max_timestamp, skip_full_check=True)
            if index.entries != before:
                self._indexes_changed = True

    def on_become_inactive(self) -> None:
        """Seal a rolled segment: add the final time entry, trim the files, make the indexes read-only (SEG-28)."""
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

    @contextmanager
    def finished_files(self) -> Iterator[None]:
        """Keep the files as `close` leaves them for the block, with the final time entry and no free space."""
        self.add_final_time_entry()
        self.make_indexes()
        self.records.trim()
        try:
            for index in (self.offset_index, self.time_index):
                index.trim_to_valid_size()
            yield
        finally:
            if not self._is_fresh:
                self.become_active()

    def sanity_check(self) -> None:
        """Raise CorruptIndex if an index is inconsistent (SEG-29)."""
        self.offset_index.sanity_check()
        self.time_index.sanity_check()

    def close(self) -> None:
        """Add the final time entry, then trim and close all files, even if one fails. A second call does nothing."""
        if self.records.closed:
            return
        try:
            self.add_final_time_entry()
        finally:
            self.close_files()

    def __repr__(self) -> str:
        return f"<LogSegment {self.base_offset} {self.size} B {self.path}>"


def index_files(stem: str, suffix: str, base_offset: int, max_index_size: int, fs: FileSystem) -> Indexes:
    """Return the index files of a segment, whose names begin with `stem`; the first use creates a missing one."""
    offsets = partial(open_index, OffsetIndex, base_offset, max_index_size, fs)
    times = partial(open_index, TimeIndex, base_offset, max_index_size, fs)
    return Indexes.at(stem, suffix, base_offset, offsets, times, fs)


def open_index(kind: type[X], base_offset: int, max_index_size: int, fs: FileSystem, path: str) -> X:
    """Open an index, or create it; an empty one replaces a file that is longer than an index can be."""
    try:
        return kind(path, base_offset, max_index_size, fs=fs)
    except CorruptIndex as error:
        _LOG.warning("%s: an empty index replaces it", error)
    with os_errors("delete the index", path):
        fs.unlink_if_exists(path)
    return kind(path, base_offset, max_index_size, fs=fs)
