"""Java's hash of a string, by which groups and transactions find their partitions."""

from __future__ import annotations

import struct


def java_hash(text: str) -> int:
    """`String.hashCode()`: over UTF-16 code units, as a signed number of 32 bits."""
    raw = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", raw):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(text: str, count: int) -> int:
    """The partition of a topic of so many that a broker picks for this id; the smallest number's place is 0."""
    value = java_hash(text)
    return (0 if value == -(1 << 31) else abs(value)) % count
