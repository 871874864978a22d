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
RANGE_BYTES: Final = 64 << 10
"""Bytes that reading one range takes; where all of them would take as many as the segment, it is read whole."""


def key_ranges(lookup: KeyLookup, start: int, stop: int, keys: frozenset[bytes]) -> Iterator[tuple[int, int]]:
    """Yield the parts of [start, stop) that may hold records with one of the keys, rising.

    A segment without an index, and one whose index does not fit it, is one of them, and so is the active one. Indexes
    are searched when the iteration reaches their segments. Whoever reads compares the keys: a hash may be that of
    another one.
    """
    if len(keys) > MOST_KEYS or not _has_indexes(lookup):
        yield start, stop
        return
    source, parts = lookup.source, lookup.parts
    truncations = truncation_count(source)
    try:
        with parts.lock:
            indexed = parts.indexed()
    except KafkalogError:  # reading meets it
        indexed = []
    at = start
    for part in indexed:
        low, high = max(at, part.base_offset), min(stop, part.bound)
        if low >= high:
            continue
        offsets = _offsets(lookup, part, low, high, keys)
        if offsets is None:
            continue
        if at < low:
            yield at, low
        for first, last in _joined(offsets):
            if truncation_count(source) != truncations:  # other records may have these offsets
                yield first, stop
                return
            yield first, last
        at = high
        if truncation_count(source) != truncations:
            break
    if at < stop:
        yield at, stop


def _has_indexes(lookup: KeyLookup) -> bool:
    try:
        return bool(lookup.place.base_offsets())
    except KafkalogError:
        return False


def _offsets(lookup: KeyLookup, part: Part, start: int, stop: int, keys: frozenset[bytes]) -> list[int] | None:
    """Return the offsets in [start, stop) of a part that may hold one of the keys, rising; None to read all of it."""
    found: set[int] = set()
    for key in keys:
        with lookup.parts.lock:
            index = part.index
            some = index.find_all(hash_key(part.secret, key), start, stop) if isinstance(index, KeyIndex) else None
            if some is None and index is not None:
                lookup.parts.drop_index(part)
        if some is None:
            return None
        found.update(some)
    offsets = sorted(found)
    if sum(1 for _ in _joined(offsets)) * RANGE_BYTES >= part.segment.size:
        return None
    return offsets


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
