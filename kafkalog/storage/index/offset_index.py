"""The `.index` file of a segment: maps an offset to the position of a batch at or before it."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from kafkalog._core.log.index_append import extend_offsets
from kafkalog._core.log.values import OffsetPosition
from kafkalog.errors import CorruptIndex, IllegalArgument, InvalidOffset
from kafkalog.storage.index.abstract_index import AbstractIndex, IndexEntry
from kafkalog.storage.index.segment_index import OffsetKind

if TYPE_CHECKING:
    from kafkalog._core.log.index import OffsetEntries

MAX_POSITION: Final = 2**31 - 1
_ENTRY: Final = Struct(">ii")


class OffsetIndex(OffsetKind, AbstractIndex[OffsetPosition]):
    """A writable, sparse offset index. It has no checksum: after an unclean shutdown it is rebuilt."""

    __slots__ = ("_last_offset",)
    _entries: OffsetEntries

    def _refresh_last(self) -> None:
        count = self._entries.count
        self._last_offset = self._entries.entry(count - 1).offset if count else self.base_offset

    @property
    def last_offset(self) -> int:
        """Offset of the last entry; the base offset if there is none."""
        self._check_open()
        return self._last_offset

    def append(self, offset: int, position: int) -> None:
        """Add an entry for the batch that ends with `offset` and begins at `position`.

        Checked in this order (format.md section 14, B3): IllegalState if read-only; IllegalArgument if full (IDX-4)
        or the position is outside 0..2^31-1; InvalidOffset unless the offset is greater than the last (IDX-3);
        IndexOffsetOverflow (IDX-6); StorageError. None of them changes anything.
        """
        count = self._entries.count
        if self._read_only:
            raise self._not_writable()
        if count >= self._file.length // 8:
            hint = "resize the index, or roll a new segment"
            raise IllegalArgument(f"Attempt to append to a full index (size = {count}).", path=self.path, hint=hint)
        if count and offset <= self._last_offset:
            raise InvalidOffset(
                f"Attempt to append an offset {offset} to position {count} no larger than the last offset appended "
                f"({self._last_offset})",
                path=self.path,
                offset=offset,
            )
        relative = self.relative_offset(offset)
        if not 0 <= position <= MAX_POSITION:
            message = f"position {position} is outside a segment file (0..{MAX_POSITION})"
            raise IllegalArgument(message, path=self.path, offset=offset)
        self._append(_ENTRY.pack(relative, position), count)
        self._last_offset = offset

    def extend(self, entries: list[IndexEntry]) -> None:
        """Add the entries of one write in one write; raises as `append`, after adding those before the bad one."""
        if not extend_offsets(self, entries):
            for last_offset, position, _, _ in entries:
                self.append(last_offset, position)

    def sanity_check(self) -> None:
        """Raise CorruptIndex if the file is visibly damaged (IDX-12)."""
        if self._entries.count and self._last_offset < self.base_offset:
            raise CorruptIndex(
                f"Corrupt index found, the index has non-zero size but the last offset is {self._last_offset} which is "
                f"less than the base offset {self.base_offset}",
                path=self.path,
            )
        if self.length % self.entry_size:
            raise CorruptIndex(
                f"Index file is corrupt, found {self.length} bytes which is neither positive nor a multiple of "
                f"{self.entry_size}",
                path=self.path,
            )
