"""Recovery of one segment: keep what is sound from its beginning on, make everything derived from it anew.

The first batch that is cut off, fails its checksum, or does not come after the one before it ends the segment. Both
indexes and the transaction index are written as appending would have written them, leader epochs and producers are
brought up to the segment's end (format.md section 7, SEG-20 to SEG-22, LOAD-10 to LOAD-12).
"""

from __future__ import annotations

import logging
from typing import Any, Final

from kafkalog._core.plan import RollRules, SegmentTail, plan_append, rows_up_to_epoch
from kafkalog._core.scan import BatchTable, scan
from kafkalog.errors import CorruptRecord
from kafkalog.storage.leader_epoch import LeaderEpochCache
from kafkalog.storage.producer_state import ProducerStateManager
from kafkalog.storage.segment import MAX_RELATIVE_OFFSET, NO_TIMESTAMP_YET, LogSegment
from kafkalog.storage.txn_index import AbortedTxn

_LOG: Final = logging.getLogger(__name__)


def recover_segment(segment: LogSegment, producers: ProducerStateManager, epochs: LeaderEpochCache) -> int:
    """The bytes cut off the end of the segment; its indexes and what `producers` and `epochs` know of it are new.

    SegmentOffsetOverflow where a sound batch has an offset that the segment cannot hold; StorageError.
    """
    offset_index, time_index = segment.offset_index, segment.time_index
    offset_index.reset()
    time_index.reset()
    segment.txn_index.reset()
    rules = RollRules(
        segment.base_offset, MAX_RELATIVE_OFFSET, NO_TIMESTAMP_YET, segment.created_ms, segment.index_interval_bytes
    )
    tail = SegmentTail(offset_slots=offset_index.max_entries, time_slots=time_index.max_entries - 1)
    try:
        for data, table in segment.records.slice(0, segment.size).scanned(check_crc=True):
            rows = sound_rows(table, tail.last_offset)
            fitting = _rows_that_fit(segment, table, rows)
            if fitting:
                whole = table if fitting == len(table) else _first_rows(data, table, fitting)
                tail = _take_over(segment, whole, tail, rules)
                take_over_producers(segment, producers, whole, data)
                take_over_epochs(epochs, whole)
            if fitting < rows:
                segment.ensure_offset_in_range(table.last_offset_of(fitting))
            if rows < len(table):
                _LOG.warning("%s: the batch at byte %d is damaged", segment.path, table.position(rows))
                break
    except CorruptRecord as error:
        _LOG.warning("%s", error)
    cut = segment.records.truncate_to(tail.size)
    if cut:
        _LOG.warning("%s: %d bytes behind the last sound batch were cut off", segment.path, cut)
    offset_index.trim_to_valid_size()
    if tail.max_timestamp >= 0:
        time_index.maybe_append(tail.max_timestamp, tail.offset_of_max_timestamp, skip_full_check=True)
    time_index.trim_to_valid_size()
    return cut


def sound_rows(table: BatchTable, last_offset: int) -> int:
    """How many of the first rows have a right checksum and offsets that rise from above `last_offset` on."""
    rows = len(table) if table.first_invalid < 0 else table.first_invalid
    if rows and table.monotonic and table.first_offset > last_offset:
        return rows
    for row in range(rows):
        if table.last_offset_of(row) <= last_offset:
            return row
        last_offset = table.last_offset_of(row)
    return rows


def _rows_that_fit(segment: LogSegment, table: BatchTable, rows: int) -> int:
    """How many of the first `rows`, whose offsets rise, end within the segment's reach."""
    base = segment.base_offset
    if not rows or base <= table.last_offset_of(0) <= table.last_offset_of(rows - 1) <= base + MAX_RELATIVE_OFFSET:
        return rows
    return next(
        row for row in range(rows) if not base <= table.last_offset_of(row) <= base + MAX_RELATIVE_OFFSET
    )


def _first_rows(data: bytes, table: BatchTable, rows: int) -> BatchTable:
    start = table.position(0)
    return scan(memoryview(data)[: table.position(rows) - start], file_mode=True, base_position=start)


def _take_over(segment: LogSegment, table: BatchTable, tail: SegmentTail, rules: RollRules) -> SegmentTail:
    """The tail behind the batches of `table`, with the index entries that they bring."""
    plan = plan_append(table, 0, tail, rules, segment.created_ms, True, True)
    for last_offset, position, timestamp, its_offset in plan.entries or ():
        segment.offset_index.append(last_offset, position)
        if timestamp >= 0:
            segment.time_index.maybe_append(timestamp, its_offset)
    return plan.tail


def take_over_producers(
    segment: LogSegment, producers: ProducerStateManager, table: BatchTable, data: Any
) -> None:
    """Bring `producers` to the end of `table`, and the transaction index of `segment`, whose batches they are."""
    for txn, stable in producers.replay(table, data):
        if txn.is_aborted:
            segment.add_aborted(AbortedTxn(0, txn.producer_id, txn.first_offset, txn.last_offset, stable))


def take_over_epochs(epochs: LeaderEpochCache, table: BatchTable) -> None:
    """Note the leader epochs that begin in `table` and are not known yet (LOG-59)."""
    while (row := rows_up_to_epoch(table, epochs.latest_epoch)) < len(table):
        epochs.assign(table.leader_epoch(row), table.base_offset(row))
