"""Offsets of a source and the offsets that its records got in the target: exact, in runs without gaps."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple


class _Run(NamedTuple):
    """Records at consecutive offsets: the first one's offset at both ends, and their number."""

    source: int
    target: int
    length: int


class OffsetMap:
    """Offsets of the records of a source partition in the target, in ascending order.

    `source_end` and `target_end` are the offsets after the part that is mapped.

    >>> offsets = OffsetMap(5, 0)
    >>> offsets.add(5, 2)
    >>> offsets.add(9, 1)
    >>> offsets.close(12)
    >>> [offsets.translate(offset) for offset in (0, 5, 6, 7, 9, 10, 12)]
    [0, 0, 1, 2, 2, 3, 3]
    """

    def __init__(self, source_start: int, target_start: int) -> None:
        self.source_start = source_start
        self.target_start = target_start
        self.source_end = source_start
        self.target_end = target_start
        self._runs: list[_Run] = []

    @property
    def is_identity(self) -> bool:
        """True if every record has the same offset at both ends."""
        return all(run.source == run.target for run in self._runs)

    def add(self, source: int, count: int) -> None:
        """Map the next `count` records of the source, which begin at offset `source`, to the next ones of the target.

        Offsets never go back: the caller checks those that it reads.
        """
        assert source >= self.source_end and count > 0, (source, self.source_end, count)
        last = self._runs[-1] if self._runs else None
        if last is not None and source == last.source + last.length:
            self._runs[-1] = last._replace(length=last.length + count)
        else:
            self._runs.append(_Run(source, self.target_end, count))
        self.source_end = source + count
        self.target_end += count

    def close(self, source_end: int) -> None:
        """Extend the part that is mapped to `source_end`; no record lies between."""
        self.source_end = max(self.source_end, source_end)

    def translate(self, offset: int) -> int:
        """Return the target's offset of the first mapped record at or after `offset`; its end if there is none.

        A reader at `offset` in the source and one at the result in the target read the same records next.
        """
        at = bisect_right(self._runs, offset, key=lambda run: run.source) - 1
        if at < 0:
            return self.target_start
        run = self._runs[at]
        return run.target + min(offset - run.source, run.length)
