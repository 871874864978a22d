"""Rebuild of a segment's indexes in memory by the rules of recovery (SEG-22).

These are the rules of appending, plus a last time entry.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from kafkalog._core.log.plan import plan_append
from kafkalog._core.log.roll import RollRules, SegmentTail
from kafkalog.storage.file_slice import FileSlice
from kafkalog.storage.segment import MAX_RELATIVE_OFFSET, NO_TIMESTAMP_YET
from kafkalog.tools.verify.segment import SegmentFacts
from kafkalog.util.fileio import FileSystem
from kafkalog.util.os_errors import os_errors

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


class IndexRules(NamedTuple):
    """A topic's `index.interval.bytes` and `segment.index.bytes`."""

    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 << 20


def rebuilt_indexes(
    facts: SegmentFacts, rules: IndexRules, fs: FileSystem, *, joined: Sequence[tuple[int, int]] | None = None
) -> tuple[bytes, bytes]:
    """Return the content of `.index` and `.timeindex` for the sound batches of a segment; StorageError.

    With `joined` they are for a segment that has only these ranges of its bytes, one after the other. Invalid entries
    (an offset below the base, or more than 2^31-1 above it) are left out.
    """
    offsets, times = bytearray(), bytearray()
    base = facts.base_offset
    roll = RollRules(base, MAX_RELATIVE_OFFSET, NO_TIMESTAMP_YET, 0, rules.index_interval_bytes)
    slots = rules.segment_index_bytes // _OFFSET_ENTRY.size, rules.segment_index_bytes // _TIME_ENTRY.size - 1
    tail = SegmentTail(offset_slots=slots[0], time_slots=slots[1])

    def add_time(timestamp: int, offset: int) -> None:
        if timestamp >= 0 and 0 <= offset - base <= MAX_RELATIVE_OFFSET:
            times.extend(_TIME_ENTRY.pack(timestamp, offset - base))

    with os_errors("read", facts.path), fs.open_file(facts.path, "r") as file:
        for start, end in facts.good if joined is None else joined:
            tail = _moved_to(tail, start) if joined is None else tail
            for table in FileSlice(file, start, end - start).tables():
                plan = plan_append(table, 0, tail, roll, 0, True, True)
                for last_offset, position, timestamp, its_offset in plan.entries or ():
                    if 0 <= last_offset - base <= MAX_RELATIVE_OFFSET:
                        offsets += _OFFSET_ENTRY.pack(last_offset - base, position)
                    add_time(timestamp, its_offset)
                if plan.tail is None:
                    break  # an offset that no entry of this segment can hold
                tail = plan.tail
    if tail.max_timestamp > tail.last_time_entry:
        add_time(tail.max_timestamp, tail.offset_of_max_timestamp)
    return bytes(offsets), bytes(times)


def _moved_to(tail: SegmentTail, position: int) -> SegmentTail:
    """Return the tail after damage: counts since the last entry continue, the position changes."""
    if tail.size == position:
        return tail
    return SegmentTail(
        position, tail.last_offset, tail.max_timestamp, tail.offset_of_max_timestamp, tail.rolling_timestamp,
        tail.bytes_since_index_entry, tail.offset_slots, tail.time_slots, tail.last_time_entry,
    )  # fmt: skip
