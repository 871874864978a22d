"""The parts of a log that may hold records with some keys: those that the key indexes leave, and what has no index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkalog._core.keys.key_index import KeyIndex
from kafkalog._core.keys.key_walk import hash_key
from kafkalog.errors import KafkalogError
from kafkalog.reading.source import truncation_count

if TYPE_CHECKING:
    from kafkalog.keys.lookup import KeyLookup
    from kafkalog.keys.part import Part

MOST_KEYS: Final = 1000
"""Keys up to which indexes are searched for each of them."""
NEAR_OFFSETS: Final = 64
"""Offsets between two records up to which those between them are read too."""
MOST_OFFSETS: Final = 1 << 17
"""Records with one of the keys up to which a segment's are listed, 10 MB of memory; one with more is read whole."""
RANGE_BYTES: Final = 64 << 10
"""Bytes that reading one range takes; where all of them would take as many as the segment, it is read whole."""


class KeyRanges:
    """The parts of a log that may hold records with one of some keys, for one reading of it. Threads: one.

    A segment without an index, and one whose index does not fit it, is read, and so is the active one. Indexes are
    opened at the first call, and searched when the iteration reaches their segments. The reader compares the keys: a
    hash may be that of another one.
    """

    def __init__(self, lookup: KeyLookup, keys: frozenset[bytes]) -> None:
        self._lookup = lookup
        self._keys = keys
        self._truncations = -1
        self._parts: list[Part] | None = None

    def possible(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of [start, stop), rising."""
        if self._parts is None:
            self._truncations = truncation_count(self._lookup.source)
            self._parts = self._indexed()
        at = start
        for part in self._parts:
            low, high = max(at, part.base_offset), min(stop, part.bound)
            if low >= high or self._is_truncated():
                continue
            offsets = self._offsets(part, low, high)
            if offsets is None:
                continue
            if at < low:
                yield at, low
            for first, last in _joined(offsets):
                if self._is_truncated():  # other records may have these offsets
                    yield first, stop
                    return
                yield first, last
            at = high
        if at < stop:
            yield at, stop

    def _is_truncated(self) -> bool:
        return truncation_count(self._lookup.source) != self._truncations

    def _indexed(self) -> list[Part]:
        lookup = self._lookup
        if len(self._keys) > MOST_KEYS:
            return []
        try:
            if not lookup.place.base_offsets():
                return []
            with lookup.parts.lock:
                return lookup.parts.indexed()
        except KafkalogError:  # reading meets it
            return []

    def _offsets(self, part: Part, start: int, stop: int) -> list[int] | None:
        """Return the offsets in [start, stop) of a part that may hold one of the keys, rising; None to read all."""
        found: set[int] = set()
        for key in self._keys:
            with self._lookup.parts.lock:
                index = part.index
                if not isinstance(index, KeyIndex):
                    return None
                hashed = hash_key(part.secret, key)
                some = index.find_all(hashed, start, stop, MOST_OFFSETS - len(found))
                if some is None:
                    self._lookup.parts.drop_index(part)
                    return None
            found.update(some)
            if len(found) > MOST_OFFSETS:
                return None
        offsets = sorted(found)
        return None if sum(1 for _ in _joined(offsets)) * RANGE_BYTES >= part.segment.size else offsets


def _joined(offsets: list[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges [first, stop) of offsets that lie near each other."""
    if not offsets:
        return
    first = last = offsets[0]
    for offset in offsets:
        if offset - last > NEAR_OFFSETS:
            yield first, last + 1
            first = offset
        last = offset
    yield first, last + 1
