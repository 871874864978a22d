"""Requests that come slowly, while those in memory have too many bytes.

No request begins then, but those that have begun must be let come to their end, or nothing would ever be free again.
The slowest are given up: a client that sends a byte now and then takes no memory from the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kafkalog.server.metrics import NetworkCounts

if TYPE_CHECKING:
    from kafkalog.server.net.connection import Channel

GRACE_MS: Final = 1000
"""So long a request may take to come in any case."""


class UnfinishedRequests:
    """Looks at the requests that are not whole. `most_bytes` of -1 is no limit; of the loop's thread."""

    def __init__(
        self,
        most_bytes: int,
        counts: NetworkCounts,
        channels: Mapping[int, Channel],
        loop: asyncio.AbstractEventLoop,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._most_bytes = most_bytes
        self._counts = counts
        self._channels = channels
        self._loop = loop
        self._monotonic_ms = monotonic_ms
        self._is_due = False

    def grown(self) -> None:
        """A request has taken memory."""
        if not self._is_due and self._counts.request_bytes > self._most_bytes >= 0:
            self._is_due = True
            self._loop.call_later(GRACE_MS / 1000, self._give_up)

    def _give_up(self) -> None:
        """Close the connections that send the slowest, until the others are few enough. The quickest stays."""
        self._is_due = False
        now_ms = self._monotonic_ms()
        begun = [one for one in self._channels.values() if one.is_inside_frame and one.held_bytes]
        begun.sort(key=lambda one: one.held_bytes / max(1, now_ms - one.began_ms))
        for channel in begun[:-1]:
            if self._counts.request_bytes <= self._most_bytes:
                return
            if now_ms - channel.began_ms >= GRACE_MS:
                self._counts.refuse("unfinished")
                channel.close()
        if len(begun) > 1:
            self.grown()
