"""Rate limit for fetches of a follower that is behind (`follower.replication.throttled.rate`, KIP-73)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kafkalog.server.security.rates import Rate, Windows
from kafkalog.types import TopicPartition

NO_LIMIT: Final = 2**63 - 1


class FollowingThrottle:
    """Rate limit above which throttled partitions that are not in sync are left out of fetches.

    `bytes_per_second` may change at any time. `is_throttled` returns True for the partitions that count.
    """

    def __init__(
        self,
        bytes_per_second: int = NO_LIMIT,
        is_throttled: Callable[[TopicPartition], bool] = lambda key: True,
        windows: Windows | None = None,
    ) -> None:
        self.bytes_per_second = bytes_per_second
        self.is_throttled = is_throttled
        self._rate = Rate(Windows() if windows is None else windows)

    def record(self, key: TopicPartition, size: int, now_ms: int) -> None:
        """Record `size` bytes fetched for a partition."""
        if size and self.bytes_per_second != NO_LIMIT and self.is_throttled(key):
            self._rate.record(size, now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """Return the time until throttled partitions may be fetched again; 0 if they may be fetched now."""
        if self.bytes_per_second == NO_LIMIT:
            return 0
        return self._rate.throttle_ms(max(1, self.bytes_per_second), now_ms)

    def holds_back(self, key: TopicPartition, is_in_sync: bool, wait_ms: int) -> bool:
        """Return True if the partition is left out of fetches now."""
        return wait_ms > 0 and not is_in_sync and self.is_throttled(key)
