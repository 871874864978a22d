"""The search for the next sound batch behind damage, with a limit on what it may cost.

Values may look like batches: any two small numbers can be an offset and a size. So each header that claims many bytes
must cost few: its checksum is computed from checksums of the file's beginning (`_Beginnings`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple

from kafkalog._core.bytes.crc import crc32, crc32c
from kafkalog._core.log.segment_check import find_header
from kafkalog.storage.lazy_file import DataFile, read_at

WINDOW_BYTES: Final = 256 << 10
HEADER_BYTES: Final = 61
LEAST_BYTES: Final = 26
PIECE_BYTES: Final = 4 << 10
_WHOLE_BYTES: Final = 8 * PIECE_BYTES
"""Largest batch whose checksum is computed from its bytes alone."""
_LEAST_BUDGET_BYTES: Final = 64 << 20
_BUDGET_FACTOR: Final = 8

Checksum = Callable[..., int]


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


class BatchSearch:
    """Searches for sound batches in one file; with a `budget` they may give up, without one they never do."""

    def __init__(self, file: DataFile, budget: Budget | None = None) -> None:
        self._file = file
        self._budget = budget
        self._beginnings: dict[Checksum, _Beginnings] = {}

    def find(self, position: int, end: int, lowest_offset: int) -> Found:
        """Return the first batch from byte `position` to `end` with a valid checksum and possible offsets.

        Every byte is tried; `lowest_offset` is the lowest possible base offset.
        """
        at = position
        while end - at >= LEAST_BYTES:
            data = read_at(self._file, min(WINDOW_BYTES, end - at), at)
            start = 0
            while (header := find_header(data, start, len(data) - start, end - at - start, lowest_offset)) >= 0:
                size = _size(data, header)
                if not self._spend(size if size <= _WHOLE_BYTES else 2 * PIECE_BYTES):
                    return Found(at + header, True)
                if self._is_sound(at + header, size, data[header + 16]):
                    return Found(at + header, False)
                start = header + 1
            if len(data) <= HEADER_BYTES or at + len(data) == end:
                break
            if not self._spend(len(data)):
                return Found(at, True)
            at += len(data) - HEADER_BYTES + 1
        return NOWHERE

    def first_that_leads_to(self, position: int, end: int, lowest_offset: int) -> int:
        """Return the start of the first chain of consecutive batches that ends at byte `end`.

        These are batches of the log that a damaged size skips. Batches of another log, inside a value, end before it.
        Return `end` if there is none, or the search gave up.
        """
        seen: set[int] = set()  # batches of chains that end elsewhere
        while (found := self.find(position, end, lowest_offset)).position >= 0 and not found.gave_up:
            at = found.position
            while at < end and at not in seen and is_batch(self._file, at, end, lowest_offset):
                seen.add(at)
                at += _size(read_at(self._file, LEAST_BYTES, at), 0)
            if at == end:
                return found.position
            position = found.position + 1
        return end

    def _spend(self, size: int) -> bool:
        return self._budget is None or self._budget.spend(size)

    def _is_sound(self, position: int, size: int, magic: int) -> bool:
        if size <= _WHOLE_BYTES:
            return checksum_holds(self._file, position, size)
        checksum, stored_at, covered_from = _rule(magic)
        beginnings = self._beginnings.get(checksum)
        if beginnings is None or beginnings.start > position:
            beginnings = self._beginnings[checksum] = _Beginnings(self._file, position, checksum)
        stored = read_at(self._file, 4, position + stored_at)
        return beginnings.checksum_of(position + covered_from, position + size) == int.from_bytes(stored, "big")


class _Beginnings:
    """Checksums of a file's bytes from `start` on, at the end of each piece; they give that of any range."""

    def __init__(self, file: DataFile, start: int, checksum: Checksum) -> None:
        self.start = start
        self._file = file
        self._checksum = checksum
        self._sums = [0]

    def checksum_of(self, begin: int, end: int) -> int:
        """Return the checksum of the bytes from `begin` to `end`; -1 if the file ends before."""
        first, last = -(-(begin - self.start) // PIECE_BYTES), (end - self.start) // PIECE_BYTES
        if not self._reach(last):
            return -1
        middle, behind = self.start + first * PIECE_BYTES, self.start + last * PIECE_BYTES
        found = self._checksum(read_at(self._file, middle - begin, begin))
        found = _behind_pieces(self._checksum, found ^ self._sums[first], last - first) ^ self._sums[last]
        tail = read_at(self._file, end - behind, behind)
        return self._checksum(tail, found) if len(tail) == end - behind else -1

    def _reach(self, pieces: int) -> bool:
        """Read on until the checksum of so many pieces is known; return False if the file ends before."""
        while len(self._sums) <= pieces:
            at = self.start + (len(self._sums) - 1) * PIECE_BYTES
            data = memoryview(read_at(self._file, WINDOW_BYTES, at))
            if len(data) < PIECE_BYTES:
                return False
            for begin in range(0, len(data) - PIECE_BYTES + 1, PIECE_BYTES):
                self._sums.append(self._checksum(data[begin : begin + PIECE_BYTES], self._sums[-1]))
        return True


def _behind_pieces(checksum: Checksum, value: int, pieces: int) -> int:
    """Return the part that a checksum `value` has in the checksum with so many pieces more behind it."""
    for power, images in enumerate(_operators(checksum)):
        if pieces >> power & 1:
            value = _image(images, value)
    return value


@cache
def _operators(checksum: Checksum) -> tuple[tuple[int, ...], ...]:
    """Return what 1, 2, 4, ... pieces make of each bit of a checksum before them: a checksum is linear in its bits."""
    zeros = bytes(PIECE_BYTES)
    found = [tuple(checksum(zeros, 1 << bit) ^ checksum(zeros) for bit in range(32))]
    while len(found) < 32:
        found.append(tuple(_image(found[-1], image) for image in found[-1]))
    return tuple(found)


def _image(images: tuple[int, ...], value: int) -> int:
    found = 0
    for bit, image in enumerate(images):
        if value >> bit & 1:
            found ^= image
    return found


def _rule(magic: int) -> tuple[Checksum, int, int]:
    """Return a format's checksum, where it is stored, and from where on it covers a batch."""
    is_v2 = 2 <= magic < 128  # the format is a signed byte
    return (crc32c, 17, 21) if is_v2 else (crc32, 12, 16)


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
    checksum, stored_at, covered_from = _rule(data[16])
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
