"""Which bytes of a log are looked at: all of a log that is not large, else windows at equal distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["SAMPLE_BYTES", "WINDOW_BYTES", "Sample", "Window", "windows"]

SAMPLE_BYTES: Final = 128 << 20
"""A log up to this size is read whole; of a larger one as much is read, unless a caller says otherwise."""
WINDOW_BYTES: Final = 1 << 20
_LEAST_WINDOW: Final = 64 << 10


class Window(NamedTuple):
    """`size` bytes of segment number `segment` from about `position` on; at 0 it begins exactly there."""

    segment: int
    position: int
    size: int


class Sample(NamedTuple):
    """How much was looked at: bytes of batches read, of how many there are, in how many places."""

    read_bytes: int
    total_bytes: int
    places: int

    @property
    def is_whole(self) -> bool:
        """True where nothing was left out, so that every count is exact."""
        return self.places == 0

    @property
    def share(self) -> float:
        """The part of the log that was read, 0 to 1."""
        return min(self.read_bytes / self.total_bytes, 1.0) if self.total_bytes else 1.0


def windows(sizes: Sequence[int], most_bytes: int | None) -> tuple[list[Window], bool]:
    """The windows of segments of these sizes, about `most_bytes` (None: all) in sum; and True where that is all.

    The first begins at the log's start and the last ends at its end, so that these are always seen.
    """
    total = sum(sizes)
    if most_bytes is None or total <= most_bytes:
        return [Window(number, 0, size) for number, size in enumerate(sizes) if size], True
    size = min(WINDOW_BYTES, max(_LEAST_WINDOW, most_bytes // 16))
    count = max(2, most_bytes // size)
    found: list[Window] = []
    number, before = 0, 0  # segment, and the bytes of those in front of it
    for at in range(count):
        place = (total - 1) * at // (count - 1)
        while place >= before + sizes[number]:
            before += sizes[number]
            number += 1
        # a window that would run over the segment's end begins earlier, but not in the one before it
        used = found[-1].position + found[-1].size if found and found[-1].segment == number else 0
        position = max(min(place - before, sizes[number] - size), used)
        if position < sizes[number]:
            found.append(Window(number, position, min(size, sizes[number] - position)))
    return found, False
