"""Answers in memory that their clients do not take.

A connection has one answer at most, and is not read until that is written. Where those of all connections are too many,
the ones that wait for the longest time are given up: nobody else is made to wait for such clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkalog.server.metrics import NetworkCounts

if TYPE_CHECKING:
    from kafkalog.server.net.connection import Channel

GRACE_MS: Final = 1000
"""So long a client may take for an answer while there are too many."""


class UnreadAnswers:
    """What is not taken, by connection. `most_bytes` of -1 is no limit; of the loop's thread."""

    def __init__(
        self,
        most_bytes: int,
        counts: NetworkCounts,
        loop: asyncio.AbstractEventLoop,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._most_bytes = most_bytes
        self._counts = counts
        self._loop = loop
        self._monotonic_ms = monotonic_ms
        self._since_ms: dict[Channel, int] = {}  # the oldest first
        self._is_due = False

    def changed(self, channel: Channel, before: int, after: int) -> None:
        """A connection's answer holds `after` bytes of memory, and held `before` when it was last told."""
        self._counts.response_bytes += after - before
        if not after:
            self._since_ms.pop(channel, None)
        elif not before:
            self._since_ms[channel] = self._monotonic_ms()
        if self._is_too_much() and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._give_up)

    def _is_too_much(self) -> bool:
        return self._counts.response_bytes > self._most_bytes >= 0

    def _give_up(self) -> None:
        """Close the connections whose answers wait for the longest time, until the others are few enough."""
        self._is_due = False
        while self._is_too_much() and self._since_ms:
            channel, since_ms = next(iter(self._since_ms.items()))
            left_ms = since_ms + GRACE_MS - self._monotonic_ms()
            if left_ms > 0:
                self._is_due = True
                self._loop.call_later(left_ms / 1000, self._give_up)
                return
            self._counts.refuse("unread")
            channel.close()
