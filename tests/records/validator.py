"""Validation and assignment of one append in one call, like the reference's LogValidator; the log does them apart."""

from typing import Any, NamedTuple

from typing_extensions import Buffer

from kafkalog._core.batch.scan import scan
from kafkalog._core.log.assign import assign
from kafkalog.errors import InvalidRecord
from kafkalog.records.validate import ValidationRules, check_append


class Validated(NamedTuple):
    """The batch as the log stores it; times in ms."""

    records: Buffer
    next_offset: int
    max_timestamp_ms: int
    message_size_maybe_changed: bool


def validate_and_assign_offsets(
    buffer: Buffer, first_offset: int, rules: ValidationRules, now_ms: int, *, leader_epoch: int = -1, **more: Any
) -> Validated:
    """Return the batch of `buffer` as a leader writes it from `first_offset` on; `more` and errors: `check_append`."""
    data = bytearray(buffer)
    checked = check_append(data, scan(data, check_crc=False), rules, now_ms, **more)
    next_offset = first_offset + checked.record_count
    # the last record gets the last offset, even if the header of a coordinator's batch counts others
    header = checked.table[0]
    base = next_offset - 1 - (header.last_offset - header.base_offset)
    if base < 0:
        raise InvalidRecord(f"the batch spans more offsets than there are below {next_offset}")
    assign(checked.data, checked.table, base, leader_epoch, now_ms if rules.append_time else -1)
    largest = now_ms if rules.append_time else checked.max_timestamp
    return Validated(checked.data, next_offset, largest, checked.rebuilt is not None)
