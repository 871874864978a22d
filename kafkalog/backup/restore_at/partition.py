"""One staged partition, cut back to a moment by the log engine: truncated, then extended by what is kept.

The engine's truncation and appends keep indexes, leader epochs, producer snapshots and transaction indexes right.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from kafkalog._core.log.producer_state import ProducerState
from kafkalog.backup.restore_at.batches import LateMarker, epochs_of, kept_batches
from kafkalog.backup.restore_at.plan import PartitionPlan
from kafkalog.config.topic import LogConfig
from kafkalog.errors import CorruptCheckpoint
from kafkalog.manager.checkpoints import (
    high_watermark_of,
    lower_cleaner_offsets,
    read_offset,
    record_close,
    record_log_start,
    recovery_point_of,
)
from kafkalog.records.control import ControlType
from kafkalog.records.control_batch import marker_batch
from kafkalog.storage.append import append_copied
from kafkalog.storage.leader_epoch import LeaderEpochCache
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE
from kafkalog.storage.readonly.view import LogView
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import LOG_START_FILE, RECOVERY_POINT_FILE
from kafkalog.util.fileio import FileSystem

_NEVER_MS: Final = 1 << 53
"""Producers of the past must not expire while their log is cut."""
_PIECE_BYTES: Final = 1 << 20


@contextmanager
def open_staged(directory: str, key: TopicPartition, config: LogConfig, fs: FileSystem) -> Iterator[UnifiedLog]:
    """Open a partition of the staged data directory `directory` for the block; write checkpoints when closing it.

    No one else uses the directory, so nothing is locked. CorruptRecord if opening it would discard sound batches.
    """
    is_clean = fs.exists(os.path.join(directory, CLEAN_SHUTDOWN_FILE))
    log = UnifiedLog.open(
        os.path.join(directory, str(key)), config, fs=fs,
        log_start_offset=read_offset(directory, LOG_START_FILE, key, fs=fs),
        recovery_point=0 if is_clean else read_offset(directory, RECOVERY_POINT_FILE, key, fs=fs),
        had_clean_shutdown=is_clean, producer_expiration_ms=_NEVER_MS, keeps_begun_epochs=True, refuses_loss=True,
    )  # fmt: skip
    try:
        yield log
    finally:
        log.close()
    record_close(directory, key, recovery_point_of(log), high_watermark_of(log), fs=fs)
    record_log_start(directory, log, fs=fs)
    lower_cleaner_offsets(directory, {key: log.data_end_offset}, fs=fs)


def rewind_partition(
    directory: str,
    original: str,
    plan: PartitionPlan,
    at_ms: int,
    config: LogConfig,
    prepared: Collection[int],
    fs: FileSystem,
) -> bool:
    """Cut a partition of the staged data directory `directory` back to the moment; return True if it has records.

    `original` is the partition's directory in the backup. A transaction that was not decided at the moment is aborted,
    or committed if its producer is in `prepared`: its coordinator had decided that. CorruptRecord, StorageError.
    """
    if plan.later is not None:
        _restore_epochs(os.path.join(directory, str(plan.stored.topic_partition)), original, plan.begin, fs)
    with open_staged(directory, plan.stored.topic_partition, config, fs) as log:
        start = log.log_start_offset
        decided = _Decisions(log, at_ms, prepared)
        if plan.later is not None:
            _cut(log, original, plan, at_ms, decided, fs)
            if log.log_end_offset <= start:
                log.truncate_fully_and_start_at(start)
            elif log.log_start_offset < start:
                log.maybe_increment_log_start_offset(start)
        decided.end_open()
        log.flush()
        return log.log_end_offset > log.log_start_offset


def _restore_epochs(partition: str, original: str, stop: int, fs: FileSystem) -> None:
    """Write the leader epochs of the batches below `stop`, if a later batch of format v0 or v1 has cleared them."""
    try:
        epochs = LeaderEpochCache.open(partition, fs=fs)
    except CorruptCheckpoint:  # opening the log handles it
        return
    if epochs.entries and epochs.entries[0].start_offset < stop:
        return
    with LogView(original, fs=fs) as view:
        if view.log_start_offset < stop:
            epochs.clear()
            epochs.extend(epochs_of(view, stop))
            epochs.write_if_changed()


def _cut(
    log: UnifiedLog, original: str, plan: PartitionPlan, at_ms: int, decided: _Decisions, fs: FileSystem
) -> None:
    later, start = plan.later or 0, log.log_start_offset

    def by_time(offset: int, timestamp: int) -> bool:
        return timestamp <= at_ms

    def by_append(offset: int, timestamp: int) -> bool:
        return offset < later

    log.truncate_to(plan.begin)
    with LogView(original, fs=fs) as view:
        first = max(plan.begin, start)
        is_append = plan.by == "append"
        is_kept, piece_bytes = by_append if is_append else by_time, min(_PIECE_BYTES, int(log.config.segment_size))
        for found in kept_batches(view, first, at_ms, is_kept, piece_bytes, first_only=is_append):
            if isinstance(found, bytes):
                append_copied(log, found)
            elif plan.by == "time":
                decided.end_late(found)
    log.truncate_to(log.data_end_offset)  # the end may be in a gap: a snapshot there would be ahead of the files


def epoch_for_append(log: UnifiedLog) -> int:
    """Return the leader epoch of batches added to a log; old message formats at its end have none."""
    return max(int(log.state.leader_epoch), 0)


class _Decisions:
    """The ends of transactions that were open at the moment."""

    def __init__(self, log: UnifiedLog, at_ms: int, prepared: Collection[int]) -> None:
        self._log = log
        self._at_ms = at_ms
        self._prepared = set(prepared)

    def end_late(self, late: LateMarker) -> None:
        """Write a marker in place of a later one, if its producer has an open transaction there."""
        if any(one.producer_id == late.producer_id for one in self._open()):
            kind = ControlType.ABORT if late.kind == ControlType.ABORT else self._kind(late.producer_id)
            self._write(
                kind, late.producer_id, late.producer_epoch, late.coordinator_epoch, late.offset, late.leader_epoch
            )

    def end_open(self) -> None:
        """Write the markers of all transactions that are still open at the log's end, in the order they began."""
        for one in sorted(self._open(), key=lambda one: one.current_txn_first_offset):
            end, epoch = self._log.log_end_offset, epoch_for_append(self._log)
            kind = self._kind(one.producer_id)
            self._write(kind, one.producer_id, one.producer_epoch, max(one.coordinator_epoch, 0), end, epoch)

    def _open(self) -> list[ProducerState]:
        return [one for one in self._log.producers if one.current_txn_first_offset >= 0]

    def _kind(self, producer_id: int) -> ControlType:
        """Return COMMIT for the first transaction of a producer whose commit was decided, else ABORT."""
        if producer_id not in self._prepared:
            return ControlType.ABORT
        self._prepared.discard(producer_id)
        return ControlType.COMMIT

    def _write(
        self, kind: ControlType, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, leader_epoch: int
    ) -> None:
        data = marker_batch(
            kind, producer_id, epoch, coordinator_epoch, timestamp=self._at_ms, base_offset=offset,
            leader_epoch=leader_epoch,
        )  # fmt: skip
        self._log.append_as_follower(data, None)
