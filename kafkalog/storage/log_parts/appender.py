"""Appends of a log: as a leader, as a follower, and many batches at once.

    scan and check outside the lock -> assign offsets -> plan -> `batch_writer.py`

One ready batch of a client, the common case, is one call of compiled code (`_core/log/append_engine.pyx`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog._core.batch.ready_batch import ReadyBatch
from kafkalog._core.batch.scan import BatchTable, scan
from kafkalog._core.log.append_engine import AppendEngine
from kafkalog._core.log.assign import assign
from kafkalog._core.log.plan import append_info, first_old_format, first_without_epoch, plan_append
from kafkalog.errors import KafkalogError
from kafkalog.records.validate import ValidatorMetrics
from kafkalog.storage.append import (
    NOTHING_APPENDED,
    Origin,
    base_for_roll,
    check_append_size,
    check_each,
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
from kafkalog.storage.log_parts.batch_writer import BatchWriter
from kafkalog.storage.log_parts.core import LogCore
from kafkalog.storage.log_parts.flusher import LogFlusher
from kafkalog.storage.producer_state import VerificationGuard
from kafkalog.types import LogAppendInfo

if TYPE_CHECKING:
    from kafkalog.storage.log_state import State
    from kafkalog.util.buffers import Data


class LogAppender:
    """Appends batches to a log."""

    __slots__ = ("_core", "_engine", "_flusher", "_writer", "validator_metrics")

    def __init__(self, core: LogCore, flusher: LogFlusher, writer: BatchWriter, engine: AppendEngine) -> None:
        self._core = core
        self._flusher = flusher
        self._writer = writer
        self._engine = engine
        self.validator_metrics = ValidatorMetrics()

    def append_as_leader(
        self,
        buffer: bytearray | ReadyBatch,
        *,
        leader_epoch: int | None = None,
        origin: Origin = "client",
        table: BatchTable | None = None,
        guard: VerificationGuard | None = None,
        epoch_bumps: bool = False,
        any_base_offset: bool = False,
    ) -> LogAppendInfo:
        """Append the one batch in `buffer`, with offsets from the log end on (LOG-2). Return a LogAppendInfo.

        A ReadyBatch is a plain batch built by this library, and is not checked again.

        Otherwise `buffer` holds a v2 batch, a wrapper, or plain messages of format v0 or v1. A batch whose format or
        codec differs from the log's is converted and recompressed. A v2 batch that is kept is edited in place, which
        needs a writable buffer: base offset, epoch, and times if the topic stamps them. An incomplete batch is
        ignored; without a complete one nothing happens (LOG-5). `table` saves scanning again. A raft leader's
        batches keep their offsets. A batch that its producer has already sent is not written again: the result has
        its first offsets (LOG-60). `guard` comes from `maybe_start_verification`; with `epoch_bumps` markers carry a
        bumped epoch (transaction version 2). With `any_base_offset` the base offset of a client's batch is ignored.
        Raises the errors of the checks (format.md section 11), then StorageError. After a StorageError the log is
        unchanged, or rejects further writes if it could not be restored.
        """
        core = self._core
        now_ms = core.milliseconds()
        if origin == "client" or isinstance(buffer, ReadyBatch):
            ready = self._engine.append_ready(
                buffer, leader_epoch=leader_epoch, table=table, any_base_offset=any_base_offset, now_ms=now_ms
            )
            if ready is not None:
                return ready
        if isinstance(buffer, ReadyBatch):
            source_data = buffer.data
            table = scan(source_data, check_crc=False)
        else:
            source_data = buffer
            table = scan(source_data) if table is None else table
        epoch = core.leader_epoch if leader_epoch is None else leader_epoch
        limits = core.limits
        data = source_data
        source = None
        if origin != "client" or not limits.takes(source_data, table, now_ms, any_base_offset):
            if not has_batches(table):
                return NOTHING_APPENDED
            if origin == "raft_leader":
                check_raft_append(table, limits, epoch)
                return self.append_as_follower(source_data, epoch)
            source = table
            checked = check_leader_append(
                source_data, table, limits, origin, now_ms, self.validator_metrics, any_base_offset=any_base_offset
            )
            data, table = checked.data, checked.table
            check_append_size(table.valid_bytes, limits.segment_size)
        return self._writer.append_checked(
            data, table, epoch, now_ms, source=source, origin=origin, guard=guard, epoch_bumps=epoch_bumps
        )

    def begin_epoch(self, leader_epoch: int) -> None:
        """Begin a higher leader epoch at the log end, and write its file before the first append needs it.

        StorageError.
        """
        core = self._core
        with core.lock:
            state = core.ready_locked()
            if leader_epoch > state.leader_epoch:
                self._writer.begin_epoch_locked(leader_epoch, state.log_end_offset)
                core.state = state.replace(leader_epoch=leader_epoch)
        core.run_after_unlock()

    def append_as_follower(self, buffer: Data, leader_epoch: int | None) -> LogAppendInfo:
        """Append the batches of `buffer`, keeping their offsets, epochs and times (LOG-3). Return a LogAppendInfo.

        Batches from the first one with an epoch above `leader_epoch` on are ignored (LOG-81); None takes them all, for
        the copy of a log, also v2 batches without an epoch, which are IllegalArgument otherwise (LOG-82).
        UnexpectedAppendOffset below the log end, OffsetsOutOfOrder, CorruptRecord, RecordBatchTooLarge, StorageError.
        """
        core = self._core
        table = scan(buffer)
        rows = follower_rows(table, leader_epoch) if has_batches(table) else 0
        if rows == 0:
            return NOTHING_APPENDED
        if rows < table.count:
            table = scan(buffer, 0, table.position(rows))
        size = table.valid_bytes
        check_append_size(size, core.config.segment_size)
        data: Data = buffer if size == len(buffer) else memoryview(buffer)[:size]
        now_ms = core.milliseconds()
        first_offset = first_offset_of(table)
        # the epoch of the last batch is the highest one, unless older formats are among them
        begins_epochs = first_old_format(table, table.count) >= 0 or first_without_epoch(table, table.count) >= 0
        try:
            state = None if begins_epochs else self._engine.append_run(data, table, now_ms, keeps_offsets=True)
            if state is None:
                state = self._append_kept(data, table, now_ms, begins_epochs)
        finally:
            if core.after_unlock:
                core.run_after_append()
        if core.flush_messages:
            self._flusher.flush_if_due()
        return append_info(table, first_offset, table.last_leader_epoch, -1, state.log_start_offset)

    def _append_kept(self, data: Data, table: BatchTable, now_ms: int, begins_epochs: bool) -> State:
        """Append a follower's batches in as many steps as needed; return the state before."""
        core = self._core
        with core.lock:
            state = core.ready_locked()
            check_follower_offsets(table, state.log_end_offset)
            epochs = core.epochs.entries
            try:
                if begins_epochs or table.last_leader_epoch > state.leader_epoch:
                    self._writer.begin_epochs_locked(table)
                plan = plan_append(table, 0, core.active.tail, core.rules, now_ms, True, False)
                self._writer.append_locked(data, table, plan, now_ms, base_for_roll(table))
            except BaseException:
                if core.state.log_end_offset <= table.last_offset:  # not written
                    core.epochs.restore(epochs)  # the file is written after the lock is released
                raise
            if begins_epochs:
                core.state = core.state.replace(leader_epoch=core.epochs.latest_epoch)
            core.leader_epoch = max(core.leader_epoch, core.epochs.latest_epoch)  # own appends go on from there
        return state

    def append_batches(
        self, buffer: Data, table: BatchTable | None = None, *, check_records: bool = True
    ) -> LogAppendInfo:
        """Append every batch in `buffer` as a separate append, ignoring base offsets. Return a LogAppendInfo.

        All are checked before the first is written. Segments and indexes are as after single appends, but batches
        for one segment are written in one call. If a write fails, the batches before it stay; the error's `offset`
        is the first offset that was not written. A batch whose format or codec differs from the log's is converted
        as in `append_as_leader`. `check_records` False skips the checks of records and checksums, for a caller that
        has just built the batches.
        """
        core = self._core
        if table is None:
            table = scan(buffer, check_crc=check_records)
        if not has_batches(table):
            return NOTHING_APPENDED
        now_ms = core.milliseconds()
        limits = core.limits
        source = table
        if check_records:
            buffer, table = check_group(buffer, table, limits, now_ms, self.validator_metrics)
        else:
            check_each(table, limits)
        if table.max_batch_size > limits.segment_size:
            check_append_size(table.max_batch_size, limits.segment_size)
        epoch = core.leader_epoch
        append_time = -1 if limits.check_times else now_ms
        place = None
        try:
            state = self._engine.append_run(
                buffer, table, now_ms, keeps_offsets=False, leader_epoch=epoch, append_time=append_time
            )
            if state is None:
                state, place = self._append_group(buffer, table, now_ms, epoch, append_time)
        except ValueError as error:
            if isinstance(error, KafkalogError):
                raise
            raise no_offsets_left(error, core.state.log_end_offset) from error
        finally:
            if core.after_unlock:
                core.run_after_append()
        if core.flush_messages:
            self._flusher.flush_if_due()
        if place is not None:
            return placed_info(source, (*place, append_time), -1, state.log_start_offset)
        return append_info(table, state.log_end_offset, -1, append_time, state.log_start_offset, source)

    def _append_group(
        self, buffer: Data, table: BatchTable, now_ms: int, epoch: int, append_time: int
    ) -> tuple[State, tuple[int, int] | None]:
        """Append batches in as many steps as needed; return the state before, and their offsets if not at its end."""
        core = self._core
        with core.lock:
            state = core.ready_locked()
            first_offset = state.log_end_offset
            assign(buffer, table, first_offset, epoch, append_time)
            if epoch > state.leader_epoch:
                self._writer.begin_epoch_locked(epoch, first_offset)
            view = memoryview(buffer)
            done = self._writer.append_group_locked(view, table, now_ms)
            if done == table.count:
                return state, None
            return state, self._writer.append_singly_locked(view, table, now_ms, done)

    def rows_to_roll(self, buffer: Data, table: BatchTable, row: int) -> int:
        """Return the row up to which batches from `row` on fit the active segment; `row` if the next one rolls.

        For a caller that has to sync before a roll: a new segment may survive a crash that loses unsynced data in
        the previous one. `buffer` is that of `append_batches`; its offsets are set as they would be.
        """
        core = self._core
        now_ms = core.milliseconds()
        with core.lock:
            state = core.ready_locked()
            append_time = -1 if core.limits.check_times else now_ms
            assign(buffer, table, state.log_end_offset, core.leader_epoch, append_time, first=row)
            tail = core.active.tail
            plan = plan_append(table, row, tail, core.rules, now_ms, False, not tail.size)
            return row if plan.roll_reason else plan.stop_row
