"""What a golden case is about, read from its own bytes by a few plain lines: which tests take it depends on that."""

import struct
from collections.abc import Iterator

from tests.builder import crc32c


def batches_of(data: bytes) -> Iterator[tuple[int, int, bool]]:
    """(magic, attributes, checksum right) of every whole batch of a buffer, as far as its frames can be followed."""
    at = 0
    while len(data) - at >= 17:
        size = struct.unpack_from(">i", data, at + 8)[0] + 12
        magic = struct.unpack_from(">b", data, at + 16)[0]
        if size < 26 or not 0 <= magic <= 2 or len(data) - at < size:
            return
        if magic < 2:
            yield magic, data[at + 17], True
        elif size < 61:
            yield magic, 0, False
        else:
            crc, attributes = struct.unpack_from(">Ih", data, at + 17)
            yield magic, attributes, crc == crc32c(data[at + 21 : at + size])
        at += size


def in_scope(data: bytes) -> bool:
    """True when no batch has magic 0 or 1 or, with a right checksum, codec bits other than 0."""
    return all(magic == 2 and not (right and attributes & 7) for magic, attributes, right in batches_of(data))
