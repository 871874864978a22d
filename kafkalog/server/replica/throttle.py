"""Replication that is held back (KIP-73): what followers that are behind may fetch of some partitions in a second.

Followers in sync, and consumers, are never held back (FLOW-19).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from kafkalog.config_keys import MAX_LONG
from kafkalog.server.security.rates import Rate, Windows

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"


def is_throttled(replicas: Collection[str], partition: int, node_id: int) -> bool:
    """Whether a topic's `...replication.throttled.replicas` name this replica: `*`, or `PARTITION:NODE`."""
    return "*" in replicas or f"{partition}:{node_id}" in replicas


class ReplicationRate:
    """What was replicated of throttled partitions, against a limit in bytes a second. Belongs to the loop."""

    def __init__(self, limit: Callable[[], int], now_ms: Callable[[], int], windows: Windows | None = None) -> None:
        self._limit = limit
        self._now_ms = now_ms
        self._rate = Rate(Windows() if windows is None else windows)

    def record(self, size: int) -> None:
        """So many bytes were replicated."""
        self._rate.record(size, self._now_ms())

    @property
    def is_exceeded(self) -> bool:
        """Whether more was replicated than the limit allows."""
        limit = self._limit()
        return limit < MAX_LONG and self._rate.per_second(self._now_ms()) > limit
