"""The half of a log that writes records: as a leader, as a follower, and many batches at once.

    scan and check outside the lock -> assign offsets -> producers -> plan -> one write -> index entries -> new state
"""

from __future__ import annotations

from typing import Any

from kafkalog._core.assign import assign
from kafkalog._core.plan import AppendPlan, append_info, first_old_format, place_append, plan_append
from kafkalog._core.producers import ORIGIN_CLIENT
from kafkalog._core.scan import BatchTable, scan
from kafkalog._core.staged import Staged
from kafkalog._core.state import LogState
from kafkalog.errors import KafkalogError
from kafkalog.storage.aborted_txns import AbortedTxn
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
    has_batches,
    no_offsets_left,
    placed_info,
)
from kafkalog.storage.log_replace import LogReplacer
from kafkalog.storage.producer_state import VerificationGuard
from kafkalog.storage.read import locate_or_offset_only
from kafkalog.storage.segment import LogSegment
from kafkalog.types import LogAppendInfo
from kafkalog.util import events


class LogAppender(LogReplacer):
    """Appending to a log; rules as for `LogBase`."""

    __slots__ = ()

    def append_as_leader(
        self,
        buffer: bytearray,
        *,
        leader_epoch: int | None = None,
        origin: Origin = "client",
        table: BatchTable | None = None,
        guard: VerificationGuard | None = None,
        epoch_bumps: bool = False,
        any_base_offset: bool = False,
    ) -> LogAppendInfo:
        """What was appended: the one batch in `buffer`, with offsets from the log end on (LOG-2).

        That is a v2 batch, a wrapper, or plain messages of format v0 or v1; what has another format or codec than the
        log's is converted and compressed anew. A v2 batch that is kept is edited in place, which needs a writable
        buffer: base offset, epoch, and times where the topic stamps them. A batch that is cut off is left out; without
        a whole one nothing happens (LOG-5). `table` saves scanning it again. A raft leader's batches keep their
        offsets. A batch that its producer sent before is not written again: the result has its first offsets (LOG-60).
        `guard` is what `maybe_start_verification` gave; with `epoch_bumps` markers carry a bumped epoch (transaction
        version 2). With `any_base_offset` that of a client's batch means nothing. Errors of the checks (format.md
        section 11), then StorageError, after which the log is as it was, or takes no more writes where that could not
        be done.
        """
        if table is None:
            table = scan(buffer)
        now_ms = self._milliseconds()
        epoch = self.leader_epoch if leader_epoch is None else leader_epoch
        limits = self._limits
        data: Any = buffer
        source = None
        if origin != "client" or not limits.takes(buffer, table, now_ms, any_base_offset):
            if not has_batches(table):
                return NOTHING_APPENDED
            if origin == "raft_leader":
                check_raft_append(table, limits, epoch)
                return self.append_as_follower(buffer, epoch)
            source = table
            checked = check_leader_append(
                buffer, table, limits, origin, now_ms, self.validator_metrics, any_base_offset=any_base_offset
            )
            data, table = checked.data, checked.table
            check_append_size(table.valid_bytes, limits.segment_size)
        given_epoch = table.last_leader_epoch
        append_time = -1 if limits.check_times else now_ms
        try:
            with self._lock:
                state = self._ready_locked()
                first_offset = state.log_end_offset
                tail, rules = self._active.tail, self._rules
                plan = place_append(data, table, first_offset, epoch, append_time, tail, rules, now_ms)
                if epoch > state.leader_epoch:
                    self._begin_epoch_locked(epoch, first_offset)
                duplicate = self._append_locked(data, table, plan, now_ms, first_offset, origin, guard, epoch_bumps)
        except ValueError as error:
            if isinstance(error, KafkalogError):
                raise
            raise no_offsets_left(error, self._state.log_end_offset) from error
        finally:
            if self._chores:
                self._do_chores_after_append()
        if self._flush_messages:
            self._flush_if_due()
        if duplicate is not None:
            return placed_info(source or table, duplicate, given_epoch, state.log_start_offset)
        return append_info(table, first_offset, given_epoch, append_time, state.log_start_offset, source)

    def begin_epoch(self, leader_epoch: int) -> None:
        """Let an epoch above the log's begin at the log end, in its file as well, before its first append has to.

        StorageError.
        """
        with self._lock:
            state = self._ready_locked()
            if leader_epoch > state.leader_epoch:
                self._begin_epoch_locked(leader_epoch, state.log_end_offset)
                self._state = state.replace(leader_epoch=leader_epoch)
        self._do_chores()

    def append_as_follower(self, buffer: Any, leader_epoch: int) -> LogAppendInfo:
        """What was appended: the batches of `buffer`, with the offsets, epochs and times they have (LOG-3).

        Batches from the first one with an epoch above `leader_epoch` on are left out (LOG-81).
        UnexpectedAppendOffset below the log end, OffsetsOutOfOrder, CorruptRecord, RecordBatchTooLarge, StorageError.
        """
        table = scan(buffer)
        rows = follower_rows(table, leader_epoch) if has_batches(table) else 0
        if rows == 0:
            return NOTHING_APPENDED
        if rows < table.count:
            table = scan(buffer, 0, table.position(rows))
        size = table.valid_bytes
        check_append_size(size, self._config.segment_size)
        data: Any = buffer if size == len(buffer) else memoryview(buffer)[:size]
        now_ms = self._milliseconds()
        first_offset = first_offset_of(table)
        try:
            with self._lock:
                state = self._ready_locked()
                check_follower_offsets(table, state.log_end_offset)
                old_format = first_old_format(table, table.count) >= 0
                if old_format or table.last_leader_epoch > state.leader_epoch:
                    self._begin_epochs_locked(table)
                plan = plan_append(table, 0, self._active.tail, self._rules, now_ms, True, False)
                self._append_locked(data, table, plan, now_ms, base_for_roll(first_offset, table.last_offset))
                if old_format:
                    self._state = self._state.replace(leader_epoch=self._epochs.latest_epoch)
        finally:
            if self._chores:
                self._do_chores_after_append()
        if self._flush_messages:
            self._flush_if_due()
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
        if not has_batches(table):
            return NOTHING_APPENDED
        now_ms = self._milliseconds()
        limits = self._limits
        source = table
        if check_records:
            buffer, table = check_group(buffer, table, limits, now_ms, self.validator_metrics)
        check_built_group(table, limits)
        epoch = self.leader_epoch
        append_time = -1 if limits.check_times else now_ms
        try:
            with self._lock:
                state = self._ready_locked()
                first_offset = state.log_end_offset
                assign(buffer, table, first_offset, epoch, append_time)
                if epoch > state.leader_epoch:
                    self._begin_epoch_locked(epoch, first_offset)
                place = None
                view = memoryview(buffer)
                done = self._append_group_locked(view, table, now_ms)
                if done < table.count:
                    place = self._append_singly_locked(view, table, now_ms, done)
        except ValueError as error:
            if isinstance(error, KafkalogError):
                raise
            raise no_offsets_left(error, self._state.log_end_offset) from error
        finally:
            if self._chores:
                self._do_chores_after_append()
        if self._flush_messages:
            self._flush_if_due()
        if place is not None:
            return placed_info(source, (*place, append_time), -1, state.log_start_offset)
        return append_info(table, first_offset, -1, append_time, state.log_start_offset, source)

    def rows_to_roll(self, buffer: Any, table: BatchTable, row: int) -> int:
        """Up to which row batches from `row` on would go into the active segment; `row` where the next one rolls.

        For one who has to sync before a roll: a new segment may outlive what was not synced in the one before it.
        `buffer` is that of `append_batches`; its offsets are set as they would be.
        """
        now_ms = self._milliseconds()
        with self._lock:
            state = self._ready_locked()
            append_time = -1 if self._limits.check_times else now_ms
            assign(buffer, table, state.log_end_offset, self.leader_epoch, append_time, first=row)
            tail = self._active.tail
            plan = plan_append(table, row, tail, self._rules, now_ms, False, not tail.size)
            return row if plan.roll_reason else plan.stop_row

    def _append_locked(
        self,
        data: Any,
        table: BatchTable,
        plan: AppendPlan,
        now_ms: int,
        roll_base: int,
        origin: Origin = "replication",
        guard: VerificationGuard | None = None,
        epoch_bumps: bool = False,
    ) -> tuple[int, int, int] | None:
        """Write all batches of `table` as the one append that `plan` is, into a new segment where it asks for one.

        What the producers' rules refuse is refused after the roll, as in the reference. A batch that was written
        before gives its (first offset, last offset, timestamp), and is not written again.
        """
        segment = self._active
        if plan.roll_reason:
            segment = self._roll_locked(roll_base)
            plan = plan_append(table, 0, segment.tail, self._rules, now_ms, True, True)
            if plan.roll_reason:
                segment.ensure_offset_in_range(table.last_offset)
        staged: Staged | None = None
        if table.has_producers:
            manager = self._producers
            if origin == "client":
                staged = manager.producers.stage_simple(table)
            if staged is None:
                staged = manager.stage(table, 0, table.count, data, origin=origin, guard=guard, epoch_bumps=epoch_bumps)
                if staged is not None and staged.duplicate is not None:
                    return staged.duplicate
        state = self._state
        try:
            segment.write(data, plan)
            after = state.appended(plan, self._follows)
            if staged is None:
                self._state = after if after.first_unstable_offset < 0 else self._with_unstable_locked(after)
            elif staged.is_simple:
                self._staged = staged
                self._state = after
                manager.producers.commit(staged, after.high_watermark)
                manager.map_end_offset = staged.end_offset
                self._staged = None
            else:
                self._publish_staged_locked(segment, after, staged)
            if events.appends_wanted:
                self._tell_append_locked(plan)
        except BaseException as error:
            self._undo_write_locked(state, plan, error)
            raise
        return None

    def _tell_append_locked(self, plan: AppendPlan) -> None:
        place = {"first_offset": plan.first_offset, "last_offset": plan.last_offset}
        self._tell_locked("append", **place, size=plan.stop_byte - plan.start_byte)

    def _publish_staged_locked(self, segment: LogSegment, state: LogState, staged: Staged) -> None:
        """Publish an append of producers: aborted transactions into the index first, then all at once, then memory.

        An interrupt between the last two is made up for before the next step (`_ready_locked`).
        """
        producers = self._producers.producers
        if staged.is_plain and not producers.has_transactions:
            self._staged = staged
            self._state = state
            self._apply_staged_locked()
            return
        for txn, stable in producers.completions(staged):
            if txn.is_aborted:
                if not segment.txn_index.count:
                    self._unsynced.entries_changed()
                segment.add_aborted(AbortedTxn(0, txn.producer_id, txn.first_offset, txn.last_offset, stable))
        unstable = producers.first_unstable_after(staged, state.high_watermark)
        if unstable >= 0 and unstable < state.log_start_offset:
            unstable = locate_or_offset_only(state, state.log_start_offset).message_offset
        self._staged = staged
        self._state = (
            state if unstable == state.first_unstable_offset else state.replace(first_unstable_offset=unstable)
        )
        self._apply_staged_locked()

    def _append_group_locked(self, view: memoryview, table: BatchTable, now_ms: int) -> int:
        """Write batch by batch as far as decisions go, run by run as far as writes go.

        The rows that were written: not all where the next run holds a batch that its producer's rules refuse, or one
        that was written before. None of that run is.
        """
        row, rows, fresh = 0, table.count, False
        staged: Staged | None = None
        while row < rows:
            segment = self._active
            plan = plan_append(table, row, segment.tail, self._rules, now_ms, False, fresh)
            if plan.roll_reason:
                if fresh:
                    segment.ensure_offset_in_range(table.last_offset_of(row))
                self._roll_locked(table.base_offset(row))
                fresh = True
                continue
            if table.has_producers:
                staged = self._producers.producers.stage(table, row, plan.stop_row, view, 0, ORIGIN_CLIENT)
                if staged is not None and staged.fault:
                    return row
            state = self._state
            try:
                segment.write(view[plan.start_byte : plan.stop_byte], plan)
                after = state.appended(plan, self._follows)
                if staged is None:
                    self._state = after if after.first_unstable_offset < 0 else self._with_unstable_locked(after)
                else:
                    self._publish_staged_locked(segment, after, staged)
                if events.appends_wanted:
                    self._tell_append_locked(plan)
            except BaseException as error:
                self._undo_write_locked(state, plan, error)
                raise
            row, fresh = plan.stop_row, False
        return rows

    def _append_singly_locked(self, view: memoryview, table: BatchTable, now_ms: int, row: int) -> tuple[int, int]:
        """(first, last offset) of a group of which the batches from `row` on are written one by one.

        Each is checked against those before. One that was written before is left out, and counts with the offsets
        it has.
        """
        first_offset, last_offset = table.base_offset(0), -1
        for this in range(row, table.count):
            at = table.position(this)
            data = bytearray(view[at : at + table.size(this)])
            single = scan(data, check_crc=False)
            begin = self._state.log_end_offset
            plan = place_append(data, single, begin, self.leader_epoch, -1, self._active.tail, self._rules, now_ms)
            before = self._append_locked(data, single, plan, now_ms, begin, "client")
            begin, last_offset = (begin, self._state.log_end_offset - 1) if before is None else before[:2]
            first_offset = begin if this == 0 else first_offset
        return first_offset, last_offset

    def _begin_epochs_locked(self, table: BatchTable) -> None:
        """Note the epochs of a follower's batches; v0 and v1 have none, and end what was known (LOG-59)."""
        for row in range(table.count):
            if table.magic(row) < 2:
                self._epochs.clear()
                self._chores.append(self._write_epochs)
            elif table.leader_epoch(row) > self._epochs.latest_epoch:
                self._begin_epoch_locked(table.leader_epoch(row), table.base_offset(row))

    def _begin_epoch_locked(self, epoch: int, first_offset: int) -> None:
        """Note where an epoch begins; its file is written after the lock is released."""
        self._epochs.assign(epoch, first_offset)
        self._chores.append(self._write_epochs)

