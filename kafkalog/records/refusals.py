"""Errors for batches that a leader rejects: the typed errors of validation, and counters by kind.

The reason for a single record has the reference's text: a produce response sends it to the client.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog._core.batch.decode import STATUS_TEXT
from kafkalog._core.batch.scan import FAULT_CONTROL, FAULT_COUNT, BatchHeader
from kafkalog._core.log.admit import (
    FAULT_MAGIC,
    FAULT_NO_KEY,
    FAULT_STAMPED,
    FAULT_TIMESTAMP,
    STATUS_CHECKSUM,
    STATUS_RECORD_SIZE,
    RecordCheck,
)
from kafkalog.errors import CorruptRecord, InvalidRecord, InvalidTimestamp, KafkalogError, RecordRefused

_SHOWN = 3
_TEXTS = {
    STATUS_CHECKSUM: "its checksum is wrong",
    STATUS_RECORD_SIZE: "decompressed, it is larger than max.decompressed.message.bytes",
}
_BY_TIME = (FAULT_TIMESTAMP, FAULT_STAMPED)


@dataclass(slots=True, eq=False)
class ValidatorMetrics:
    """Counts of validation faults by kind: the counters of the reference's validator."""

    invalid_magic: int = 0
    invalid_offset: int = 0
    invalid_sequence: int = 0
    invalid_checksums: int = 0
    no_key_compacted_topic: int = 0


def header_error(header: BatchHeader, fault: int, metrics: ValidatorMetrics | None) -> RecordRefused:
    """Return the typed error for a header fault (a FAULT_ number of _core.batch.scan)."""
    if fault == FAULT_COUNT:
        span = header.last_offset - header.base_offset + 1
        reason = f"the batch declares {header.count} records and {span} offsets"
    elif fault == FAULT_CONTROL:
        reason = "only the log's own coordinators write control batches"
    else:
        reason = f"producer {header.producer_id} has no base sequence"
    if metrics is not None:
        if fault in (FAULT_COUNT, FAULT_CONTROL):
            metrics.invalid_offset += 1
        else:
            metrics.invalid_sequence += 1
    return InvalidRecord(reason, offset=header.base_offset, position=header.position)


def record_validation_error(
    check: RecordCheck,
    header: BatchHeader,
    bounds: tuple[int, int],
    *,
    partition: str | None,
    plain: bool,
    metrics: ValidatorMetrics | None,
) -> KafkalogError:
    """Return the typed error for the faults in batch `header`; `plain` is True if its bytes were checked in place."""
    if metrics is not None:
        _count(check, metrics)
    if check.status:
        text = _TEXTS.get(check.status) or STATUS_TEXT[check.status]
        kind = CorruptRecord if check.status == STATUS_CHECKSUM else InvalidRecord
        at = header.position + (check.position if plain else 0)
        return kind(f"record {check.record} of the batch: {text}", offset=header.base_offset, position=at)
    suffix = "" if partition is None else f" in topic partition {partition}"
    errors = [
        (record, _reason(fault, record, offset, timestamp, bounds, header.magic, suffix))
        for record, fault, offset, timestamp in check.faults
    ]
    details = "; ".join(f"record {record}: {reason}" for record, reason in errors[:_SHOWN])
    rest = f" and {check.total - _SHOWN} more" if check.total > _SHOWN else ""
    by_time = any(fault in _BY_TIME for _, fault, _, _ in check.faults)
    refused = InvalidTimestamp if by_time else InvalidRecord
    return refused(
        f"{check.total} records are rejected: {details}{rest}",
        record_errors=errors,
        offset=header.base_offset,
        hint="message.timestamp.before.max.ms and message.timestamp.after.max.ms set the bounds" if by_time else None,
    )


def _count(check: RecordCheck, metrics: ValidatorMetrics) -> None:
    if check.status == STATUS_CHECKSUM:
        metrics.invalid_checksums += 1
    for _, fault, _, _ in check.faults:
        if fault == FAULT_NO_KEY:
            metrics.no_key_compacted_topic += 1
        elif fault == FAULT_MAGIC:
            metrics.invalid_magic += 1


def _reason(
    fault: int, record: int, offset: int, timestamp: int, bounds: tuple[int, int], magic: int, where: str
) -> str:
    if fault == FAULT_NO_KEY:
        return f"Compacted topic cannot accept message without key{where}"
    if fault == FAULT_MAGIC:
        return f"Record {record}'s magic does not match outer magic {magic}{where}"
    if fault == FAULT_STAMPED:
        return (
            f"Invalid timestamp type in message with offset {offset}. "
            "Producer should not set timestamp type to LogAppendTime."
        )
    return (
        f"Timestamp {timestamp} of message with offset {offset} is out of range. "
        f"The timestamp should be within [{bounds[0]}, {bounds[1]}]"
    )
