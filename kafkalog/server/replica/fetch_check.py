"""The check of what a fetch sends, made once for the batches that lay on disk when their log was opened.

A client skips what lies below its position. So a size or a base offset that is damaged would lead it past sound
records without a word. What the server itself appends needs no check; checksums are the client's to compare.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from kafkalog._core.scan import REASON_SIZE, BatchTable, scan
from kafkalog.errors import CorruptRecord
from kafkalog.storage.damage import bad_row, damage_at, sound_rows
from kafkalog.storage.file_slice import LOG_OVERHEAD, FileSlice, claimed_size
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.log_walk import sound_chunks
from kafkalog.storage.segment_reader import Chunk, Extent
from kafkalog.types import FetchDataInfo

__all__ = ["FetchCheck"]

_LOG: Final = logging.getLogger(__name__)
MOST_BYTES: Final = 1 << 20
"""What is checked for one answer; a longer one is cut, and the client fetches the rest."""
OFFSET_BYTES: Final = 8
MOST_PLACES: Final = 1000
"""Damaged places that are remembered, so that each is logged once."""


class _Checked(NamedTuple):
    """How far a segment is checked without a break: up to a byte, and the offset that comes next there."""

    position: int
    next_offset: int


class FetchCheck:
    """The check of one log's fetches. Threads: the server's loop."""

    __slots__ = ("_checked", "_cuts", "_last_base", "_last_size", "_places", "log")

    def __init__(self, log: UnifiedLog) -> None:
        self.log = log
        active = log.active_segment
        self._last_base, self._last_size = active.base_offset, active.size
        self._cuts = log.cuts
        self._checked: dict[int, _Checked] = {}
        self._places: set[tuple[str | None, int | None]] = set()

    def checked(self, offset: int, found: FetchDataInfo) -> FileSlice:
        """Return the data that a fetch from `offset` found, up to the first damage.

        CorruptRecord where `offset` lies in the damage; it is logged, and counted in the log's metrics.
        """
        data: FileSlice = found.records
        if not data.size or not self._is_old(offset, found):
            return data
        try:
            return self._old(offset, found, data)
        except CorruptRecord as error:
            self._report(error)
            raise

    def _is_old(self, offset: int, found: FetchDataInfo) -> bool:
        """Return True if anything from the segment of `offset` to the data was there when the log was opened."""
        segment = self.log.segment_of(offset)
        base = found.fetch_offset_metadata.segment_base_offset
        first = base if segment is None else min(base, segment.base_offset)
        position = found.fetch_offset_metadata.relative_position_in_segment if first == base else 0
        return first < self._last_base or first == self._last_base and position < self._last_size

    def _old(self, offset: int, found: FetchDataInfo, data: FileSlice) -> FileSlice:
        if self.log.cuts != self._cuts:  # positions mean other batches since
            self._cuts = self.log.cuts
            self._checked.clear()
        base = found.fetch_offset_metadata.segment_base_offset
        known = self._checked.get(base)
        if known is not None and known.position == data.position and known.next_offset <= offset:
            expected = known.next_offset
        else:
            expected = self._walked_to(offset, base, data)
        extent = self.log.extent(max(expected, base))
        size = max(min(data.size, MOST_BYTES), min(claimed_size(data.slice(0, LOG_OVERHEAD).read()), data.size))
        sent, checked = _sound_part(data.slice(0, size), extent, expected)
        self._checked[base] = checked
        return data if sent.size == data.size else sent

    def _walked_to(self, offset: int, base: int, data: FileSlice) -> int:
        """Return the base offset of the batch at the beginning of `data`, where a walk to `offset` leads there too."""
        chunk = self._first_chunk(offset)
        position = None if chunk is None else chunk.batches.position(chunk.first)
        if chunk is None or chunk.path != data.path or position != data.position:
            what = "the sizes of the batches before this one lead past sound ones"
            raise damage_at(what, data.path, offset, data.position)
        batch = chunk.batches[chunk.first]
        return base if batch.magic < 2 and batch.compression else max(batch.base_offset, base)

    def _first_chunk(self, offset: int) -> Chunk | None:
        """Return the batches from the one that holds `offset`, or the next one, on.

        CorruptRecord where damage hides it.
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
        self.log.metrics.damaged_reads += 1
        place = error.path, error.position
        if place not in self._places and len(self._places) < MOST_PLACES:
            self._places.add(place)
            _LOG.error("%s: a fetch met damage: %s", self.log.name, error)


def _sound_part(data: FileSlice, extent: Extent, expected: int) -> tuple[FileSlice, _Checked]:
    """Return what of `data` to send, and how far its batches follow one another.

    That is all of it, with the part of a batch at its end, or the whole batches before the first damage. CorruptRecord
    where there is not one.
    """
    raw = data.read()
    table = scan(raw, check_crc=False, file_mode=True, base_position=data.position)
    rows = good = sound_rows(table, raw, expected, extent.bound)
    if good and good == len(table) and _is_contradicted(table, expected, data, extent):
        rows -= 1
    size = table.position(rows - 1) + table.size(rows - 1) - data.position if rows else 0
    if rows:
        expected = table.last_offset_of(rows - 1) + 1
    checked = _Checked(data.position + size, expected)
    if rows < len(table):
        if not rows:
            raise bad_row(table, 0, expected, extent.bound, data.path)
        return data.slice(0, size), checked
    claimed = claimed_size(raw[size : size + LOG_OVERHEAD])
    if table.stop_reason == REASON_SIZE or checked.position + claimed > extent.data.size:
        if not rows:
            what = f"the size field {claimed - LOG_OVERHEAD} is not that of the batch here"
            raise damage_at(what, data.path, expected, data.position)
        return data.slice(0, size), checked
    return data, checked


def _is_contradicted(table: BatchTable, expected: int, data: FileSlice, extent: Extent) -> bool:
    """Return True if the last row begins behind a gap, and the next batch shows that its base offset is too high."""
    row = len(table) - 1
    end = table.position(row) + table.size(row)
    if not table.begins_behind_gap(row, expected) or end >= extent.data.size:
        return False
    head = FileSlice(data.file, end, OFFSET_BYTES).read()
    return len(head) == OFFSET_BYTES and int.from_bytes(head, "big", signed=True) <= table.last_offset_of(row)
