"""How many bytes of requests there are, and for which there is room: plain numbers of the loop's thread."""

from __future__ import annotations

from typing import Final

SMALL_BYTES: Final = 1 << 16
"""A longer request is large: it has room for all of it before it is read on."""
STRANGERS_BYTES: Final = 16 << 20
"""For all requests of connections that are to log in, and have not."""
STRANGERS_READ_BYTES: Final = 4096
"""At once, of one of them: a login is smaller, and many that send more take little of the loop's time."""
STRANGER, SMALL, LARGE = range(3)
"""Whose bytes: of who is not logged in, of requests that are not large, of large ones with what is still to come."""


class RequestMemory:
    """Bytes of requests by kind. `most_bytes` bounds those of who is logged in; -1 is no limit.

    Large requests leave an eighth of it to the others, so that none waits because large ones do not come to their end.
    """

    __slots__ = ("_bytes", "most_bytes")

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._bytes = [0, 0, 0]

    def move(self, before: int, before_bytes: int, after: int, after_bytes: int) -> None:
        """Bytes that were of one kind are of another one, or fewer, or more."""
        self._bytes[before] -= before_bytes
        self._bytes[after] += after_bytes

    def may_begin(self, kind: int) -> bool:
        """Whether a request of that kind may be begun, STRANGER or SMALL: its size is not known yet."""
        if kind == STRANGER:
            return self._bytes[STRANGER] < STRANGERS_BYTES
        return self.most_bytes < 0 or self._bytes[SMALL] < self._room_for_small()

    def has_room_for(self, large_bytes: int, held_bytes: int) -> bool:
        """Whether a large request of so many bytes may be read on; the only one may in any case.

        It is counted as SMALL so far, with what it holds already.
        """
        reserved = self._bytes[LARGE]
        if self.most_bytes < 0 or not reserved:
            return True
        small = max(self._bytes[SMALL] - held_bytes, self.most_bytes >> 3)
        return reserved + large_bytes <= self.most_bytes - small

    def is_too_much(self, kind: int, unfinished_bytes: int) -> bool:
        """Whether requests of a kind, STRANGER or SMALL, that are not whole have to go. They are so many bytes."""
        if kind == STRANGER:
            return not self.may_begin(STRANGER)
        return not self.may_begin(SMALL) and unfinished_bytes > self.most_bytes >> 4

    @property
    def is_tight(self) -> bool:
        """Whether large requests have so much that the next one may have to wait."""
        return 0 <= self.most_bytes < self._bytes[LARGE] * 2

    def _room_for_small(self) -> int:
        return max(self.most_bytes - self._bytes[LARGE], self.most_bytes >> 3)
