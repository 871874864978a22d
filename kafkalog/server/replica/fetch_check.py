"""The check of fetched data, made once for batches that were on disk when their log was opened.

A client skips the records below its position, so a damaged size or base offset would silently lead it past sound
records. Batches that the server itself appends need no check. The client compares checksums.
"""

from __future__ import annotations

import logging
import threading
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from kafkalog._core.batch.scan import REASON_SIZE, BatchTable, scan
from kafkalog.errors import CorruptRecord
from kafkalog.storage.damage import bad_row, damage_at, sound_rows
from kafkalog.storage.file_slice import LOG_OVERHEAD, FileSlice, claimed_size
from kafkalog.storage.lazy_file import DataFile
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.log_walk import sound_chunks
from kafkalog.storage.segment_reader import Chunk, Extent
from kafkalog.types import FetchDataInfo, Isolation
from kafkalog.util.waiting import MustWait, may_wait

_LOG: Final = logging.getLogger(__name__)
MAX_BYTES: Final = 1 << 20
"""Limit in bytes for the check of one answer; a longer answer is cut, and the client fetches the rest."""
OFFSET_BYTES: Final = 8
MAX_RANGES: Final = 16
"""Number of separate ranges of a file that are remembered as checked."""
MAX_PLACES: Final = 1000
"""Number of damaged places that are remembered, so that each is logged once."""
_REPORTING: Final = threading.Lock()
_SKIPS: Final = "the sizes of earlier batches skip sound batches"


class _Checked(NamedTuple):
    """Batches of a segment that are checked without a break; `next_offset` follows them."""

    start: int
    end: int
    next_offset: int


class FetchCheck:
    """Checked reads of one log for fetches. Threads: any."""

    __slots__ = ("_checked", "_fields", "_last_base", "_last_size", "_places", "log")

    def __init__(self, log: UnifiedLog) -> None:
        self.log = log
        self._fields = log.fields
        active = log.active_segment
        self._last_base, self._last_size = active.base_offset, active.size
        self._checked: WeakKeyDictionary[DataFile, tuple[int, tuple[_Checked, ...]]] = WeakKeyDictionary()
        self._places: set[tuple[str | None, int | None]] = set()

    def read(self, offset: int, max_length: int, isolation: Isolation, min_one_message: bool) -> FetchDataInfo:
        """Return the result of `UnifiedLog.read`, with the data up to the first damage.

        CorruptRecord if `offset` lies in the damage; it is logged, and counted in the log's metrics. Within `at_once`,
        MustWait if the check has to read data.
        """
        log, fields = self.log, self._fields
        while True:
            truncations, segments = fields.truncation_count, fields.state.segments
            try:
                found = log.read(offset, max_length, isolation, min_one_message)
                place = found.fetch_offset_metadata
                if found.first_entry_incomplete or not found.records.size:
                    if place.message_offset > offset and self._was_opened_with(offset):
                        self._check_hole(offset, place.message_offset)
                    return found
                base, last_base = place.segment_base_offset, self._last_base
                if base > last_base or base == last_base and place.relative_position_in_segment >= self._last_size:
                    if base <= offset or not self._was_opened_with(offset):  # its segment, or one behind it
                        return found
                data = self._checked_part(offset, found, truncations)
                if data is None and may_wait():
                    data = self._check_part(offset, found, truncations)
            except CorruptRecord as error:
                if not may_wait():
                    raise MustWait from error
                if log.truncation_count_when_idle() == truncations and log.segments is segments:
                    self._report(error)
                    raise
                continue  # the files changed meanwhile
            if data is None:
                raise MustWait
            if not may_wait() or log.truncation_count_when_idle() == truncations:
                found.records = data
                return found

    def _check_hole(self, offset: int, found_offset: int) -> None:
        """Raise CorruptRecord if damage, and not a gap, led a read from `offset` to `found_offset` without records."""
        if not may_wait():
            raise MustWait
        chunk = self._first_chunk(offset)
        if chunk is not None and chunk.batches.last_offset_of(chunk.first) < found_offset:
            raise damage_at(_SKIPS, chunk.path, offset, chunk.batches.position(chunk.first))

    def _was_opened_with(self, offset: int) -> bool:
        """Return True if the segment of `offset`, which begins before the data's, existed when the log was opened."""
        segment = self.log.segment_of(offset)
        if segment is None:
            return False
        return segment.base_offset < self._last_base or segment.base_offset == self._last_base and self._last_size > 0

    def _ranges(self, data: FileSlice, truncations: int) -> tuple[_Checked, ...]:
        """Return the checked ranges of the file of `data`, or none if the log was truncated since."""
        counted, ranges = self._checked.get(data.file, (truncations, ()))
        return ranges if counted == truncations else ()

    def _checked_part(self, offset: int, found: FetchDataInfo, truncations: int) -> FileSlice | None:
        """Return the checked part of the data, or None if too little is checked.

        Data after a gap is treated as unchecked: only a batch that holds `offset` proves that it is the right one.
        """
        data: FileSlice = found.records
        place = found.fetch_offset_metadata
        if place.message_offset > offset:
            return None
        for one in self._ranges(data, truncations):
            if one.start <= data.position < one.end:
                if data.end <= one.end or self._last_base == place.segment_base_offset and one.end >= self._last_size:
                    return data
                return data.slice(0, one.end - data.position) if one.end - data.position >= MAX_BYTES else None
        return None

    def _check_part(self, offset: int, found: FetchDataInfo, truncations: int) -> FileSlice:
        data: FileSlice = found.records
        base = found.fetch_offset_metadata.segment_base_offset
        before = next((one for one in self._ranges(data, truncations) if one.end == data.position), None)
        if before is not None and before.next_offset <= offset and found.fetch_offset_metadata.message_offset <= offset:
            expected = before.next_offset
        else:
            expected = self._base_offset_at(offset, base, data)
        extent = self.log.extent(max(expected, base, min(offset, self.log.log_start_offset)))  # it may lie in the batch
        size = max(min(data.size, MAX_BYTES), min(claimed_size(data.slice(0, LOG_OVERHEAD).read()), data.size))
        sent, checked = _sound_part(data.slice(0, size), extent, expected)
        self._remember(data, checked, truncations)
        return data if sent.size == data.size else sent

    def _remember(self, data: FileSlice, checked: _Checked, truncations: int) -> None:
        """Record a checked part of the file of `data`, merged with the ranges that it touches."""
        if checked.start == checked.end:
            return
        others = []
        for one in self._ranges(data, truncations):
            if one.end < checked.start or checked.end < one.start:
                others.append(one)
            else:
                last = max(one, checked, key=lambda part: part.end)
                checked = last._replace(start=min(one.start, checked.start))
        self._checked[data.file] = truncations, (*others[1 - MAX_RANGES :], checked)

    def _base_offset_at(self, offset: int, base: int, data: FileSlice) -> int:
        """Return the base offset of the batch at the start of `data`, if a walk to `offset` also leads there."""
        chunk = self._first_chunk(offset)
        position = None if chunk is None else chunk.batches.position(chunk.first)
        if chunk is None or chunk.path != data.path or position != data.position:
            raise damage_at(_SKIPS, data.path, offset, data.position)
        batch = chunk.batches[chunk.first]
        return base if batch.magic < 2 and batch.compression else max(batch.base_offset, base)

    def _first_chunk(self, offset: int) -> Chunk | None:
        """Return the batches from the one that holds `offset`, or the next one, on.

        CorruptRecord if damage hides it.
        """

        def damaged(error: CorruptRecord) -> None:
            if error.next_sound_offset is None or error.next_sound_offset > offset:
                raise error

        while True:
            extent = self.log.extent(offset)
            chunk = next(sound_chunks(extent, offset, extent.bound, damaged), None)
            if chunk is not None or extent.is_last:
                return chunk
            offset = max(offset, extent.bound)

    def _report(self, error: CorruptRecord) -> None:
        place = error.path, error.position
        with _REPORTING:
            self.log.metrics.damaged_reads += 1
            is_new = place not in self._places and len(self._places) < MAX_PLACES
            if is_new:
                self._places.add(place)
        if is_new:
            _LOG.error("%s: a fetch found damage: %s", self.log.name, error)


def _sound_part(data: FileSlice, extent: Extent, expected: int) -> tuple[FileSlice, _Checked]:
    """Return the part of `data` to send, and the range in which its batches follow one another.

    The part is all of `data`, including an incomplete batch at its end, or the whole batches before the first damage.
    CorruptRecord if there are none.
    """
    raw = data.read()
    table = scan(raw, check_crc=False, file_mode=True, base_position=data.position)
    rows = good = sound_rows(table, raw, expected, extent.bound)
    if good and good == len(table) and _is_contradicted(table, expected, data, extent):
        rows -= 1
    size = table.position(rows - 1) + table.size(rows - 1) - data.position if rows else 0
    if rows:
        expected = table.last_offset_of(rows - 1) + 1
    checked = _Checked(data.position, data.position + size, expected)
    if rows < len(table):
        if not rows:
            raise bad_row(table, 0, expected, extent.bound, data.path)
        return data.slice(0, size), checked
    claimed = claimed_size(raw[size : size + LOG_OVERHEAD])
    if table.stop_reason == REASON_SIZE or checked.end + claimed > extent.data.size:
        if not rows:
            what = f"the size field {claimed - LOG_OVERHEAD} does not match the batch"
            raise damage_at(what, data.path, expected, data.position)
        return data.slice(0, size), checked
    return data, checked


def _is_contradicted(table: BatchTable, expected: int, data: FileSlice, extent: Extent) -> bool:
    """Return True if the last row begins after a gap, and the next batch shows that its base offset is too high."""
    row = len(table) - 1
    end = table.position(row) + table.size(row)
    if not table.begins_behind_gap(row, expected) or end >= extent.data.size:
        return False
    head = FileSlice(data.file, end, OFFSET_BYTES).read()
    return len(head) == OFFSET_BYTES and int.from_bytes(head, "big", signed=True) <= table.last_offset_of(row)
