"""Java's hash code of a string, by which Kafka's coordinators choose partitions and protocols."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

_SMALLEST_TABLE: Final = 16


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode` as an unsigned 32-bit number."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value


def partition_of(text: str, count: int) -> int:
    """Return the partition, of `count`, in which the coordinator stores a group or a transactional id."""
    value = java_hash(text)
    if value >= 1 << 31:
        value = (1 << 32) - value
    # the lowest number has no positive counterpart; the reference uses 0 for it
    return 0 if value == 1 << 31 else value % count


def in_java_order(texts: Collection[str]) -> list[str]:
    """Return the distinct texts in the order in which a HashMap, to which they are added one by one, has them."""
    slots = _SMALLEST_TABLE
    while len(texts) > slots * 3 // 4:
        slots *= 2

    def slot(text: str) -> int:
        value = java_hash(text)
        return (value ^ value >> 16) % slots

    return sorted(texts, key=slot)
