"""Damage met while figures are found out: the checksums of what is read are compared, and the sound rest is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from kafkalog._core.scan import BatchTable
from kafkalog.errors import CorruptRecord
from kafkalog.storage.file_slice import LARGEST_OFFSET

__all__ = ["DamagedPlace", "Locate", "SegmentDamage", "sound_chunks"]


class DamagedPlace(NamedTuple):
    """Bytes of a segment that are no sound batch; `last_sound_offset` lies before them, `next_sound_offset` behind.

    These are None where the segment has no sound batch there. `where` and `what` say it in words.
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
    """The damaged places of a segment, and the ranges of bytes of its sound batches."""

    places: tuple[DamagedPlace, ...]
    sound: tuple[tuple[int, int], ...]


def damage_in_sample(segment: str, position: int, last: int) -> DamagedPlace:
    """Return damage that was met in a sample, whose end is not looked for: that could take all of the segment."""
    what = "no sound batch, or one that contradicts those before it; `kafkalog verify` shows how far it goes"
    where = f"position {position:,} and on, behind offset {last:,}"
    return DamagedPlace(segment, position, 0, last, None, "sample", where, what)


Locate = Callable[[Any, int | None], SegmentDamage]
"""Finds the damage of a segment of an engine; the base offset of the next one is given too, None for the last."""


def sound_chunks(
    segment: Any,
    position: int,
    end: int,
    find: Callable[[int, int], Sequence[tuple[int, int]]],
    *,
    bound: int = LARGEST_OFFSET,
    is_whole: bool = False,
) -> Iterator[tuple[bytes, BatchTable]]:
    """Yield the chunks of sound batches between two positions of a segment, whose checksums are compared.

    `find` is called at the first sign of damage, with the position and the last offset before it: the ranges of sound
    batches of the segment, as far as they are wanted. Offsets lie below `bound`. With `is_whole` a batch that is cut
    off at `end` is damage. StorageError.
    """
    last = segment.base_offset - 1
    try:
        for data, table in segment.records.slice(position, end - position).scanned(check_crc=True):
            if table.sound_rows(last + 1, bound) < len(table):
                break
            yield data, table
            position, last = table.stop_position, table.last_offset
        else:
            if position >= end or not is_whole:
                return
    except CorruptRecord:
        pass
    for start, stop in find(position, last):
        start, stop = max(start, position), min(stop, end)
        if start < stop:
            yield from segment.records.slice(start, stop - start).scanned()
