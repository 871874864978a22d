"""Entries of offset indexes, written and read by the tests."""

import struct

from kafkalog.storage.index.offset_index import OffsetIndex


def fill(index: OffsetIndex, offsets: range, step: int = 10) -> None:
    for i, offset in enumerate(offsets):
        index.append(offset, step * i)


def pairs(index: OffsetIndex) -> list[tuple[int, int]]:
    return [tuple(index.entry(n)) for n in range(index.entries)]  # type: ignore[misc]


def entry_bytes(*rows: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *row) for row in rows)
