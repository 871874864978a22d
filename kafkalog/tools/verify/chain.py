"""Batches of a segment whose offsets contradict the others: the fewest without which offsets ascend."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import NamedTuple

from kafkalog.storage.file_slice import FileSlice
from kafkalog.util.fileio import File

MAX_RELATIVE_OFFSET = 2**31 - 1


class Placed(NamedTuple):
    """A batch with a valid checksum: its place in the file, and the offsets in its header."""

    position: int
    size: int
    base_offset: int
    last_offset: int


def placed_batches(file: File, ranges: Sequence[tuple[int, int]], without: Collection[int]) -> list[Placed]:
    """Return the batches in these ranges of bytes of a segment, except those at the positions `without`.

    StorageError, CorruptRecord.
    """
    found = []
    for start, end in ranges:
        for table in FileSlice(file, start, end - start).tables():
            rows = zip(table.base_offsets, table.last_offsets, strict=True)
            for row, (base, last) in enumerate(rows):
                position = table.position(row)
                if position not in without:
                    found.append(Placed(position, table.size(row), base, last))
    return found


def outside_chain(batches: Sequence[Placed], lowest: int, limit: int | None) -> set[int]:
    """Return the positions of the fewest batches without which the offsets of the others ascend from `lowest` on.

    `limit` is the base offset of the next segment, None if there is none: batches end below it, unless that would leave
    out more than half of them; then its name is more likely to be wrong.
    """
    highest = lowest + MAX_RELATIVE_OFFSET
    kept = _chain(batches, lowest, highest)
    if limit is not None and kept and batches[kept[-1]].last_offset >= limit:
        below = _chain(batches, lowest, min(highest, limit - 1))
        kept = below if 2 * len(below) >= len(batches) else kept
    return {one.position for one in batches} - {batches[at].position for at in kept}


def _chain(batches: Sequence[Placed], lowest: int, highest: int) -> list[int]:
    """Return the numbers of the batches of a longest chain, in the order of the file.

    Among chains of the same length and end, one whose last batch does not jump wins: if two batches have the same
    offsets, the one that follows missing offsets is left out.
    """
    ends: list[int] = []  # the lowest last offset of a chain of 1, 2, 3... batches
    last_of: list[int] = []  # the number of the batch that such a chain ends with
    before = [-1] * len(batches)
    jumps = [False] * len(batches)
    for number, (_, _, base, last) in enumerate(batches):
        if base < lowest or last > highest or last < base:
            continue
        length = bisect_left(ends, base)
        previous = last_of[length - 1] if length else -1
        end = batches[previous].last_offset if previous >= 0 else lowest - 1
        before[number], jumps[number] = previous, number == previous + 1 and base > end + 1
        if length == len(ends):
            ends.append(last)
            last_of.append(number)
        elif last < ends[length] or (last == ends[length] and jumps[last_of[length]] and not jumps[number]):
            ends[length], last_of[length] = last, number
    chain = []
    number = last_of[-1] if last_of else -1
    while number >= 0:
        chain.append(number)
        number = before[number]
    return _without_jumps(batches, chain[::-1], jumps)


def _without_jumps(batches: Sequence[Placed], chain: Sequence[int], jumps: Sequence[bool]) -> list[int]:
    """Replace a batch that jumps by the omitted one after it, if that one leads to the next.

    Both chains have the same length, and offsets are then missing exactly where a batch is left out.
    """
    found = list(chain)
    for at, number in enumerate(chain[:-1]):
        following = chain[at + 1]
        if jumps[number] and following == number + 2:
            other, before = batches[number + 1], batches[found[at - 1]].last_offset if at else -1
            if before < other.base_offset and other.last_offset + 1 == batches[following].base_offset:
                found[at] = number + 1
    return found
