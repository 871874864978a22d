"""What a leader asks of a batch before it gives it offsets: format.md section 11, stage C, for uncompressed v2."""

from __future__ import annotations

from kafkalog._core.assign import FAULT_TIMESTAMP, RecordCheck, check_records
from kafkalog._core.decode import STATUS_TEXT
from kafkalog._core.scan import FAULT_CONTROL, FAULT_COUNT, FAULT_SEQUENCE, BatchHeader, BatchTable
from kafkalog.config import LogConfig
from kafkalog.errors import InvalidRecord, InvalidTimestamp, RecordRefused
from kafkalog.records.dispatch import require_readable

__all__ = ["check_batches"]

_MAX_LONG = 2**63 - 1
_MIN_LONG = -_MAX_LONG
_SHOWN = 3


def check_batches(
    buffer: bytes | bytearray | memoryview,
    table: BatchTable,
    config: LogConfig,
    now_ms: int,
    *,
    from_client: bool = True,
) -> None:
    """Raises what the first unsound batch of the table deserves; returns None when all may be written.

    Checks the header of each batch, then each record: structure, key on a compacted topic, timestamp inside the
    topic's bounds. InvalidTimestamp when any record failed by time, else InvalidRecord; both carry `record_errors`.
    A format or codec that cannot be checked is refused by name.
    """
    check_times = config.message_timestamp_type != "LogAppendTime"
    oldest = now_ms - config.message_timestamp_before_max_ms
    if oldest < _MIN_LONG:
        oldest = _MIN_LONG
    newest = now_ms + config.message_timestamp_after_max_ms
    if newest > _MAX_LONG:
        newest = _MAX_LONG
    need_keys = "compact" in config.cleanup_policy
    for row in range(table.count):
        fault = table.header_fault(row, from_client)
        if fault:
            raise _header_refusal(table[row], fault)
        check = check_records(buffer, table, row, oldest, newest, check_times, need_keys)
        if check is not None:
            raise _refusal(check, table[row], oldest, newest)


def _header_refusal(header: BatchHeader, fault: int) -> RecordRefused:
    """The typed error for a header fault; what cannot be read at all raises from here."""
    require_readable(header)
    if fault == FAULT_COUNT:
        span = header.last_offset - header.base_offset + 1
        reason = f"the batch declares {header.count} records and {span} offsets"
    elif fault == FAULT_CONTROL:
        reason = "control batches are written by the log's own coordinators only"
    elif fault == FAULT_SEQUENCE:
        reason = f"producer {header.producer_id} gives no base sequence"
    else:
        reason = "a transactional batch needs a producer id"
    return InvalidRecord(reason, offset=header.base_offset, position=header.position)


def _refusal(check: RecordCheck, header: BatchHeader, oldest: int, newest: int) -> RecordRefused:
    """The typed error for what check_records found."""
    if check.status:
        return InvalidRecord(
            STATUS_TEXT[check.status], offset=header.base_offset, position=header.position + check.position
        )
    errors = [
        (
            record,
            f"the timestamp is outside [{oldest}, {newest}] ms, or marks the batch as stamped by a log"
            if fault == FAULT_TIMESTAMP
            else "a record of a compacted topic needs a key",
        )
        for record, fault in check.faults
    ]
    shown = "; ".join(f"record {record}: {reason}" for record, reason in errors[:_SHOWN])
    more = f" and {check.total - _SHOWN} more" if check.total > _SHOWN else ""
    by_time = any(fault == FAULT_TIMESTAMP for _, fault in check.faults)
    kind = InvalidTimestamp if by_time else InvalidRecord
    return kind(
        f"{check.total} records are refused: {shown}{more}",
        record_errors=errors,
        offset=header.base_offset,
        hint="message.timestamp.before.max.ms and message.timestamp.after.max.ms set the bounds" if by_time else None,
    )
