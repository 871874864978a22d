"""One partition's log: the owner of its segments, its offsets and its lock.

    append   scan and check outside the lock -> assign offsets -> plan -> one write -> index entries -> new state
    read     one state, no lock -> bound -> segment -> index -> header walk -> a slice (no record byte is read)

What is decided is decided by pure functions (`append`, `read`, `roll`, `truncate`, `lookup`, `log_state`); this file
holds the state and the order of the steps. `log_owner.py` has the parts that change segments.
"""

from __future__ import annotations

import os
from typing import Any

from kafkalog._core.assign import assign
from kafkalog._core.plan import append_info, plan_append
from kafkalog._core.scan import BatchTable, scan
from kafkalog._core.txns import AbortedRanges
from kafkalog.config import LogConfig
from kafkalog.errors import IllegalArgument, KafkalogError
from kafkalog.storage.append import (
    NOTHING_APPENDED,
    Origin,
    base_for_roll,
    check_append_size,
    check_built_group,
    check_follower_offsets,
    check_group,
    check_leader_append,
    check_raft_append,
    first_offset_of,
    follower_rows,
    sound_client_batch,
    unreadable,
)
from kafkalog.storage.leader_epoch import LeaderEpochCache
from kafkalog.storage.loader import load_segments
from kafkalog.storage.log_owner import LogOwner
from kafkalog.storage.log_state import (
    LogState,
    high_watermark_incremented,
    high_watermark_resolved,
    high_watermark_updated,
    started,
)
from kafkalog.storage.lookup import bounded, offset_for_time
from kafkalog.storage.read import locate_or_offset_only, read_state
from kafkalog.storage.segment import LogSegment
from kafkalog.storage.transactions import AbortedTransaction, Transactions
from kafkalog.types import FetchDataInfo, Isolation, LogAppendInfo, LogOffsetMetadata, OffsetAndTimestamp
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.scheduler import Schedules


class UnifiedLog(LogOwner):
    """The log in one partition directory, open for reading and writing; its owner holds the directory's lock.

    Threads: all methods, from any thread. Writers take one lock; readers take one state and no lock.
    """

    __slots__ = ("_transactions",)
    _transactions: Transactions

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        config: LogConfig,
        *,
        fs: FileSystem = OS,
        clock: Clock = SYSTEM_CLOCK,
        scheduler: Schedules | None = None,
        log_start_offset: int = 0,
        recovery_point: int | None = None,
        leader_epoch: int = 0,
        high_watermark_follows_end: bool = True,
    ) -> UnifiedLog:
        """The log of an existing directory: one that was closed well, or one without segments, which gets its first.

        `recovery_point` None says that everything in it is on disk. `scheduler` None leaves rolled segments to the
        next `flush` and deletes files at once. Without `high_watermark_follows_end` the high watermark moves only
        when it is told to. Errors as `load_segments`, and CorruptCheckpoint for the epochs.
        """
        folder = os.fspath(directory)
        segments, next_offset = load_segments(folder, config, fs, clock, log_start_offset)
        try:
            epochs = LeaderEpochCache.open(folder, fs=fs)
            epochs.truncate_from_end(next_offset)
            state = started(
                segments,
                log_start_offset=max(log_start_offset, segments[0].base_offset),
                log_end_offset=next_offset,
                recovery_point=next_offset if recovery_point is None else recovery_point,
                high_watermark=next_offset if high_watermark_follows_end else None,
                leader_epoch=epochs.latest_epoch,
            )
            log = cls(
                folder,
                config,
                state,
                epochs,
                fs=fs,
                clock=clock,
                scheduler=scheduler,
                leader_epoch=leader_epoch,
                high_watermark_follows_end=high_watermark_follows_end,
            )
            log._transactions = Transactions(folder, fs=fs)
            return log
        except BaseException:
            for segment in segments:
                segment.close_handlers()
            raise

    # Appending

    def append_as_leader(
        self,
        buffer: bytearray,
        *,
        leader_epoch: int | None = None,
        origin: Origin = "client",
        table: BatchTable | None = None,
    ) -> LogAppendInfo:
        """What was appended: the one batch in `buffer`, with offsets from the log end on (LOG-2).

        That is a v2 batch, a wrapper, or plain messages of format v0 or v1; what has another format or codec than the
        log's is converted and compressed anew. A v2 batch that is kept is edited in place, which needs a writable
        buffer: base offset, epoch, and times where the topic stamps them. A batch that is cut off is left out; without
        a whole one nothing happens (LOG-5). `table` saves scanning it again. A raft leader's batches keep their
        offsets. Errors of the checks (format.md section 11), then StorageError, after which the log is as it was, or
        takes no more writes where that could not be done.
        """
        if table is None:
            table = scan(buffer)
        if table.stop_reason > 1:
            raise unreadable(table)
        if table.count == 0:
            return NOTHING_APPENDED
        now_ms = self._milliseconds()
        epoch = self.leader_epoch if leader_epoch is None else leader_epoch
        limits = self._limits
        size = table.valid_bytes
        source = None
        data: Any
        if origin == "client" and sound_client_batch(buffer, table, limits, now_ms):
            data = buffer if size == len(buffer) else memoryview(buffer)[:size]
        elif origin == "raft_leader":
            check_raft_append(table, limits, epoch)
            return self.append_as_follower(buffer, epoch)
        else:
            source = table
            checked = check_leader_append(buffer, table, limits, origin, now_ms, self.validator_metrics)
            data, table = checked.data, checked.table
            size = table.valid_bytes
        if size > limits.segment_size:
            check_append_size(size, limits.segment_size)
        given_epoch = table.last_leader_epoch
        append_time = -1 if limits.check_times else now_ms
        with self._lock:
            state = self._ready_locked()
            first_offset = state.log_end_offset
            assign(data, table, first_offset, epoch, append_time)
            if epoch > state.leader_epoch:
                self._begin_epoch_locked(epoch, first_offset)
            self._append_locked(data, table, now_ms, first_offset)
        if self._chores:
            self._do_chores_after_append()
        return append_info(table, first_offset, given_epoch, append_time, state.log_start_offset, source)

    def append_as_follower(self, buffer: Any, leader_epoch: int) -> LogAppendInfo:
        """What was appended: the batches of `buffer`, with the offsets, epochs and times they have (LOG-3).

        Batches from the first one with an epoch above `leader_epoch` on are left out (LOG-81).
        UnexpectedAppendOffset below the log end, OffsetsOutOfOrder, CorruptRecord, RecordBatchTooLarge, StorageError.
        """
        table = scan(buffer)
        if table.stop_reason > 1:
            raise unreadable(table)
        rows = follower_rows(table, leader_epoch)
        if rows == 0:
            return NOTHING_APPENDED
        if rows < table.count:
            table = scan(buffer, 0, table.position(rows))
        size = table.valid_bytes
        check_append_size(size, self._config.segment_size)
        data: Any = buffer if size == len(buffer) else memoryview(buffer)[:size]
        now_ms = self._milliseconds()
        first_offset = first_offset_of(table)
        with self._lock:
            state = self._ready_locked()
            check_follower_offsets(table, state.log_end_offset)
            if table.last_leader_epoch > state.leader_epoch:
                self._begin_epochs_locked(table)
            self._append_locked(data, table, now_ms, base_for_roll(first_offset, table.last_offset))
        if self._chores:
            self._do_chores_after_append()
        return append_info(table, first_offset, table.last_leader_epoch, -1, state.log_start_offset)

    def append_batches(
        self, buffer: Any, table: BatchTable | None = None, *, check_records: bool = True
    ) -> LogAppendInfo:
        """What was appended: every batch in `buffer` as an append of its own, whatever base offset it has.

        All are checked before the first is written. Segments and indexes come out as for single appends, but
        batches that go to one segment are written in one call. Where a write fails, the batches before it stay; the
        error's `offset` is the first offset that was not written. What has another format or codec than the log's is
        converted as for `append_as_leader`. `check_records` False takes the batches as they are: for a caller that
        has just built them.
        """
        if table is None:
            table = scan(buffer)
        if table.stop_reason > 1:
            raise unreadable(table)
        if table.count == 0:
            return NOTHING_APPENDED
        now_ms = self._milliseconds()
        limits = self._limits
        source = table
        if check_records:
            buffer, table = check_group(buffer, table, limits, now_ms, self.validator_metrics)
        check_built_group(table, limits)
        epoch = self.leader_epoch
        append_time = -1 if limits.check_times else now_ms
        with self._lock:
            state = self._ready_locked()
            first_offset = state.log_end_offset
            assign(buffer, table, first_offset, epoch, append_time)
            if epoch > state.leader_epoch:
                self._begin_epoch_locked(epoch, first_offset)
            self._append_group_locked(memoryview(buffer), table, now_ms)
        if self._chores:
            self._do_chores_after_append()
        return append_info(table, first_offset, -1, append_time, state.log_start_offset, source)

    def _append_locked(self, data: Any, table: BatchTable, now_ms: int, roll_base: int) -> None:
        """Write all batches of `table` as one append, into a new segment where the active one does not take them."""
        segment = self._active
        plan = plan_append(table, 0, segment.tail, self._rules, now_ms, True, False)
        if plan.roll_reason:
            segment = self._roll_locked(roll_base)
            plan = plan_append(table, 0, segment.tail, self._rules, now_ms, True, True)
            if plan.roll_reason:
                segment.ensure_offset_in_range(table.last_offset)
        state = self._state
        try:
            segment.write(data, plan)
            self._state = state.appended(plan, self._follows)
        except BaseException as error:
            self._undo_write_locked(state, plan, error)
            raise

    def _append_group_locked(self, view: memoryview, table: BatchTable, now_ms: int) -> None:
        """Write batch by batch as far as decisions go, run by run as far as writes go."""
        row, rows, fresh = 0, table.count, False
        while row < rows:
            segment = self._active
            plan = plan_append(table, row, segment.tail, self._rules, now_ms, False, fresh)
            if plan.roll_reason:
                if fresh:
                    segment.ensure_offset_in_range(table.last_offset_of(row))
                self._roll_locked(table.base_offset(row))
                fresh = True
                continue
            state = self._state
            try:
                segment.write(view[plan.start_byte : plan.stop_byte], plan)
                self._state = state.appended(plan, self._follows)
            except BaseException as error:
                self._undo_write_locked(state, plan, error)
                raise
            row, fresh = plan.stop_row, False

    def _begin_epochs_locked(self, table: BatchTable) -> None:
        for row in range(table.count):
            if table.leader_epoch(row) > self._epochs.latest_epoch:
                self._begin_epoch_locked(table.leader_epoch(row), table.base_offset(row))

    def _begin_epoch_locked(self, epoch: int, first_offset: int) -> None:
        """Note where an epoch begins; its file is written after the lock is released."""
        self._epochs.assign(epoch, first_offset)
        self._chores.append(self._epochs.write_if_changed)

    # Reading

    def read(
        self,
        start_offset: int,
        max_length: int,
        isolation: Isolation = "log_end",
        min_one_message: bool = True,
    ) -> FetchDataInfo:
        """The data from `start_offset` on, from one segment, at most `max_length` bytes (LOG-20 to LOG-25).

        With `min_one_message` the first batch comes whole, whatever its size. `isolation` bounds what is seen: the
        log end, the high watermark, or the last stable offset. OffsetOutOfRange outside log start ... log end,
        IllegalArgument for a negative length, LogClosed.
        """
        while True:
            cuts = self._cuts
            try:
                state = self._state
                if isolation == "log_end":
                    found = read_state(state, start_offset, max_length, state.end_metadata, min_one_message)
                else:
                    bound = self._bound(isolation)
                    state = self._state
                    committed = isolation == "committed"
                    found = read_state(state, start_offset, max_length, bound, min_one_message, committed)
                    if committed and found.records.size:
                        found.aborted_transactions = self._aborted_in(state, found)
            except KafkalogError:
                self._check_readable()
                if not self._has_cut(cuts):
                    raise
                continue
            self._check_readable()
            if cuts == self._cuts and not cuts & 1 or not self._has_cut(cuts):
                return found

    def _check_readable(self) -> None:
        """LogClosed after `close`: asked after a read, for a file of it may have been closed while it went on."""
        if self._health.cause is not None and self._health.closed:
            self._health.check()

    def _has_cut(self, before: int) -> bool:
        """True when the end went back since `cuts` was `before`: what a reader found may be of two logs."""
        return self.settled_cuts() != before

    def _bound(self, isolation: Isolation) -> LogOffsetMetadata:
        """The offset below which a reader sees records, with its place."""
        if isolation not in ("high_watermark", "committed"):
            raise IllegalArgument(
                f"unknown isolation {isolation!r}", hint='"log_end", "high_watermark" or "committed"'
            )
        mark = self.fetch_high_watermark()
        if isolation == "high_watermark":
            return mark
        stable = self.last_stable_offset
        return mark if stable >= mark.message_offset else locate_or_offset_only(self._state, stable)

    def _aborted_in(self, state: LogState, found: FetchDataInfo) -> tuple[AbortedTransaction, ...]:
        where = found.fetch_offset_metadata
        following = state.segments.higher(where.segment_base_offset)
        end = state.log_end_offset if following is None else following.base_offset
        asked = state.segments, state.log_end_offset, state.end_position, where.message_offset, end
        return tuple(self._transactions.aborted_transactions(*asked))

    def aborted_ranges(self, first_offset: int, next_offset: int) -> AbortedRanges:
        """The aborted transactions that records with these offsets, below the last stable one, may belong to."""
        state = self._state
        asked = state.segments, state.log_end_offset, state.end_position, first_offset, next_offset
        return self._transactions.aborted_ranges(*asked)

    def offset_for_time(self, timestamp: int, isolation: Isolation = "log_end") -> OffsetAndTimestamp | None:
        """The first record at or after `timestamp` ms, or what a negative code stands for (LOG-57); None: no such.

        With another `isolation` its bound stands for the log end, and what lies at or after it is not found (PART-8).
        """
        found = self._offset_for_time_settled(timestamp)
        return found if isolation == "log_end" else bounded(found, timestamp, self._bound(isolation).message_offset)

    def _offset_for_time_settled(self, timestamp: int) -> OffsetAndTimestamp | None:
        while True:
            cuts = self._cuts
            try:
                found = self._offset_for_time(self._state, timestamp)
            except KafkalogError:
                self._check_readable()
                if not self._has_cut(cuts):
                    raise
                continue
            self._check_readable()
            if cuts == self._cuts and not cuts & 1 or not self._has_cut(cuts):
                return found

    def _offset_for_time(self, state: LogState, timestamp: int) -> OffsetAndTimestamp | None:
        if timestamp >= 0:
            return offset_for_time(state, timestamp, -1, -1)
        epochs = self._epochs
        return offset_for_time(state, timestamp, epochs.epoch_for(state.log_start_offset), epochs.latest_epoch)

    def convert_to_offset_metadata(self, offset: int) -> LogOffsetMetadata:
        """The place of the batch that holds `offset`, or the offset alone where it is not in the log (LOG-85)."""
        return locate_or_offset_only(self._state, offset)

    # High watermark

    def fetch_high_watermark(self) -> LogOffsetMetadata:
        """The high watermark with its place; one without is looked up, and replaced by what is found (LOG-29)."""
        state = self._state
        if state.high_watermark_base < 0:
            with self._lock:
                state = self._state
                if state.high_watermark_base < 0:
                    mark = locate_or_offset_only(state, state.high_watermark)
                    self._state = state = high_watermark_resolved(state, mark)
        return state.high_watermark_metadata

    def update_high_watermark(self, mark: int | LogOffsetMetadata) -> int:
        """The high watermark, moved to `mark` within log start ... log end; it may go down (LOG-27)."""
        place = mark if isinstance(mark, LogOffsetMetadata) else LogOffsetMetadata(mark)
        with self._lock:
            self._state = state = high_watermark_updated(self._state, place)
        return state.high_watermark

    def maybe_increment_high_watermark(self, mark: LogOffsetMetadata) -> LogOffsetMetadata | None:
        """The old high watermark when it grew, or moved to a newer segment, else None (LOG-27).

        IllegalArgument above the log end.
        """
        old = self.fetch_high_watermark()
        with self._lock:
            state = high_watermark_incremented(self._state, mark)
            if state is None:
                return None
            self._state = state
        return old

    # What it is

    @property
    def state(self) -> LogState:
        """All offsets and segments at this moment, immutable."""
        return self._state

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset the next record gets."""
        return self._state.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The offset below which every record is known to be safe."""
        return self._state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided, at most the high watermark (LOG-30, LOG-32)."""
        state = self._state
        first = self._transactions.first_unstable_offset(state.segments, state.log_end_offset, state.end_position)
        if first is None:
            return state.last_stable_offset
        return min(max(first, state.log_start_offset), state.last_stable_offset)

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is on disk."""
        return self._state.recovery_point

    @property
    def segments(self) -> Any:
        """The segments, oldest first, as an immutable map by base offset."""
        return self._state.segments

    @property
    def active_segment(self) -> LogSegment:
        """The segment that takes the appends."""
        return self._active

    @property
    def size(self) -> int:
        """Bytes of record data in all segments."""
        size: int = self._state.segments.size_in_bytes
        return size

    @property
    def leader_epochs(self) -> tuple[tuple[int, int], ...]:
        """(epoch, first offset) of each leader epoch, oldest first."""
        return tuple((entry.epoch, entry.start_offset) for entry in self._epochs.entries)

    @property
    def config(self) -> LogConfig:
        """The settings; a new value counts from the next decision on (LOG-76)."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        with self._lock:
            self._set_config_locked(config)

    def __repr__(self) -> str:
        state = self._state
        return (
            f"<UnifiedLog {self.name} [{state.log_start_offset}, {state.log_end_offset}) hw {state.high_watermark} "
            f"{len(state.segments)} segments{' closed' if self.closed else ''}>"
        )

