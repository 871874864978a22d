"""What the map's pass went through, stretch by stretch, so that the copy need not look at all of it again.

Its checksums were compared, and where no record of it is the last of its key it is not even read.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, NamedTuple

MOST_STRETCHES: Final = 1 << 15
"""About 8 MB of them; with buffers of 256 KiB they tell of 8 GiB. What lies behind is read and compared again."""


class Stretch(NamedTuple):
    """Whole batches that lie together in a segment, as they came in one chunk.

    `is_plain` says that the keys alone decide about all of their `messages`, whose offsets lie between these two: all
    of format v2, none of a transaction, none without a key.
    """

    position: int
    size: int
    first_offset: int
    last_offset: int
    messages: int
    is_plain: bool


class Stretches:
    """The stretches of a log's segments, by the base offset of the segment and in the order of the file.

    Threads: belongs to the clean.
    """

    __slots__ = ("_all", "_count", "_most", "_positions")

    def __init__(self, most: int = MOST_STRETCHES) -> None:
        self._all: dict[int, list[Stretch]] = {}
        self._positions: dict[int, list[int]] = {}
        self._count = 0
        self._most = most

    def add(self, base_offset: int, stretch: Stretch) -> None:
        """The next one of a segment; those that are too many are forgotten."""
        if self._count < self._most:
            self._count += 1
            self._all.setdefault(base_offset, []).append(stretch)
            self._positions.setdefault(base_offset, []).append(stretch.position)

    def at(self, base_offset: int, position: int) -> tuple[Stretch | None, int]:
        """The stretch that begins at a position of a segment, or None, and how far it is to the end of that part.

        The part ends with the stretch, else where the next one begins; 0 where none does.
        """
        positions = self._positions.get(base_offset, [])
        place = bisect_left(positions, position)
        if place == len(positions):
            return None, 0
        if positions[place] > position:
            return None, positions[place] - position
        stretch = self._all[base_offset][place]
        return stretch, stretch.size

    def __len__(self) -> int:
        return self._count
