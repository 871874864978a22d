"""Writes checked batches to the end of a log.

    producers -> roll or not -> one write -> index entries -> new state
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog._core.batch.ready_batch import ReadyBatch
from kafkalog._core.batch.scan import BatchTable, scan
from kafkalog._core.log.plan import AppendPlan, append_info, place_append, plan_append
from kafkalog._core.log.producer_checks import ORIGIN_CLIENT
from kafkalog._core.log.staged import Staged
from kafkalog.errors import KafkalogError
from kafkalog.storage.append import Origin, no_offsets_left, placed_info
from kafkalog.storage.index.aborted_txns import AbortedTxn
from kafkalog.storage.log_parts.core import LogCore
from kafkalog.storage.log_parts.flusher import LogFlusher
from kafkalog.storage.log_parts.roller import LogRoller
from kafkalog.storage.producer_state import VerificationGuard
from kafkalog.storage.read import locate_or_offset_only
from kafkalog.storage.segment import LogSegment
from kafkalog.types import LogAppendInfo
from kafkalog.util.events import HOOKS

if TYPE_CHECKING:
    from kafkalog.storage.log_state import State
    from kafkalog.util.buffers import Data


class BatchWriter:
    """Writes batches that were already checked."""

    __slots__ = ("_core", "_flusher", "_roller")

    def __init__(self, core: LogCore, flusher: LogFlusher, roller: LogRoller) -> None:
        self._core = core
        self._flusher = flusher
        self._roller = roller

    def append_ready(self, batch: ReadyBatch, epoch: int, now_ms: int) -> LogAppendInfo:
        """Append a batch that a leader takes as it is, in more than one step. Return a LogAppendInfo."""
        data = batch.data if batch.is_built else bytearray(batch.data)
        return self.append_checked(data, scan(data, check_crc=False), epoch, now_ms)

    def append_checked(
        self,
        data: Data,
        table: BatchTable,
        epoch: int,
        now_ms: int,
        *,
        source: BatchTable | None = None,
        origin: Origin = "client",
        guard: VerificationGuard | None = None,
        epoch_bumps: bool = False,
    ) -> LogAppendInfo:
        """Append checked batches; `source` is the table they were built from. Return a LogAppendInfo."""
        core = self._core
        given_epoch = table.last_leader_epoch
        append_time = -1 if core.limits.check_times else now_ms
        try:
            with core.lock:
                state = core.ready_locked()
                first_offset = state.log_end_offset
                tail, rules = core.active.tail, core.rules
                plan = place_append(data, table, first_offset, epoch, append_time, tail, rules, now_ms)
                if epoch > state.leader_epoch:
                    self.begin_epoch_locked(epoch, first_offset)
                duplicate = self.append_locked(data, table, plan, now_ms, first_offset, origin, guard, epoch_bumps)
        except ValueError as error:
            if isinstance(error, KafkalogError):
                raise
            raise no_offsets_left(error, core.state.log_end_offset) from error
        finally:
            if core.after_unlock:
                core.run_after_append()
        if core.flush_messages:
            self._flusher.flush_if_due()
        if duplicate is not None:
            return placed_info(source or table, duplicate, given_epoch, state.log_start_offset)
        return append_info(table, first_offset, given_epoch, append_time, state.log_start_offset, source)

    def append_locked(
        self,
        data: Data,
        table: BatchTable,
        plan: AppendPlan,
        now_ms: int,
        roll_base: int,
        origin: Origin = "replication",
        guard: VerificationGuard | None = None,
        epoch_bumps: bool = False,
    ) -> tuple[int, int, int] | None:
        """Write all batches of `table` as the one append `plan`, into a new segment if it requires one.

        The producers' rules are checked after the roll, as in the reference. For a batch that was already written,
        return its (first offset, last offset, timestamp) and do not write it again.
        """
        core = self._core
        segment = core.active
        if plan.roll_reason:
            segment = self._roller.roll_locked(roll_base)
            plan = plan_append(table, 0, segment.tail, core.rules, now_ms, True, True)
            if plan.roll_reason:
                segment.ensure_offset_in_range(table.last_offset)
        staged: Staged | None = None
        if table.has_producers:
            manager = core.producers
            if origin == "client":
                staged = manager.producers.stage_simple(table)
            if staged is None:
                staged = manager.stage(table, 0, table.count, data, origin=origin, guard=guard, epoch_bumps=epoch_bumps)
                if staged is not None and staged.duplicate is not None:
                    return staged.duplicate
        self._write_locked(segment, data, plan, staged)
        return None

    def _write_locked(self, segment: LogSegment, data: Data, plan: AppendPlan, staged: Staged | None) -> None:
        """Write what `plan` is about and publish it, with the changes of its producers; on an error undo the write."""
        core = self._core
        state = core.state
        try:
            segment.write(data, plan)
            after = state.appended(plan, core.follows)
            if staged is None:
                has_changed = core.unstable_is_stale or after.first_unstable_offset >= 0
                core.state = core.with_unstable_locked(after) if has_changed else after
            else:
                self._publish_staged_locked(segment, after, staged)
            if "append" in HOOKS:
                self._emit_append_locked(plan)
        except BaseException as error:
            core.undo_write_locked(state, plan.first_offset, error)
            raise

    def _emit_append_locked(self, plan: AppendPlan) -> None:
        place = {"first_offset": plan.first_offset, "last_offset": plan.last_offset}
        self._core.emit_locked("append", **place, size=plan.stop_byte - plan.start_byte)

    def _publish_staged_locked(self, segment: LogSegment, state: State, staged: Staged) -> None:
        """Publish an append of producers: index its aborted transactions, set the state, update the producers.

        If an interrupt prevents the last step, the next operation completes it (`ready_locked`).
        """
        core = self._core
        producers = core.producers.producers
        if staged.is_plain and not producers.has_transactions and not core.unstable_is_stale:
            core.staged = staged
            core.state = state if state.first_unstable_offset < 0 else state.replace(first_unstable_offset=-1)
            core.unstable_is_stale = False
            core.apply_staged_locked()
            return
        for txn, stable in producers.completions(staged):
            if txn.is_aborted:
                if not segment.txn_index.count:
                    core.unsynced.entries_changed()
                segment.add_aborted(AbortedTxn(0, txn.producer_id, txn.first_offset, txn.last_offset, stable))
        unstable = producers.first_unstable_after(staged, core.decided_below(state))
        if unstable >= 0 and unstable < state.log_start_offset:
            unstable = locate_or_offset_only(state, state.log_start_offset).message_offset
        core.staged = staged
        core.state = (
            state if unstable == state.first_unstable_offset else state.replace(first_unstable_offset=unstable)
        )
        core.unstable_is_stale = False
        core.apply_staged_locked()

    def append_group_locked(self, view: memoryview, table: BatchTable, now_ms: int) -> int:
        """Plan batch by batch and write run by run; return the number of rows written.

        Fewer than all are written if the next run holds a batch that the producer rules reject, or one that was
        already written. No batch of that run is written.
        """
        core = self._core
        row, rows, fresh = 0, table.count, False
        staged: Staged | None = None
        while row < rows:
            segment = core.active
            plan = plan_append(table, row, segment.tail, core.rules, now_ms, False, fresh)
            if plan.roll_reason:
                if fresh:
                    segment.ensure_offset_in_range(table.last_offset_of(row))
                self._roller.roll_locked(table.base_offset(row))
                fresh = True
                continue
            if table.has_producers:
                staged = core.producers.producers.stage(table, row, plan.stop_row, view, 0, ORIGIN_CLIENT)
                if staged is not None and staged.fault:
                    return row
            self._write_locked(segment, view[plan.start_byte : plan.stop_byte], plan, staged)
            row, fresh = plan.stop_row, False
        return rows

    def append_singly_locked(self, view: memoryview, table: BatchTable, now_ms: int, row: int) -> tuple[int, int]:
        """Write the batches from `row` on one by one; return the group's (first, last offset).

        Each is checked against the previous ones. A batch that was already written is skipped, and counts with its
        existing offsets.
        """
        core = self._core
        first_offset, last_offset = table.base_offset(0), -1
        for this in range(row, table.count):
            at = table.position(this)
            data = bytearray(view[at : at + table.size(this)])
            single = scan(data, check_crc=False)
            begin = core.state.log_end_offset
            plan = place_append(data, single, begin, core.leader_epoch, -1, core.active.tail, core.rules, now_ms)
            before = self.append_locked(data, single, plan, now_ms, begin, "client")
            begin, last_offset = (begin, core.state.log_end_offset - 1) if before is None else before[:2]
            first_offset = begin if this == 0 else first_offset
        return first_offset, last_offset

    def begin_epochs_locked(self, table: BatchTable) -> None:
        """Record the epochs of a follower's batches; v0 and v1 have none and clear the known epochs (LOG-59)."""
        core = self._core
        for row in range(table.count):
            if table.magic(row) < 2:
                if core.epochs.entries:
                    core.epochs.clear()
                    core.after_unlock.append(core.write_epochs)
            elif table.leader_epoch(row) > core.epochs.latest_epoch:
                self.begin_epoch_locked(table.leader_epoch(row), table.base_offset(row))

    def begin_epoch_locked(self, epoch: int, first_offset: int) -> None:
        """Record the start of an epoch; its file is written after the lock is released."""
        core = self._core
        core.epochs.assign(epoch, first_offset)
        core.after_unlock.append(core.write_epochs)
