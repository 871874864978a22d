"""Execution of a follower's plans on its logs, in a thread, and the resulting positions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

from kafkalog._core.batch.scan import scan
from kafkalog.errors import IllegalState
from kafkalog.manager.log_remover import Cutting
from kafkalog.server.replica.following import (
    AppendRecords,
    OnDisk,
    Position,
    RestartAt,
    TruncateTo,
    TruncateToEpoch,
    has_unused_epoch,
    last_epoch_for,
    truncation_offset,
)
from kafkalog.server.replica.partition import Partition
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition


class FollowerTask(NamedTuple):
    """A plan for one partition; `leader_epoch` is the newest epoch that its batches may have."""

    key: TopicPartition
    partition: Partition
    plan: OnDisk
    leader_epoch: int


class TaskResult(NamedTuple):
    """Position of a log after a plan, and the error if the plan failed."""

    key: TopicPartition
    position: Position
    error: Exception | None = None


def position_of(log: UnifiedLog, leader_epoch: int) -> Position:
    """Return the position of a log, for the leader of this epoch."""
    end = log.log_end_offset
    return Position(end, last_epoch_for(leader_epoch, log.leader_epochs, end), log.log_start_offset)


def run_tasks(tasks: Sequence[FollowerTask], cutting: Cutting) -> list[TaskResult]:
    """Carry out all plans and return the results in the order given.

    Plans that truncate a log come first. A failed plan does not affect the others.
    """
    ends = {task.key: end for task in tasks if (end := _new_end(task)) is not None}
    errors: dict[TopicPartition, Exception] = {}
    try:
        with cutting(ends) if ends else nullcontext():
            _run_all([task for task in tasks if task.key in ends], cutting, errors)
    except Exception as failure:
        errors |= dict.fromkeys(ends.keys() - errors.keys(), failure)
    _run_all([task for task in tasks if task.key not in ends], cutting, errors)
    return [
        TaskResult(task.key, position_of(task.partition.log, task.leader_epoch), errors.get(task.key)) for task in tasks
    ]


def _run_all(tasks: Sequence[FollowerTask], cutting: Cutting, errors: dict[TopicPartition, Exception]) -> None:
    for task in tasks:
        try:
            _run_task(task, cutting)
        except Exception as failure:
            errors[task.key] = failure


def _run_task(task: FollowerTask, cutting: Cutting) -> None:
    """Carry out one plan. IllegalState, with no write, if this node leads.

    Other errors as in `Partition.append_as_follower`.
    """
    partition, plan = task.partition, task.plan
    if partition.is_leader:
        raise IllegalState(f"this node leads {partition.topic_partition}: a leader does not follow")
    log = partition.log
    match plan:
        case AppendRecords():
            _append(partition, plan, task.leader_epoch, cutting)
        case TruncateToEpoch(epoch):
            end = _end_for_epoch(log, plan, task.leader_epoch)
            if end is None:
                log.begin_epoch(epoch)
            else:
                _truncate(log, end, keeps_begin=True)
        case TruncateTo(offset):
            _truncate(log, offset)
        case RestartAt(offset):
            log.truncate_fully_and_start_at(offset)


def _new_end(task: FollowerTask) -> int | None:
    """Return the offset that a plan truncates its log to or restarts it at, or None if it does neither."""
    log, plan = task.partition.log, task.plan
    match plan:
        case _ if task.partition.is_leader:
            return None
        case RestartAt(offset):
            return offset
        case TruncateToEpoch():
            end = _end_for_epoch(log, plan, task.leader_epoch)
        case TruncateTo(offset):
            end = offset
        case _:
            return None
    return end if end is not None and end < log.log_end_offset else None


def _drop_unused_epoch(log: UnifiedLog, records: memoryview) -> None:
    epochs = log.leader_epochs
    if epochs and epochs[-1][1] >= log.log_end_offset:
        table = scan(records, check_crc=False)
        if table.count and has_unused_epoch(epochs, log.log_end_offset, table.leader_epoch(0)):
            log.truncate_to(log.log_end_offset)


def _without_doubtful_batch(records: memoryview, next_offset: int) -> memoryview:
    """Return the batches without a last one that begins after a gap; the next fetch begins with that one.

    A damaged base offset, which no checksum covers, looks like a gap left by compaction. The batch after it
    distinguishes the two: if its offsets go back, the append rejects both batches, and no record is skipped.
    """
    table = scan(records, check_crc=False)
    last = len(table) - 1
    return records[: table.position(last)] if last > 0 and table.begins_behind_gap(last, next_offset) else records


def _end_for_epoch(log: UnifiedLog, plan: TruncateToEpoch, leader_epoch: int) -> int | None:
    """Return where to truncate the log, or None if the leader's epoch begins at its end: both logs are the same."""
    epoch, leader_end = plan
    if leader_epoch == epoch > log.state.leader_epoch and leader_end == log.log_end_offset:
        return None
    return truncation_offset(leader_end, log.log_end_offset, log.end_offset_for_epoch(epoch))


def _truncate(log: UnifiedLog, offset: int, *, keeps_begin: bool = False) -> None:
    """Truncate the log to `offset`.

    With `keeps_begin` the log equals the leader's up to there, and an epoch that began there stays. The records
    acknowledged in that epoch lie before it. Until the leader's epoch begins, logs of earlier epochs must not rank
    ahead.
    """
    log.truncate_to(offset, keeps_begin=keeps_begin)
    if log.data_end_offset < log.log_end_offset:  # the offset lay inside a batch, which the next fetch requests whole
        log.truncate_to(log.data_end_offset, keeps_begin=keeps_begin)


def _append(partition: Partition, plan: AppendRecords, leader_epoch: int, cutting: Cutting) -> None:
    """Append the records and adopt the leader's high watermark and log start.

    The append compares checksums before it writes. The high watermark is limited to the own log end, and the log start
    to the high watermark.
    """
    log = partition.log
    if plan.records is not None and len(plan.records):
        _drop_unused_epoch(log, plan.records)
        records = _without_doubtful_batch(plan.records, log.log_end_offset)
        partition.append_as_follower(records, leader_epoch, cutting, plan.log_start_offset)
    if plan.high_watermark >= 0 and plan.high_watermark != log.high_watermark:
        log.update_high_watermark(plan.high_watermark)
    start = min(plan.log_start_offset, log.high_watermark)
    if start > log.log_start_offset:
        log.maybe_increment_log_start_offset(start)
