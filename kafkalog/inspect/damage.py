"""Damage found while statistics are collected: checksums are compared, and the intact remainder is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from kafkalog._core.batch.scan import BatchTable
from kafkalog.errors import CorruptRecord
from kafkalog.storage.file_slice import LARGEST_OFFSET
from kafkalog.storage.segments import AnySegment


class DamagedPlace(NamedTuple):
    """Bytes of a segment that hold no intact batch, between `last_sound_offset` and `next_sound_offset`.

    An offset is None if the segment has no intact batch on that side. `where` and `what` describe the damage in words.
    """

    segment: str
    position: int
    size: int
    last_sound_offset: int | None
    next_sound_offset: int | None
    kind: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.segment}: {self.where}: {self.what}"


class SegmentDamage(NamedTuple):
    """Damaged places of a segment, and the byte ranges of its intact batches."""

    places: tuple[DamagedPlace, ...]
    sound: tuple[tuple[int, int], ...]


def damage_in_sample(segment: str, position: int, last: int) -> DamagedPlace:
    """Return damage met in a sample. Its end is not searched for, since that could take the whole segment."""
    what = "no sound batch, or one that contradicts earlier ones; `kafkalog verify` shows the extent"
    where = f"from position {position:,} on, after offset {last:,}"
    return DamagedPlace(segment, position, 0, last, None, "sample", where, what)


Locate = Callable[[AnySegment, int | None], SegmentDamage]
"""Find the damage of a segment, given the base offset of the next segment (None for the last)."""


def sound_chunks(
    segment: AnySegment,
    position: int,
    end: int,
    find: Callable[[int, int], Sequence[tuple[int, int]]],
    *,
    bound: int = LARGEST_OFFSET,
    is_whole: bool = False,
) -> Iterator[tuple[bytes, BatchTable]]:
    """Yield the chunks of intact batches between two positions of a segment, with their checksums compared.

    At the first sign of damage, `find` is called with the position and the last offset before it. It returns the byte
    ranges of intact batches in the segment, or as many as are wanted. Offsets lie below `bound`. With `is_whole` a
    partial batch at `end` is damage. Raises StorageError.
    """
    last = segment.base_offset - 1
    with suppress(CorruptRecord):
        for data, table in segment.records.slice(position, end - position).scanned(check_crc=True):
            if table.sound_rows(last + 1, bound) < len(table):
                break
            yield data, table
            position, last = table.stop_position, table.last_offset
        else:
            if position >= end or not is_whole:
                return
    for start, stop in find(position, last):
        start, stop = max(start, position), min(stop, end)
        if start < stop:
            yield from segment.records.slice(start, stop - start).scanned()
