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
    BeginAt,
    OnDisk,
    Position,
    TruncateTo,
    TruncateToEpoch,
    begins_for_nothing,
    cut_offset,
    last_epoch_for,
)
from kafkalog.server.replica.partition import Partition
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition


class Work(NamedTuple):
    """A plan for one partition; `leader_epoch` is the newest epoch that its batches may have."""

    key: TopicPartition
    partition: Partition
    plan: OnDisk
    leader_epoch: int


class Done(NamedTuple):
    """Position of a log after a plan, and the error if the plan failed."""

    key: TopicPartition
    position: Position
    error: Exception | None = None


def position_of(log: UnifiedLog, leader_epoch: int) -> Position:
    """Return the position of a log, for the leader of this epoch."""
    end = log.log_end_offset
    return Position(end, last_epoch_for(leader_epoch, log.leader_epochs, end), log.log_start_offset)


def carry_out(works: Sequence[Work], cutting: Cutting) -> list[Done]:
    """Carry out all plans and return the results in the order given.

    Plans that truncate a log come first. A failed plan does not affect the others.
    """
    ends = {work.key: end for work in works if (end := _new_end(work)) is not None}
    errors: dict[TopicPartition, Exception] = {}
    try:
        with cutting(ends) if ends else nullcontext():
            _carry_out_all([work for work in works if work.key in ends], cutting, errors)
    except Exception as failure:
        errors |= dict.fromkeys(ends.keys() - errors.keys(), failure)
    _carry_out_all([work for work in works if work.key not in ends], cutting, errors)
    return [
        Done(work.key, position_of(work.partition.log, work.leader_epoch), errors.get(work.key)) for work in works
    ]


def _carry_out_all(works: Sequence[Work], cutting: Cutting, errors: dict[TopicPartition, Exception]) -> None:
    for work in works:
        try:
            _carry_out(work, cutting)
        except Exception as failure:
            errors[work.key] = failure


def _carry_out(work: Work, cutting: Cutting) -> None:
    """Carry out one plan. IllegalState, with no write, if this node leads.

    Other errors as in `Partition.append_as_follower`.
    """
    partition, plan = work.partition, work.plan
    if partition.is_leader:
        raise IllegalState(f"{partition.topic_partition} is led here: a leader's log is nobody's to change")
    log = partition.log
    match plan:
        case AppendRecords():
            _take(partition, plan, work.leader_epoch, cutting)
        case TruncateToEpoch(epoch, leader_end) if epoch == work.leader_epoch and _may_begin(log, epoch, leader_end):
            log.begin_epoch(epoch)
        case TruncateToEpoch(epoch, leader_end):
            _cut(log, cut_offset(leader_end, log.log_end_offset, log.end_offset_for_epoch(epoch)), keeps_begin=True)
        case TruncateTo(offset):
            _cut(log, offset)
        case BeginAt(offset):
            log.truncate_fully_and_start_at(offset)


def _new_end(work: Work) -> int | None:
    """Return the offset that a plan truncates its log to or restarts it at, or None if it does neither."""
    log, plan = work.partition.log, work.plan
    match plan:
        case _ if work.partition.is_leader:
            return None
        case BeginAt(offset):
            return offset
        case TruncateToEpoch(epoch, leader_end) if epoch != work.leader_epoch or not _may_begin(log, epoch, leader_end):
            end = cut_offset(leader_end, log.log_end_offset, log.end_offset_for_epoch(epoch))
        case TruncateTo(offset):
            end = offset
        case _:
            return None
    return end if end < log.log_end_offset else None


def _drop_begin(log: UnifiedLog, records: memoryview) -> None:
    epochs = log.leader_epochs
    if epochs and epochs[-1][1] >= log.log_end_offset:
        table = scan(records, check_crc=False)
        if table.count and begins_for_nothing(epochs, log.log_end_offset, table.leader_epoch(0)):
            log.truncate_to(log.log_end_offset)


def _borne_out(records: memoryview, next_offset: int) -> memoryview:
    """Return the batches without a last one that begins after a gap; the next fetch begins with that one.

    A damaged base offset, which no checksum covers, looks like a gap left by compaction. The batch after it
    distinguishes the two: if its offsets go back, the append rejects both batches, and no record is skipped.
    """
    table = scan(records, check_crc=False)
    last = len(table) - 1
    return records[: table.position(last)] if last > 0 and table.begins_behind_gap(last, next_offset) else records


def _may_begin(log: UnifiedLog, epoch: int, offset: int) -> bool:
    """Return True if the leader's epoch begins at the log end: both logs are the same up to there."""
    return epoch > log.state.leader_epoch and offset == log.log_end_offset


def _cut(log: UnifiedLog, offset: int, *, keeps_begin: bool = False) -> None:
    """Truncate the log to `offset`.

    With `keeps_begin` the log equals the leader's up to there, and an epoch that began there stays. The records
    acknowledged in that epoch lie before it. Until the leader's epoch begins, logs of earlier epochs must not rank
    ahead.
    """
    log.truncate_to(offset, keeps_begin=keeps_begin)
    if log.data_end_offset < log.log_end_offset:  # the offset lay inside a batch, which the next fetch requests whole
        log.truncate_to(log.data_end_offset, keeps_begin=keeps_begin)


def _take(partition: Partition, plan: AppendRecords, leader_epoch: int, cutting: Cutting) -> None:
    """Append the records and adopt the leader's high watermark and log start.

    The append compares checksums before it writes. The high watermark is limited to the own log end, and the log start
    to the high watermark.
    """
    log = partition.log
    if plan.records is not None and len(plan.records):
        _drop_begin(log, plan.records)
        partition.append_as_follower(_borne_out(plan.records, log.log_end_offset), leader_epoch, cutting)
    if plan.high_watermark >= 0 and plan.high_watermark != log.high_watermark:
        log.update_high_watermark(plan.high_watermark)
    start = min(plan.log_start_offset, log.high_watermark)
    if start > log.log_start_offset:
        log.maybe_increment_log_start_offset(start)
