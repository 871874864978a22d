"""The `.timeindex` file of a segment: maps a time to an offset up to which no record is later."""

from __future__ import annotations

from struct import Struct
from typing import Final

from kafkalog._core.log.index_append import extend_times
from kafkalog._core.log.values import TimestampOffset
from kafkalog.errors import CorruptIndex, IllegalArgument, IllegalState, InvalidOffset
from kafkalog.storage.index.abstract_index import AbstractIndex, IndexEntry
from kafkalog.storage.index.segment_index import TimeKind

ENTRY: Final = Struct(">qi")
"""Timestamp, and offset relative to the base offset."""


class TimeIndex(TimeKind, AbstractIndex[TimestampOffset]):
    """A writable, sparse time index.

    One slot is reserved for the final entry, written when the segment becomes inactive.
    """

    __slots__ = ("_last",)

    def _refresh_last(self) -> None:
        count = self._entries.count
        self._last = self._entries.entry(count - 1) if count else TimestampOffset(-1, self.base_offset)

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry; (-1, base offset) if there is none (TIDX-7)."""
        self._check_open()
        return self._last

    @property
    def is_full(self) -> bool:
        """True if only the slot of the final entry is free (TIDX-2)."""
        full: bool = self._entries.count >= self.max_entries - 1
        return full

    def maybe_append(self, timestamp: int, offset: int, skip_full_check: bool = False) -> None:
        """Add an entry; do nothing if `timestamp` is that of the last entry (TIDX-4).

        `skip_full_check` is for the final entry of a segment, which uses the reserved slot (TIDX-3). Checked in this
        order: IllegalState if read-only; IllegalArgument if full; InvalidOffset for an offset lower than the last;
        IllegalState for a timestamp lower than the last, or (the reference's buffer overflow) for an entry beyond
        the last slot; IndexOffsetOverflow; StorageError. None of them changes anything.
        """
        count, room, last = self._entries.count, self._file.length // 12, self._last
        if self._read_only:
            if timestamp == last.timestamp and offset >= last.offset:
                return
            raise self._not_writable()
        if not skip_full_check and count >= room - 1:
            hint = "resize the index, or roll a new segment"
            raise IllegalArgument(
                f"Attempt to append to a full time index (size = {count}).", path=self.path, hint=hint
            )
        if count and offset < last.offset:
            raise InvalidOffset(
                f"Attempt to append an offset ({offset}) to slot {count} no larger than the last offset appended "
                f"({last.offset})",
                path=self.path,
                offset=offset,
            )
        if count and timestamp < last.timestamp:
            raise IllegalState(
                f"Attempt to append a timestamp ({timestamp}) to slot {count} no larger than the last timestamp "
                f"appended ({last.timestamp})",
                path=self.path,
                offset=offset,
            )
        if timestamp <= last.timestamp:
            return
        relative = self.relative_offset(offset)
        if count >= room:
            raise IllegalState(f"the time index has no free slot ({count} used)", path=self.path, offset=offset)
        self._append(ENTRY.pack(timestamp, relative), count)
        self._last = TimestampOffset(timestamp, offset)

    def extend(self, entries: list[IndexEntry]) -> None:
        """Add the entries of one write that have a time, in one write; raises as `maybe_append` for single entries."""
        if not extend_times(self, entries):
            for _, _, timestamp, its_offset in entries:
                if timestamp >= 0:
                    self.maybe_append(timestamp, its_offset)

    def sanity_check(self) -> None:
        """Raise CorruptIndex if the file is visibly damaged (TIDX-6)."""
        if self._entries.count:
            first = self._entries.entry(0).timestamp
            if self._last.timestamp < first:
                raise CorruptIndex(
                    "Corrupt time index found, the time index has non-zero size but the last timestamp is "
                    f"{self._last.timestamp} which is less than the first timestamp {first}",
                    path=self.path,
                )
            if self._last.offset < self.base_offset:
                raise CorruptIndex(
                    "Corrupt time index found, the time index has non-zero size but the last offset is "
                    f"{self._last.offset} which is less than the base offset {self.base_offset}",
                    path=self.path,
                )
        if self.length % self.entry_size:
            raise CorruptIndex(
                f"Time index file is corrupt, found {self.length} bytes which is neither positive nor a multiple of "
                f"{self.entry_size}",
                path=self.path,
            )
