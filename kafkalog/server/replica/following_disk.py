"""A follower's plans carried out on its logs, by a thread: what was asked of the disk, and where the logs are then."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

from kafkalog._core.scan import scan
from kafkalog.errors import IllegalState
from kafkalog.manager.log_remover import Cutting
from kafkalog.server.replica.following import (
    BeginAt,
    CutTo,
    CutToEpoch,
    OnDisk,
    Position,
    Take,
    begins_for_nothing,
    cut_offset,
    last_epoch_for,
)
from kafkalog.server.replica.partition import Partition
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition


class Work(NamedTuple):
    """A plan for one partition; `leader_epoch` is the newest that its batches may have."""

    key: TopicPartition
    partition: Partition
    plan: OnDisk
    leader_epoch: int


class Done(NamedTuple):
    """Where the log is after a plan, and what kept it from being carried out, if something did."""

    key: TopicPartition
    position: Position
    error: Exception | None = None


def position_of(log: UnifiedLog, leader_epoch: int) -> Position:
    """Where a log is, for the leader of this epoch."""
    end = log.log_end_offset
    return Position(end, last_epoch_for(leader_epoch, log.leader_epochs, end), log.log_start_offset)


def carry_out(works: Sequence[Work], cutting: Cutting) -> list[Done]:
    """All plans, those that cut a log before the others; one that fails harms no other. Returned in the order given."""
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
    """Errors as `Partition.append_as_follower`; IllegalState for a partition that is led here: nothing is written."""
    partition, plan = work.partition, work.plan
    if partition.is_leader:
        raise IllegalState(f"{partition.topic_partition} is led here: a leader's log is nobody's to change")
    log = partition.log
    match plan:
        case Take():
            _take(partition, plan, work.leader_epoch, cutting)
        case CutToEpoch(epoch, leader_end) if epoch == work.leader_epoch and _may_begin(log, epoch, leader_end):
            log.begin_epoch(epoch)
        case CutToEpoch(epoch, leader_end):
            _cut(log, cut_offset(leader_end, log.log_end_offset, log.end_offset_for_epoch(epoch)), keeps_begin=True)
        case CutTo(offset):
            _cut(log, offset)
        case BeginAt(offset):
            log.truncate_fully_and_start_at(offset)


def _new_end(work: Work) -> int | None:
    """The offset that a plan cuts its log back to, or begins it anew at; None where it does neither."""
    log, plan = work.partition.log, work.plan
    match plan:
        case _ if work.partition.is_leader:
            return None
        case BeginAt(offset):
            return offset
        case CutToEpoch(epoch, leader_end) if epoch != work.leader_epoch or not _may_begin(log, epoch, leader_end):
            end = cut_offset(leader_end, log.log_end_offset, log.end_offset_for_epoch(epoch))
        case CutTo(offset):
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
    """Return the batches without a last one that begins behind a gap; the next fetch begins with that one.

    A damaged base offset, which no checksum covers, looks like a gap that compaction left. The batch after it shows
    which of the two it is: where that one goes back, the append refuses both, and nothing is passed over.
    """
    table = scan(records, check_crc=False)
    last = len(table) - 1
    return records[: table.position(last)] if last > 0 and table.begins_behind_gap(last, next_offset) else records


def _may_begin(log: UnifiedLog, epoch: int, offset: int) -> bool:
    """Whether the leader says that its epoch begins at the log's end: all up to there is the same in both logs."""
    return epoch > log.state.leader_epoch and offset == log.log_end_offset


def _cut(log: UnifiedLog, offset: int, *, keeps_begin: bool = False) -> None:
    """With `keeps_begin` the log is the same as the leader's up to there, and an epoch that began there stays: what was
    acknowledged in it lies before, and logs of earlier epochs must not count as ahead before the leader's has begun."""
    log.truncate_to(offset, keeps_begin=keeps_begin)
    if log.data_end_offset < log.log_end_offset:  # it lay inside a batch, which is asked for as a whole
        log.truncate_to(log.data_end_offset, keeps_begin=keeps_begin)


def _take(partition: Partition, plan: Take, leader_epoch: int, cutting: Cutting) -> None:
    """Checksums are compared by the append, before it writes. The high watermark is the leader's as far as the own log
    goes, the log start at most the high watermark."""
    log = partition.log
    if plan.records is not None and len(plan.records):
        _drop_begin(log, plan.records)
        partition.append_as_follower(_borne_out(plan.records, log.log_end_offset), leader_epoch, cutting)
    if plan.high_watermark >= 0 and plan.high_watermark != log.high_watermark:
        log.update_high_watermark(plan.high_watermark)
    start = min(plan.log_start_offset, log.high_watermark)
    if start > log.log_start_offset:
        log.maybe_increment_log_start_offset(start)
