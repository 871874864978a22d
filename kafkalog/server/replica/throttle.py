"""Replication throttling (KIP-73): limits the rate at which followers that are behind fetch some partitions.

In-sync followers and consumers are never held back (FLOW-19).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from kafkalog.config.keys import MAX_LONG
from kafkalog.server.security.rates import Rate, Windows
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"


def is_throttled(replicas: Collection[str], partition: int, node_id: int) -> bool:
    """Return True if a topic's `...replication.throttled.replicas` name this replica: `*`, or `PARTITION:NODE`."""
    return "*" in replicas or f"{partition}:{node_id}" in replicas


class ReplicationRate:
    """Replication rate of throttled partitions, with a limit in bytes per second. The event loop owns it."""

    def __init__(self, limit: Callable[[], int], now_ms: Callable[[], int], windows: Windows | None = None) -> None:
        self._limit = limit
        self._now_ms = now_ms
        self._rate = Rate(Windows() if windows is None else windows)

    def record(self, size: int) -> None:
        """Record `size` replicated bytes."""
        self._rate.record(size, self._now_ms())

    @property
    def is_exceeded(self) -> bool:
        """True if the rate is above the limit."""
        return self._rate.per_second(self._now_ms()) > self._limit()


def leaders_rate(node: Node) -> ReplicationRate:
    """Return the rate at which a node's followers fetch, with the limit from the node's settings."""
    return ReplicationRate(lambda: int(node.config[LEADER_RATE]), node.monotonic_ms)


class FollowingThrottle:
    """Rate limit of a follower, above which throttled partitions that are not in sync are left out of fetches.

    `bytes_per_second` may change at any time. `is_throttled` returns True for the partitions that count.
    """

    def __init__(
        self,
        bytes_per_second: int = MAX_LONG,
        is_throttled: Callable[[TopicPartition], bool] = lambda key: True,
        windows: Windows | None = None,
    ) -> None:
        self.bytes_per_second = bytes_per_second
        self.is_throttled = is_throttled
        self._rate = Rate(Windows() if windows is None else windows)

    def record(self, key: TopicPartition, size: int, now_ms: int) -> None:
        """Record `size` bytes fetched for a partition."""
        if size and self.bytes_per_second != MAX_LONG and self.is_throttled(key):
            self._rate.record(size, now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """Return the time until throttled partitions may be fetched again; 0 if they may be fetched now."""
        if self.bytes_per_second == MAX_LONG:
            return 0
        return self._rate.throttle_ms(max(1, self.bytes_per_second), now_ms)

    def holds_back(self, key: TopicPartition, is_in_sync: bool, wait_ms: int) -> bool:
        """Return True if the partition is left out of fetches now."""
        return wait_ms > 0 and not is_in_sync and self.is_throttled(key)
