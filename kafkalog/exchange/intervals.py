"""Sets of offsets as disjoint half-open ranges."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator


class OffsetSet:
    """Disjoint ranges [start, stop) of offsets, in order."""

    __slots__ = ("_ranges",)

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._ranges: list[tuple[int, int]] = []
        for start, stop in ranges:
            self.add(start, stop)

    def overlaps(self, start: int, stop: int) -> bool:
        """Return True if some offset of [start, stop) is in the set."""
        at = bisect_left(self._ranges, (start, start))
        before = at > 0 and self._ranges[at - 1][1] > start
        return start < stop and (before or (at < len(self._ranges) and self._ranges[at][0] < stop))

    def add(self, start: int, stop: int) -> None:
        """Add a range; raise ValueError if it overlaps the set."""
        if self.overlaps(start, stop):
            raise ValueError(f"[{start}, {stop}) overlaps the set")
        if start < stop:
            self._ranges.insert(bisect_left(self._ranges, (start, stop)), (start, stop))

    def missing(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of [start, stop) that are not in the set, in order."""
        for first, last in self._ranges:
            if last <= start:
                continue
            if first >= stop:
                break
            if start < first:
                yield start, first
            start = last
        if start < stop:
            yield start, stop

    @property
    def end(self) -> int:
        """Offset after the last one in the set; 0 for an empty set."""
        return self._ranges[-1][1] if self._ranges else 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._ranges)

    def __len__(self) -> int:
        return len(self._ranges)

    def __repr__(self) -> str:
        return f"OffsetSet({self._ranges})"
