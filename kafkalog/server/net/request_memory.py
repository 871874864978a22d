"""Memory accounting for requests: counts and limits, used only in the loop's thread."""

from __future__ import annotations

from typing import Final

SMALL_BYTES: Final = 1 << 16
"""A longer request is large: it reserves memory for all of it before it is read further."""
UNAUTHENTICATED_BYTES: Final = 16 << 20
"""Limit for all requests of connections that are not yet authenticated."""
UNAUTHENTICATED_READ_BYTES: Final = 4096
"""Maximum bytes of one read from such a connection: enough for a login, and little of the loop's time for floods."""
UNAUTHENTICATED, SMALL, LARGE = range(3)
"""Kinds of bytes: unauthenticated, small requests, large requests including the bytes still to come."""


class RequestMemory:
    """Bytes of requests by kind. `most_bytes` limits those of authenticated clients; -1 means no limit.

    Large requests leave an eighth of it to small ones, which never have to wait for slow large requests.
    """

    __slots__ = ("_bytes", "has_plenty", "most_bytes")

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._bytes = [0, 0, 0]
        self.has_plenty = True  # a request of any kind may begin, and memory is not tight
        self.move(SMALL, 0, SMALL, 0)

    def move(self, before: int, before_bytes: int, after: int, after_bytes: int) -> None:
        """Replace `before_bytes` of one kind by `after_bytes` of the same or another kind."""
        self._bytes[before] -= before_bytes
        self._bytes[after] += after_bytes
        unauthenticated, small, large = self._bytes
        is_little = self.most_bytes < 0 or small + large < self.most_bytes >> 3
        self.has_plenty = is_little and unauthenticated < UNAUTHENTICATED_BYTES

    def may_begin(self, kind: int) -> bool:
        """Return True if a request of kind STRANGER or SMALL may begin; its size is not known yet."""
        if kind == UNAUTHENTICATED:
            return self._bytes[UNAUTHENTICATED] < UNAUTHENTICATED_BYTES
        room = max(self.most_bytes - self._bytes[LARGE], self.most_bytes >> 3)
        return self.most_bytes < 0 or self._bytes[SMALL] < room

    def has_room_for(self, large_bytes: int, held_bytes: int) -> bool:
        """Return True if a large request of `large_bytes` may be read further; the only large one always may.

        So far it is counted as SMALL, with the `held_bytes` already received.
        """
        reserved = self._bytes[LARGE]
        if self.most_bytes < 0 or not reserved:
            return True
        small = max(self._bytes[SMALL] - held_bytes, self.most_bytes >> 3)
        return reserved + large_bytes <= self.most_bytes - small

    def is_too_much(self, kind: int, unfinished_bytes: int) -> bool:
        """Return True if unfinished requests of kind STRANGER or SMALL, `unfinished_bytes` in all, must be closed."""
        if kind == UNAUTHENTICATED:
            return not self.may_begin(UNAUTHENTICATED)
        return not self.may_begin(SMALL) and unfinished_bytes > self.most_bytes >> 4

    @property
    def is_tight(self) -> bool:
        """True if large requests use more than half, so that the next one may have to wait."""
        return 0 <= self.most_bytes < self._bytes[LARGE] * 2
