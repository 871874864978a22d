"""The log's batches as a share fetch sees them: their offsets and places, and those of aborted transactions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkalog._core.batch.scan import REASON_SIZE, scan
from kafkalog.server.share.window import AcquiredRows
from kafkalog.storage.file_slice import HEADER_BYTES, bad_size, claimed_size
from kafkalog.storage.lazy_file import read_at
from kafkalog.storage.readable_records import FIRST_WINDOW, LARGEST_WINDOW, SMALL_WINDOW

if TYPE_CHECKING:
    from kafkalog.storage.file_slice import FileSlice


class LogBatch(NamedTuple):
    """A batch: its offsets, its place in the file, and its producer if it is transactional, otherwise -1."""

    first: int
    last: int
    position: int
    size: int
    producer_id: int
    is_control: bool


def read_batches(records: FileSlice, begin: int, most_offsets: int) -> list[LogBatch]:
    """Return the complete batches with offsets from `begin` on, until they have `most_offsets` of them.

    Only windows with headers are read, not the records of long batches. StorageError, CorruptRecord; MustWait within
    `at_once`.
    """
    found: list[LogBatch] = []
    position, window = records.position, FIRST_WINDOW
    while records.end - position >= HEADER_BYTES:
        data = read_at(records.file, min(window, records.end - position), position)
        table = scan(data, check_crc=False, file_mode=True, base_position=position, headers_only=True)
        for one in table:
            if one.position + one.size > records.end:
                return found
            if one.last_offset < begin:
                continue
            producer_id = one.producer_id if one.is_transactional else -1
            found.append(
                LogBatch(one.base_offset, one.last_offset, one.position, one.size, producer_id, one.is_control)
            )
            if one.last_offset - begin >= most_offsets:
                return found
        if table.stop_reason == REASON_SIZE:
            raise bad_size(table.stop_value, records.path, table.stop_position)
        if table.stop_position > position:
            is_long = table.stop_position > position + len(data)  # the next one probably is too
            window = SMALL_WINDOW if is_long else min(window * 4, LARGEST_WINDOW)
            position = table.stop_position
            continue
        window = claimed_size(data)  # a message of an older format has no header that is enough
        if not len(data) < window <= records.end - position:
            return found
    return found


def aborted_ranges(batches: Iterable[LogBatch], aborted: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the offsets of batches of aborted transactions, which `aborted` has as (producer id, first offset)."""
    waiting = sorted(aborted, key=lambda one: one[1])
    active: set[int] = set()
    found = []
    for batch in batches:
        while waiting and waiting[0][1] <= batch.last:
            active.add(waiting.pop(0)[0])
        if batch.producer_id not in active:
            continue
        if batch.is_control:
            active.discard(batch.producer_id)
        else:
            found.append((batch.first, batch.last))
    return found


def without(rows: Iterable[AcquiredRows], ranges: Iterable[tuple[int, int]]) -> tuple[AcquiredRows, ...]:
    """Return the rows without these ranges of offsets; both are in order and disjoint, and may be thousands."""
    found = []
    gaps = deque(ranges)
    for row in rows:
        first = row.first
        while gaps and gaps[0][0] <= row.last:
            if gaps[0][0] > first:
                found.append(row._replace(first=first, last=gaps[0][0] - 1))
            first = max(first, gaps[0][1] + 1)
            if first > row.last:  # the range may go on in the next row
                break
            gaps.popleft()
        if first <= row.last:
            found.append(row._replace(first=first))
    return tuple(found)
