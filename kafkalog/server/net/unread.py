"""Responses in memory that clients have not read.

A connection has at most one response and is not read until that is sent. If all responses together exceed the limit,
the connections that have waited longest are closed, so that no other client waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkalog.server.status.metrics import NetworkCounts

if TYPE_CHECKING:
    from kafkalog.server.net.connection import Channel

GRACE_MS: Final = 1000
"""Time a client has to read a response while the limit is exceeded, in ms."""


class UnreadAnswers:
    """Unread responses by connection. A `most_bytes` of -1 means no limit. Used only in the loop's thread."""

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
        self._since_ms: dict[Channel, int] = {}  # oldest first
        self._is_scheduled = False

    def changed(self, channel: Channel, before: int, after: int) -> None:
        """Record that a connection's response holds `after` bytes of memory instead of `before`."""
        self._counts.response_bytes += after - before
        if not after:
            self._since_ms.pop(channel, None)
        elif not before:
            self._since_ms[channel] = self._monotonic_ms()
        if self._is_too_much() and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._close_oldest)

    def _is_too_much(self) -> bool:
        return self._counts.response_bytes > self._most_bytes >= 0

    def _close_oldest(self) -> None:
        """Close the connections that have waited longest until the rest fits the limit."""
        self._is_scheduled = False
        while self._is_too_much() and self._since_ms:
            channel, since_ms = next(iter(self._since_ms.items()))
            remaining_ms = since_ms + GRACE_MS - self._monotonic_ms()
            if remaining_ms > 0:
                self._is_scheduled = True
                self._loop.call_later(remaining_ms / 1000, self._close_oldest)
                return
            self._counts.refuse("unread")
            channel.close()
