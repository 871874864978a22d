"""Records of a share fetch: those that were acquired, and the acquired offsets without a record."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kafkalog._core.batch.record import Record
from kafkalog._core.batch.scan import REASON_END, scan
from kafkalog.errors import KafkalogError, MalformedRequest
from kafkalog.records.tables import batch_table

MOST_OFFSETS: Final = 1 << 20
"""Limit of the offsets that one answer acquires in a partition."""
_LOG: Final = logging.getLogger(__name__)
Range = tuple[int, int]


class Fetched(NamedTuple):
    """The acquired records of a partition with their delivery counts; offsets of `gaps` have none, and those of
    `damaged` records that cannot be read. Offsets of `unread` lie behind the byte `stopped_at`, from which no batch
    can be found: they may have records."""

    records: list[tuple[Record, int]]
    gaps: list[Range]
    damaged: list[Range]
    unread: list[Range]
    stopped_at: int


def read_fetched(data: bytes, rows: Iterable[Any]) -> Fetched:
    """Return the records of acquired rows (first, last offset, delivery count). MalformedRequest for absurd rows."""
    left: dict[int, int] = {}
    for row in rows:
        if not 0 <= row.last_offset - row.first_offset < MOST_OFFSETS - len(left):
            raise MalformedRequest(f"the offsets {row.first_offset} to {row.last_offset} are acquired at once")
        left |= dict.fromkeys(range(row.first_offset, row.last_offset + 1), row.delivery_count)
    batches = scan(data)
    found: list[tuple[Record, int]] = []
    damaged: list[int] = []
    next_offset = -1  # behind the last sound batch
    for index in range(len(batches)):
        header = batches[index]
        try:
            if not header.is_valid:
                raise MalformedRequest("its checksum is wrong")
            next_offset = max(next_offset, header.next_offset)
            if header.is_control:
                continue
            table = batch_table(data, batches, index)
        except KafkalogError as error:
            _LOG.error("records %d to %d cannot be read: %s", header.base_offset, header.last_offset, error)
            in_batch = [one for one in left if header.base_offset <= one <= header.last_offset]
            damaged += in_batch
            for one in in_batch:
                del left[one]
            continue
        for record in table:
            count = left.pop(record.offset, None)
            if count is not None:
                found.append((record, count))
    unread = [] if batches.stop_reason == REASON_END else [one for one in left if one >= next_offset]
    gaps = ranges_of(left.keys() - set(unread))
    return Fetched(found, gaps, ranges_of(damaged), ranges_of(unread), batches.stop_position)


def ranges_of(offsets: Iterable[int]) -> list[Range]:
    """Return offsets as ranges (first, last) in order."""
    found: list[Range] = []
    for one in sorted(offsets):
        if found and found[-1][1] + 1 == one:
            found[-1] = (found[-1][0], one)
        else:
            found.append((one, one))
    return found
