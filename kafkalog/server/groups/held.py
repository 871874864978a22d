"""What groups hold in memory for their members, counted and bounded: a stranger may join as often as it likes."""

from __future__ import annotations

from typing import Final

MEMBER_BYTES: Final = 2048
"""A member or an id that was given out, besides what it says: objects, its timer, its names."""
NAME_BYTES: Final = 100
"""A string in a set or a dictionary, besides its text."""


class HeldBytes:
    """The bytes of each group, and of all; at most `most` are taken. One thread at a time."""

    __slots__ = ("_groups", "most", "total")

    def __init__(self, most: int) -> None:
        self._groups: dict[str, int] = {}
        self.most = most
        self.total = 0

    def of(self, group_id: str) -> int:
        """What a group holds."""
        return self._groups.get(group_id, 0)

    def put(self, group_id: str, held_bytes: int) -> None:
        """A group holds so much now; 0 for one that is gone."""
        self.total += held_bytes - self._groups.pop(group_id, 0)
        if held_bytes:
            self._groups[group_id] = held_bytes

    def has_room(self, more_bytes: int) -> bool:
        """Whether so much more may be held; what is given back always may."""
        return more_bytes <= 0 or self.total + more_bytes <= self.most

    def clear(self) -> None:
        """No group is left."""
        self._groups.clear()
        self.total = 0
