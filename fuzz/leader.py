"""A leader's batch from the checks and the assignment that an append does separately: the reference's LogValidator."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalog._core.batch.scan import scan
from kafkalog._core.log.assign import assign, assign_messages
from kafkalog.errors import InvalidRecord
from kafkalog.records.format import MAGIC_V0, MAGIC_V2, NO_TIMESTAMP
from kafkalog.records.validate import Checked, ValidationRules, ValidationStats, ValidatorMetrics, check_append

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kafkalog.util.buffers import Data


class ValidationResult(NamedTuple):
    """Result of the reference's validator; times in ms, `records` is the batch as the log stores it."""

    records: Data
    next_offset: int
    log_append_time_ms: int
    max_timestamp_ms: int
    offset_of_max_timestamp: int
    message_size_maybe_changed: bool
    stats: ValidationStats


def validate_and_assign_offsets(
    buffer: Buffer,
    first_offset: int,
    rules: ValidationRules,
    now_ms: int,
    *,
    from_client: bool = True,
    magic: int = MAGIC_V2,
    leader_epoch: int = -1,
    partition: str | None = None,
    metrics: ValidatorMetrics | None = None,
) -> ValidationResult:
    """Return the batch of `buffer` as a leader writes it from `first_offset` on, in format `magic`: LogValidator.

    A bytearray is edited in place; other buffers are copied. Arguments and errors as for `check_append`.
    """
    data = buffer if isinstance(buffer, bytearray) else bytearray(buffer)
    table = scan(data, check_crc=False)
    checked = check_append(
        data,
        table,
        rules,
        now_ms,
        from_client=from_client,
        magic=magic,
        first_offset=first_offset,
        partition=partition,
        metrics=metrics,
    )
    rebuilt = checked.rebuilt
    codec = checked.table.codec
    if magic == MAGIC_V2:
        next_offset = first_offset + checked.record_count
        # the last record gets the last offset, even if the header of a coordinator's batch counts others
        header = checked.table[0]
        base = next_offset - 1 - (header.last_offset - header.base_offset)
        if base < 0:
            raise InvalidRecord(f"the batch spans more offsets than there are below {next_offset}")
        assign(checked.data, checked.table, base, leader_epoch, now_ms if rules.append_time else NO_TIMESTAMP)
    elif rebuilt is None:
        next_offset = assign_messages(
            data,
            table,
            first_offset,
            append_time_type=rules.append_time,
            timestamp=now_ms if rules.append_time else checked.max_timestamp,
            records=checked.record_count if codec else -1,
        )
    else:
        next_offset = rebuilt.last_offset + 1
    largest, offset = _largest(checked, rules, now_ms, magic, codec, first_offset, next_offset)
    return ValidationResult(checked.data, next_offset, now_ms, largest, offset, rebuilt is not None, checked.stats)


def _largest(
    checked: Checked, rules: ValidationRules, now_ms: int, magic: int, codec: int, first_offset: int, next_offset: int
) -> tuple[int, int]:
    """Return the max timestamp (ms) and the offset reported with it: the last of the batch that holds it (VAL-17)."""
    if checked.rebuilt is not None:
        return checked.rebuilt.max_timestamp, checked.rebuilt.offset_of_max_timestamp
    if codec or magic == MAGIC_V2:
        largest = now_ms if rules.append_time else checked.max_timestamp
        return largest, next_offset - 1 if codec or largest != NO_TIMESTAMP else -1
    if magic == MAGIC_V0:
        return NO_TIMESTAMP, -1
    if rules.append_time:
        return now_ms, first_offset
    # plain v1 messages are batches of one record; the table has their timestamps
    return checked.table.max_timestamp, checked.table.offset_of_max_timestamp
