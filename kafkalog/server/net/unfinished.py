"""Requests that are not whole: which is read on, which waits for memory, which is given up.

A large one waits, its bytes in its socket, until there is room for all of it: so those that are read can come to their
end. While any waits, those that are read and do not come on are given up. Of small ones, and of clients that have not
logged in, the oldest are given up where they are too many: who sends a small request in one go is never among them.
"""

from __future__ import annotations

import asyncio
import select
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kafkalog.server.metrics import NetworkCounts
from kafkalog.server.net.request_memory import SMALL, SMALL_BYTES, STRANGER, RequestMemory

if TYPE_CHECKING:
    from kafkalog.server.net.connection import Channel

LOOK_MS: Final = 250
"""While a large request waits, those that are read are looked at so often."""
STALL_S: Final = 0.5
"""Within that time, at least one part in `STALL_PARTS` of a request has to come."""
STALL_PARTS: Final = 20

_ANYTHING: Final = 8
"""A connection with a whole request before goes before so many times as much, or after a wait as much shorter."""
_OF_THE_SIZE: Final = 64
"""The same of one with a request that was at least half as large."""


class UnfinishedRequests:
    """The requests of all connections that have begun, and are not whole; of the loop's thread."""

    def __init__(
        self,
        memory: RequestMemory,
        counts: NetworkCounts,
        channels: Mapping[int, Channel],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._memory = memory
        self._counts = counts
        self._channels = channels
        self._loop = loop
        self._begun: tuple[dict[Channel, int], dict[Channel, int]] = ({}, {})  # by kind: their bytes, the oldest first
        self._bytes = [0, 0]  # the sums of those
        self._read: dict[Channel, tuple[float, int]] = {}  # large ones: what had come of them, and when that was
        self._waiting: dict[Channel, float] = {}  # large ones: since when
        self._is_due = False

    @property
    def is_tight(self) -> bool:
        """Whether no more than the length of a request is to be read before it is known that it has room."""
        return bool(self._waiting) or self._memory.is_tight

    def is_waiting(self, channel: Channel) -> bool:
        """Whether its request waits for room."""
        return channel in self._waiting

    def came(self, channel: Channel) -> bool:
        """Whether a request is read on of which more has come, and not all; else it waits, or is given up."""
        channel.is_unfinished = True
        if channel.kind == STRANGER or channel.claimed_bytes <= SMALL_BYTES:
            if channel.held_bytes:
                self._count(channel, channel.kind, channel.held_bytes)
            return not channel.is_closed
        if channel in self._read:
            return True
        if self._has_room(channel):
            self._admit(channel)
            return True
        self._waiting.setdefault(channel, self._loop.time())
        self._look_later()
        return False

    def over(self, channel: Channel) -> None:
        """It has no unfinished request any more: it is whole, or its connection is closed."""
        channel.is_unfinished = False
        self._read.pop(channel, None)
        self._waiting.pop(channel, None)
        for kind in (STRANGER, SMALL):
            self._bytes[kind] -= self._begun[kind].pop(channel, 0)

    def released(self) -> None:
        """Memory is free again: read on whoever has room now.

        First of all the client that has the least, with what it asks for; who waits longer may have more. Connections
        that have sent whole requests go before those that may never do.
        """
        if not any(map(self._has_room, self._waiting)):
            return
        now = self._loop.time()
        reserved: Counter[tuple[str, str]] = Counter()
        for one in self._channels.values():
            reserved[one.client] += one.reserved_bytes

        def rank(one: Channel) -> float:
            return (reserved[one.client] + one.claimed_bytes) / (1 + now - self._waiting[one]) / _trust(one)

        for channel in sorted(self._waiting, key=rank):
            if self._has_room(channel):
                del self._waiting[channel]
                self._admit(channel)
                channel.read_on()

    def _has_room(self, channel: Channel) -> bool:
        return self._memory.has_room_for(channel.claimed_bytes, channel.held_bytes)

    def _admit(self, channel: Channel) -> None:
        channel.reserve()
        self._read[channel] = self._loop.time(), channel.come_bytes

    def _count(self, channel: Channel, kind: int, held_bytes: int) -> None:
        begun = self._begun[kind]
        self._bytes[kind] += held_bytes - begun.get(channel, 0)
        begun[channel] = held_bytes
        while begun and self._memory.is_too_much(kind, self._bytes[kind]):
            self._give_up(next(iter(begun)))

    def _give_up(self, channel: Channel) -> None:
        self._counts.refuse("unfinished")
        channel.close()

    def _look_later(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_later(LOOK_MS / 1000, self._look)

    def _look(self) -> None:
        """Give up the large requests that have not come on for STALL_S, if others wait for their memory."""
        self._is_due = False
        if not self._waiting:
            return
        now = self._loop.time()
        late = []
        for channel, (since, come_bytes) in self._read.items():
            if now - since < STALL_S:
                continue
            if channel.is_reading and channel.come_bytes - come_bytes < max(1, channel.claimed_bytes // STALL_PARTS):
                late.append(channel)
            self._read[channel] = now, channel.come_bytes
        for channel in _silent(late):
            self._give_up(channel)
        self._look_later()


def _trust(channel: Channel) -> int:
    """Return how much sooner a request is read on for what its connection has sent before."""
    if 2 * channel.largest_bytes >= channel.claimed_bytes:
        return _OF_THE_SIZE
    return _ANYTHING if channel.largest_bytes else 1


def _silent(channels: Iterable[Channel]) -> list[Channel]:
    """Those of which nothing has come that is not read yet: what has, waits for this server, not for its client."""
    asked = {one.fileno(): one for one in channels}
    poll = select.poll()
    for descriptor in asked:
        poll.register(descriptor, select.POLLIN)
    for descriptor, _ in poll.poll(0):
        del asked[descriptor]
    return list(asked.values())
