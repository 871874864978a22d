"""Checks of an append before it changes the log: analysis of a buffer, for leader and follower.

Format.md section 11 lists the checks in order, with the error of each. Nothing here uses a log's state: the
functions take a scanned buffer and a configuration, and return or raise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from kafkalog._core.batch.rewrite import message_run
from kafkalog._core.batch.scan import REASON_MAGIC, REASON_PARTIAL, BatchTable, scan
from kafkalog._core.log import admit, plan
from kafkalog._core.log.admit import LeaderLimits, refusal
from kafkalog.config.topic import LogConfig
from kafkalog.errors import (
    CorruptRecord,
    IllegalArgument,
    IllegalState,
    InvalidRecord,
    KafkalogError,
    OffsetsOutOfOrder,
    RecordBatchTooLarge,
    RecordTooLarge,
    UnexpectedAppendOffset,
)
from kafkalog.records.format import MAGIC_V2
from kafkalog.records.validate import Checked, ValidationRules, ValidatorMetrics, check_append
from kafkalog.storage.file_slice import LARGEST_OFFSET
from kafkalog.types import LogAppendInfo

if TYPE_CHECKING:
    from kafkalog.storage.log import UnifiedLog
    from kafkalog.util.buffers import Data

Origin = Literal["client", "replication", "coordinator", "raft_leader"]
ORIGINS: Final = frozenset({"client", "replication", "coordinator", "raft_leader"})
NOTHING_APPENDED: Final = LogAppendInfo(-1, -1)
_NOTHING_WRITTEN: Final = "nothing was written"
_CODEC_MASK: Final = 0x07
_V2_OVERHEAD_BYTES: Final = 61
_MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_FAR_MS: Final = 2**62
"""Longer than any meaningful time limit; keeps the sums below within 64 bits."""


def has_batches(table: BatchTable) -> bool:
    """Return True if the scan found a complete batch; raise CorruptRecord if it had to stop (format.md section 5).

    An incomplete batch at the end is ignored (LOG-5).
    """
    if table.stop_reason <= REASON_PARTIAL:
        return table.count > 0
    what = "format (magic)" if table.stop_reason == REASON_MAGIC else "size field"
    raise CorruptRecord(
        f"a batch has an invalid {what}: {table.stop_value}", position=table.stop_position, hint=_NOTHING_WRITTEN
    )


def leader_limits(config: LogConfig) -> LeaderLimits:
    """Return the limits a configuration sets for a leader's append; its `rules` are those of the validator."""
    rules = ValidationRules.of(config)
    return LeaderLimits(
        max_message_bytes=config.max_message_bytes,
        segment_size=config.segment_size,
        before_ms=min(rules.before_ms, _FAR_MS),
        after_ms=min(rules.after_ms, _FAR_MS),
        check_times=not rules.append_time,
        need_keys=rules.need_keys,
        writes_as_is=not rules.codec,
        rules=rules,
    )


def check_leader_append(
    buffer: Data,
    table: BatchTable,
    limits: LeaderLimits,
    origin: Origin,
    now_ms: int,
    metrics: ValidatorMetrics | None = None,
    *,
    any_base_offset: bool,
) -> Checked:
    """Validate one append that a leader must not take as it is, and return the data to write.

    An append is one v2 batch, one wrapper, or any number of plain v0 or v1 messages. The rules are stages B and C of
    format.md section 11: offset 0 and no transaction from a client, size, checksum, then header and records, and the
    size of data that had to be compressed or converted (LOG-8). Raise the error of the first broken rule. Nothing is
    written.
    """
    client = origin == "client"
    found = refusal(table, client, any_base_offset, False, -1, limits.max_message_bytes)
    if found is not None:
        raise refused(table, found[0], found[1], limits.max_message_bytes, -1)
    if table.count > 1 and (table.codec or table.magic(0) >= MAGIC_V2):
        raise InvalidRecord(
            f"a leader appends one batch at a time, not {table.count}", hint="use Log.append_bytes for several batches"
        )
    if origin not in ORIGINS:
        raise IllegalArgument(f"unknown origin {origin!r}", hint=f"use one of {', '.join(sorted(ORIGINS))}")
    size = table.valid_bytes
    data = buffer if size == len(buffer) else memoryview(buffer)[:size]
    checked = check_append(
        data, table, limits.rules, now_ms, from_client=client, any_base_offset=any_base_offset, metrics=metrics
    )
    _check_rewritten(checked, limits.max_message_bytes)
    return checked


def check_raft_append(table: BatchTable, limits: LeaderLimits, leader_epoch: int) -> None:
    """Raise if a batch of a raft leader has another epoch or exceeds the topic's size limit (LOG-11)."""
    found = refusal(table, False, False, True, leader_epoch, limits.max_message_bytes)
    if found is not None:
        raise refused(table, found[0], found[1], limits.max_message_bytes, leader_epoch)


def _check_rewritten(checked: Checked, max_message_bytes: int) -> None:
    """Raise RecordTooLarge if a rebuilt batch is larger than the topic allows (LOG-8)."""
    size = checked.table.max_batch_size
    if checked.rebuilt is not None and size > max_message_bytes:
        raise RecordTooLarge(
            f"the batch has {size} bytes in the codec and format of the log; max.message.bytes is {max_message_bytes}",
            hint="send smaller batches, or raise max.message.bytes of the topic",
        )


def check_group(
    buffer: Data, table: BatchTable, limits: LeaderLimits, now_ms: int, metrics: ValidatorMetrics | None = None
) -> tuple[Data, BatchTable]:
    """Validate a buffer of appends and return the data to write with its batch table; ignore their base offsets.

    Every v2 batch and every wrapper is one append; plain v0 and v1 messages are joined up to max.message.bytes. If
    all of them keep codec and format, the buffer itself is returned.
    """
    check_each(table, limits)
    pieces: list[Data] = []
    kept = row = 0
    touched = False
    view = memoryview(buffer)
    while True:
        row = limits.first_to_change(buffer, table, row, now_ms)
        if row == table.count:
            break
        end = message_run(table, row, table.count, limits.max_message_bytes - _V2_OVERHEAD_BYTES)
        start, stop = table.position(row), table.position(end - 1) + table.size(end - 1)
        checked = _check_piece(view[start:stop], start, limits, now_ms, metrics)
        touched = True
        if checked.rebuilt is not None:
            pieces += [view[kept:start], checked.data]
            kept = stop
        row = end
    if not touched:
        return buffer, table
    if not pieces:
        return buffer, scan(buffer)
    joined = bytearray().join([*pieces, view[kept : table.valid_bytes]])
    return joined, scan(joined)


def _check_piece(
    piece: memoryview, position: int, limits: LeaderLimits, now_ms: int, metrics: ValidatorMetrics | None
) -> Checked:
    """Run `check_append` on one of several appends; it begins at byte `position` of the buffer."""
    try:
        checked = check_append(
            piece, scan(piece, check_crc=False), limits.rules, now_ms, any_base_offset=True, metrics=metrics
        )
        _check_rewritten(checked, limits.max_message_bytes)
        return checked
    except KafkalogError as error:
        error.position = position + (error.position or 0)
        raise


def check_each(table: BatchTable, limits: LeaderLimits) -> None:
    """Raise if a batch of `table` may not be a separate append, judging by its size and header."""
    found = refusal(table, True, True, False, -1, limits.max_message_bytes)
    if found is not None:
        raise refused(table, found[0], found[1], limits.max_message_bytes, -1)


def refused(table: BatchTable, code: int, row: int, max_message_bytes: int, leader_epoch: int) -> KafkalogError:
    """Return the error for the result of `admit.refusal` for batch `row`."""
    batch = table[row]
    at = batch.position
    if code == admit.WRONG_EPOCH:
        return InvalidRecord(
            f"the batch has leader epoch {batch.leader_epoch}, the append has {leader_epoch}", position=at
        )
    if code == admit.BASE_OFFSET_NOT_ZERO:
        return InvalidRecord(
            f"a client's batch must begin at offset 0, not {batch.base_offset}",
            position=at,
            hint="Log.append_bytes accepts any base offset",
        )
    if code == admit.BATCH_TOO_LARGE:
        return RecordTooLarge(
            f"the batch has {batch.size} bytes; max.message.bytes is {max_message_bytes}",
            position=at,
            hint="send smaller batches, or raise max.message.bytes of the topic",
        )
    return damaged(table, row)


def damaged(table: BatchTable, row: int) -> CorruptRecord:
    """Return the error for a batch whose checksum is wrong or which is shorter than its own header."""
    batch = table[row]
    return CorruptRecord(
        f"the batch of {batch.size} bytes has CRC {batch.crc}, computed {batch.computed_crc}",
        position=batch.position,
        hint=_NOTHING_WRITTEN,
    )


def no_offsets_left(error: ValueError, end_offset: int) -> IllegalState:
    """Return the error for batches that cannot be assigned offsets, with the reason from `error`."""
    hint = "the highest offset is 2^63-2; use a new topic"
    return IllegalState(f"the log has no offsets left for these batches: {error}", offset=end_offset, hint=hint)


def follower_rows(table: BatchTable, leader_epoch: int | None) -> int:
    """Return the number of batches a follower appends: those before the first with a higher epoch (LOG-81).

    With None all are appended, also those without an epoch: a clean makes v2 batches without one of older formats.

    CorruptRecord for a wrong checksum among them, OffsetsOutOfOrder if they do not rise (LOG-4),
    UnexpectedAppendOffset if no offset would remain for the log end, IllegalArgument for a v2 batch without epoch
    (LOG-82); nothing is written then.
    """
    rows = table.count if leader_epoch is None else plan.rows_up_to_epoch(table, leader_epoch)
    if 0 <= table.first_invalid < rows:
        raise damaged(table, table.first_invalid)
    if not plan.offsets_rise(table, rows):
        raise OffsetsOutOfOrder(
            f"batch offsets do not increase from {table.base_offset(0)} to {table.last_offset_of(rows - 1)}",
            offset=table.base_offset(0),
            hint=_NOTHING_WRITTEN,
        )
    if rows and table.last_offset_of(rows - 1) >= LARGEST_OFFSET:
        raise UnexpectedAppendOffset(
            f"a batch ends at offset {LARGEST_OFFSET}, which leaves none for the log end",
            offset=LARGEST_OFFSET,
            first_offset=table.first_offset,
            last_offset=LARGEST_OFFSET,
            hint=_NOTHING_WRITTEN,
        )
    without = plan.first_without_epoch(table, rows)
    if without >= 0 and leader_epoch is not None:
        raise IllegalArgument(
            "the batch has no leader epoch, which a follower requires", position=table.position(without)
        )
    return rows


def first_offset_of(table: BatchTable) -> int:
    """Return the first offset of an append that keeps its offsets; -1 if it must be decompressed to find out.

    That is a compressed message of format v0 or v1, whose header names only its last record.
    """
    if table.magic(0) < 2 and table.attributes(0) & _CODEC_MASK:
        return -1
    return table.first_offset


def check_follower_offsets(table: BatchTable, log_end_offset: int) -> None:
    """Raise UnexpectedAppendOffset if the append begins before the log end (LOG-3)."""
    if table.first_offset < log_end_offset:
        raise UnexpectedAppendOffset(
            f"the append begins at offset {table.first_offset}, below the log end {log_end_offset}; "
            f"its last offset is {table.last_offset}",
            offset=table.first_offset,
            first_offset=table.first_offset,
            last_offset=table.last_offset,
        )


def placed_info(
    table: BatchTable, place: tuple[int, int, int], last_leader_epoch: int, log_start_offset: int
) -> LogAppendInfo:
    """Return the result of an append whose (first offset, last offset, append time) differ from the table's.

    They differ if its producer has already sent all of it, or a part (LOG-60).
    """
    first_offset, last_offset, append_time = place
    return LogAppendInfo(
        first_offset,
        last_offset,
        last_leader_epoch=last_leader_epoch,
        max_timestamp=table.max_timestamp,
        offset_of_max_timestamp=last_offset,
        log_append_time=append_time,
        log_start_offset=log_start_offset,
        source_compression=table.codec,
        target_compression=table.codec,
        shallow_count=table.count,
        valid_bytes=table.valid_bytes,
    )


def base_for_roll(table: BatchTable) -> int:
    """Return the base offset of a segment that is rolled for an append that keeps its offsets (LOG-16).

    An append that begins with a message of format v0 or v1 counts as one with an unknown first offset, as in the
    reference: the base is then so low that the last offset just fits, and the log end if that is higher.
    """
    return table.first_offset if table.magic(0) >= 2 else table.last_offset - _MAX_RELATIVE_OFFSET


def check_append_size(size: int, segment_size: int) -> None:
    """Raise RecordBatchTooLarge if one append does not fit one segment (LOG-9)."""
    if size > segment_size:
        raise RecordBatchTooLarge(
            f"the append has {size} bytes; a segment holds at most {segment_size}",
            hint="append fewer bytes at once, or raise segment.bytes of the topic",
        )


def append_copied(log: UnifiedLog, batches: Data) -> None:
    """Append batches of a copy to it; those that exceed a `segment.bytes` set later get a segment of their size."""
    config = log.config
    if len(batches) <= config.segment_size:
        log.append_as_follower(batches, None)
        return
    log.config = config.replace(**{"internal.segment.bytes": len(batches)})
    try:
        log.append_as_follower(batches, None)
    finally:
        log.config = config
