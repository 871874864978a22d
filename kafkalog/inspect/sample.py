"""Sampling: the bytes of a log that are read, all of a small log or equally spaced windows of a large one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

SAMPLE_BYTES: Final = 128 << 20
"""Largest log in bytes that is read whole, and the default number of bytes read of a larger one."""
WINDOW_BYTES: Final = 1 << 20
_MIN_WINDOW: Final = 64 << 10


class Window(NamedTuple):
    """`size` bytes of segment number `segment` from about `position` on; position 0 is exact."""

    segment: int
    position: int
    size: int


class Sample(NamedTuple):
    """Extent of a sample: bytes of batches read, their total, and the number of places; 0 places is everything."""

    read_bytes: int
    total_bytes: int
    places: int

    @property
    def is_whole(self) -> bool:
        """True if everything was read, so that every count is exact."""
        return self.places == 0

    @property
    def share(self) -> float:
        """Share of the log that was read, 0 to 1."""
        return min(self.read_bytes / self.total_bytes, 1.0) if self.total_bytes else 1.0


def windows(sizes: Sequence[int], most_bytes: int | None) -> tuple[list[Window], bool]:
    """Return windows of about `most_bytes` in sum (None for all) over segments of these sizes, and True if that is all.

    The first window begins at the log's start and the last ends at its end, so both are always read.
    """
    total = sum(sizes)
    if most_bytes is None or total <= most_bytes:
        return [Window(number, 0, size) for number, size in enumerate(sizes) if size], True
    size = min(WINDOW_BYTES, max(_MIN_WINDOW, most_bytes // 16))
    count = max(2, most_bytes // size)
    found: list[Window] = []
    number, before = 0, 0  # segment number, and bytes of the segments before it
    for at in range(count):
        place = (total - 1) * at // (count - 1)
        while place >= before + sizes[number]:
            before += sizes[number]
            number += 1
        # a window that would run past the segment's end begins earlier, but not inside the previous window
        used = found[-1].position + found[-1].size if found and found[-1].segment == number else 0
        position = max(min(place - before, sizes[number] - size), used)
        if position < sizes[number]:
            found.append(Window(number, position, min(size, sizes[number] - position)))
    return found, False
