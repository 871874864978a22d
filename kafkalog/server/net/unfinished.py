"""Unfinished requests: decides which are read further, which wait for memory and which are closed.

A large request waits, its bytes in its socket, until there is room for all of it, so that the ones being read can
finish. While any waits, large requests that are being read and stall are closed. If small or unauthenticated requests
use too much memory, the oldest are closed; a small request that arrives in one piece is never affected.
"""

from __future__ import annotations

import asyncio
import select
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kafkalog.server.net.request_memory import SMALL, SMALL_BYTES, UNAUTHENTICATED, RequestMemory
from kafkalog.server.status.metrics import NetworkCounts

if TYPE_CHECKING:
    from kafkalog.server.net.connection import Channel

CHECK_MS: Final = 250
"""Interval of the checks for stalled requests while a large request waits, in ms."""
STALL_S: Final = 0.5
"""Time within which at least 1/`STALL_PARTS` of a request must arrive."""
STALL_PARTS: Final = 20

_KNOWN_FACTOR: Final = 8
"""Priority factor of a connection that has sent a complete request: its size counts this many times less."""
_SAME_SIZE_FACTOR: Final = 64
"""Priority factor if one of those requests was at least half as large."""


class UnfinishedRequests:
    """The partly received requests of all connections; used only in the loop's thread."""

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
        self._partial: tuple[dict[Channel, int], dict[Channel, int]] = ({}, {})  # by kind: held bytes, oldest first
        self._bytes = [0, 0]  # their sums, by kind
        self._read: dict[Channel, tuple[float, int]] = {}  # large: time and bytes received at the last check
        self.waiting: dict[Channel, float] = {}  # large: start of the wait
        self._is_check_scheduled = False

    @property
    def is_tight(self) -> bool:
        """True if only a request's length may be read until it has room."""
        return bool(self.waiting) or self._memory.is_tight

    def count_received(self, channel: Channel) -> bool:
        """Count a request's new bytes and return True if it is read further; else it waits or is closed."""
        channel.is_unfinished = True
        if channel.kind == UNAUTHENTICATED or channel.claimed_bytes <= SMALL_BYTES:
            if channel.held_bytes:
                self._count(channel, channel.kind, channel.held_bytes)
            return not channel.is_closed
        if channel in self._read:
            return True
        if self._has_room(channel):
            self._admit(channel)
            return True
        self.waiting.setdefault(channel, self._loop.time())
        self._check_later()
        return False

    def remove(self, channel: Channel) -> None:
        """Remove a connection whose request is complete or which is closed."""
        channel.is_unfinished = False
        self._read.pop(channel, None)
        self.waiting.pop(channel, None)
        for kind in (UNAUTHENTICATED, SMALL):
            self._bytes[kind] -= self._partial[kind].pop(channel, 0)

    def resume_waiting(self) -> None:
        """Resume waiting requests that fit into the memory now free.

        The client with the least reserved memory, including its request, goes first; a longer wait compensates for
        more memory. Connections that have sent complete requests go before those that have not.
        """
        if not any(map(self._has_room, self.waiting)):
            return
        now = self._loop.time()
        reserved: Counter[tuple[str, str]] = Counter()
        for one in self._channels.values():
            reserved[one.client] += one.reserved_bytes

        def rank(one: Channel) -> float:
            return (reserved[one.client] + one.claimed_bytes) / (1 + now - self.waiting[one]) / _priority(one)

        for channel in sorted(self.waiting, key=rank):
            if self._has_room(channel):
                del self.waiting[channel]
                self._admit(channel)
                channel.resume_reading()

    def _has_room(self, channel: Channel) -> bool:
        return self._memory.has_room_for(channel.claimed_bytes, channel.held_bytes)

    def _admit(self, channel: Channel) -> None:
        channel.reserve()
        self._read[channel] = self._loop.time(), channel.received_bytes

    def _count(self, channel: Channel, kind: int, held_bytes: int) -> None:
        partial = self._partial[kind]
        self._bytes[kind] += held_bytes - partial.get(channel, 0)
        partial[channel] = held_bytes
        while partial and self._memory.is_too_much(kind, self._bytes[kind]):
            self._close(next(iter(partial)))

    def _close(self, channel: Channel) -> None:
        self._counts.refuse("unfinished")
        channel.close()

    def _check_later(self) -> None:
        if not self._is_check_scheduled:
            self._is_check_scheduled = True
            self._loop.call_later(CHECK_MS / 1000, self._close_stalled)

    def _close_stalled(self) -> None:
        """Close the large requests that have stalled for STALL_S, if others wait for their memory."""
        self._is_check_scheduled = False
        if not self.waiting:
            return
        now = self._loop.time()
        stalled = []
        for channel, (since, bytes_before) in self._read.items():
            if now - since < STALL_S:
                continue
            least_bytes = max(1, channel.claimed_bytes // STALL_PARTS)
            if channel.is_reading and channel.received_bytes - bytes_before < least_bytes:
                stalled.append(channel)
            self._read[channel] = now, channel.received_bytes
        for channel in _without_unread_bytes(stalled):
            self._close(channel)
        self._check_later()


def _priority(channel: Channel) -> int:
    """Return the priority factor of a request, given the earlier requests of its connection."""
    if 2 * channel.largest_bytes >= channel.claimed_bytes:
        return _SAME_SIZE_FACTOR
    return _KNOWN_FACTOR if channel.largest_bytes else 1


def _without_unread_bytes(channels: Iterable[Channel]) -> list[Channel]:
    """Return the channels without unread bytes in their sockets; the others wait for this server, not for a client."""
    by_descriptor = {one.fileno(): one for one in channels}
    poll = select.poll()
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    for descriptor, _ in poll.poll(0):
        del by_descriptor[descriptor]
    return list(by_descriptor.values())
