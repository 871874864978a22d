"""The search for the next sound batch behind damage, with a limit on what it may cost."""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkalog._core.bytes.crc import crc32, crc32c
from kafkalog._core.log.segment_check import find_header
from kafkalog.storage.lazy_file import DataFile, read_at

WINDOW_BYTES: Final = 256 << 10
HEADER_BYTES: Final = 61
LEAST_BYTES: Final = 26
_LEAST_BUDGET_BYTES: Final = 64 << 20
_BUDGET_FACTOR: Final = 8


class Budget:
    """Limit on the bytes that searches may read and checksum.

    Malicious data could have a header at each position that claims all following bytes.
    """

    def __init__(self, file_bytes: int) -> None:
        self._left = _LEAST_BUDGET_BYTES + _BUDGET_FACTOR * file_bytes

    def spend(self, size: int) -> bool:
        """Subtract `size`; return True if enough is left."""
        self._left -= size
        return self._left >= 0


class Found(NamedTuple):
    """Position of the next sound batch, -1 if none; `gave_up` if the search ended before the file did."""

    position: int
    gave_up: bool


NOWHERE: Final = Found(-1, False)


def find_batch(file: DataFile, position: int, end: int, lowest_offset: int, budget: Budget) -> Found:
    """Return the first batch from byte `position` to `end` with a valid checksum and possible offsets.

    Every byte is tried; `lowest_offset` is the lowest possible base offset.
    """
    at = position
    while end - at >= LEAST_BYTES:
        data = read_at(file, min(WINDOW_BYTES, end - at), at)
        start = 0
        while (header := find_header(data, start, len(data) - start, end - at - start, lowest_offset)) >= 0:
            size = _size(data, header)
            if not budget.spend(size):
                return Found(at + header, True)
            if checksum_holds(file, at + header, size):
                return Found(at + header, False)
            start = header + 1
        if len(data) <= HEADER_BYTES or at + len(data) == end:
            break
        if not budget.spend(len(data)):
            return Found(at, True)
        at += len(data) - HEADER_BYTES + 1
    return NOWHERE


def is_batch(file: DataFile, position: int, end: int, lowest_offset: int) -> bool:
    """Return True if a sound batch begins exactly at `position`."""
    data = read_at(file, min(HEADER_BYTES, end - position), position)
    if len(data) < LEAST_BYTES:
        return False
    if find_header(data, 0, len(data), end - position, lowest_offset) != 0:
        return False
    return checksum_holds(file, position, _size(data, 0))


def checksum_holds(file: DataFile, position: int, size: int) -> bool:
    """Return True if the stored checksum of the batch of `size` bytes at `position` matches its bytes."""
    data = read_at(file, min(size, WINDOW_BYTES), position)
    if len(data) < min(size, HEADER_BYTES):
        return False
    is_v2 = 2 <= data[16] < 128  # the format is a signed byte
    checksum, stored_at, covered_from = (crc32c, 17, 21) if is_v2 else (crc32, 12, 16)
    crc = checksum(memoryview(data)[covered_from:])
    have = len(data)
    while have < size:
        more = read_at(file, min(size - have, WINDOW_BYTES), position + have)
        if not more:
            return False
        crc = checksum(more, crc)
        have += len(more)
    return crc == int.from_bytes(data[stored_at : stored_at + 4], "big")


def _size(data: bytes, at: int) -> int:
    return int.from_bytes(data[at + 8 : at + 12], "big") + 12
