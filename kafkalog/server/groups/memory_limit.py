"""Limit of the memory for group members, since any client may join as often as it likes."""

from __future__ import annotations

from sys import getsizeof
from typing import Final

MEMBER_BYTES: Final = 2048
"""Estimate for a member or a pending id without its data: objects, timer, names of usual length."""
_USUAL_BYTES: Final = 512
"""Memory of a name that `MEMBER_BYTES` includes."""
NAME_BYTES: Final = 100
"""Estimate for a string in a set or a dictionary, without its text."""


def long_names_bytes(*names: str | None) -> int:
    """Return the estimated memory of a member's names beyond what `MEMBER_BYTES` includes; its timers repeat them."""
    return sum(2 * max(0, getsizeof(name) - _USUAL_BYTES) for name in names if name)


class MemoryLimit:
    """The bytes of each group and their total, limited to `most`. Not thread-safe."""

    __slots__ = ("_groups", "most", "total")

    def __init__(self, most: int) -> None:
        self._groups: dict[str, int] = {}
        self.most = most
        self.total = 0

    def of(self, group_id: str) -> int:
        """Return the bytes of a group."""
        return self._groups.get(group_id, 0)

    def put(self, group_id: str, held_bytes: int) -> None:
        """Set the bytes of a group; 0 removes it."""
        self.total += held_bytes - self._groups.pop(group_id, 0)
        if held_bytes:
            self._groups[group_id] = held_bytes

    def has_room(self, more_bytes: int) -> bool:
        """Return True if `more_bytes` fit within the limit; a decrease always fits."""
        return more_bytes <= 0 or self.total + more_bytes <= self.most

    def clear(self) -> None:
        """Remove all groups."""
        self._groups.clear()
        self.total = 0
