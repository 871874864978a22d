"""Byte ranges already verified while the offset map was built.

The copy does not check their checksums again. It does not even read a range without any record that is the last of its
key.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, NamedTuple

MAX_RANGES: Final = 1 << 15
"""About 8 MB of them; with buffers of 256 KiB they cover 8 GiB. Later ranges are read and verified again."""


class ScannedRange(NamedTuple):
    """Complete batches that are adjacent in a segment and came in one chunk.

    `is_plain` means that keys alone decide about all `messages`, whose offsets lie from `first_offset` to
    `last_offset`: all have format v2 and a key, and none is part of a transaction.
    """

    position: int
    size: int
    first_offset: int
    last_offset: int
    messages: int
    is_plain: bool


class ScannedRanges:
    """The verified ranges of a log's segments, by the segment's base offset and in file order.

    Threads: belongs to the clean.
    """

    __slots__ = ("_all", "_count", "_most", "_positions")

    def __init__(self, most: int = MAX_RANGES) -> None:
        self._all: dict[int, list[ScannedRange]] = {}
        self._positions: dict[int, list[int]] = {}
        self._count = 0
        self._most = most

    def add(self, base_offset: int, scanned_range: ScannedRange) -> None:
        """Add the next range of a segment; ranges beyond the limit are ignored."""
        if self._count < self._most:
            self._count += 1
            self._all.setdefault(base_offset, []).append(scanned_range)
            self._positions.setdefault(base_offset, []).append(scanned_range.position)

    def find(self, base_offset: int, position: int) -> tuple[ScannedRange | None, int]:
        """Return the range that begins at a position of a segment, or None, and the size of that part in bytes.

        The part ends with the range, else where the next range begins; 0 if there is none.
        """
        positions = self._positions.get(base_offset, [])
        place = bisect_left(positions, position)
        if place == len(positions):
            return None, 0
        if positions[place] > position:
            return None, positions[place] - position
        scanned_range = self._all[base_offset][place]
        return scanned_range, scanned_range.size

    def __len__(self) -> int:
        return self._count
