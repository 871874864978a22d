"""Requests that wait for partitions, and the timer that ends them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from kafkalog.server.replica.purgatory import PURGE_INTERVAL, DelayedOperation, Purgatory
from kafkalog.server.replica.timer import TimerWheel
from kafkalog.types import TopicPartition

T = TypeVar("T")
_LOG: Final = logging.getLogger(__name__)
Later = Callable[[float, Callable[[], object]], asyncio.TimerHandle]
"""Function that calls back after the given ms and returns a handle with `cancel()`."""


class WaitingRequests:
    """Purgatories for `produce`, `fetch` and `deletion` on one timer wheel, which ticks only while something waits."""

    def __init__(
        self,
        monotonic_ms: Callable[[], int],
        later: Later,
        *,
        produce_purge_interval: int = PURGE_INTERVAL,
        fetch_purge_interval: int = PURGE_INTERVAL,
    ) -> None:
        self._now_ms = monotonic_ms
        self._later = later
        self._wheel = TimerWheel(monotonic_ms())
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = 0
        self.produce = Purgatory(self._wheel, monotonic_ms, _log_failure, produce_purge_interval)
        self.fetch = Purgatory(self._wheel, monotonic_ms, _log_failure, fetch_purge_interval)
        self.deletion = Purgatory(self._wheel, monotonic_ms, _log_failure, 1)

    def watch(self, purgatory: Purgatory, operation: DelayedOperation, keys: Iterable[TopicPartition]) -> bool:
        """Return True if the request was answered at once. Otherwise it waits under the keys until its time limit."""
        done = purgatory.try_complete_else_watch(operation, keys)
        if not done:
            self._set_timer()
        return done

    async def answer(
        self, purgatory: Purgatory, delay: Callable[[Callable[[T], object]], DelayedOperation],
        keys: Iterable[TopicPartition], on_wait: Callable[[], object] | None = None,
    ) -> T:  # fmt: skip
        """Wait for the answer of the operation that `delay` creates from a function which takes the answer.

        `on_wait` is called if the answer is not there at once.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        operation = delay(lambda result: None if future.done() else future.set_result(result))
        if not self.watch(purgatory, operation, keys) and on_wait is not None:
            on_wait()
        try:
            return await future
        finally:
            purgatory.cancel(operation)

    def wake(self, key: TopicPartition) -> None:
        """Retry all requests that wait for this partition."""
        if self.produce.delayed:
            self.produce.check_and_complete(key)
        if self.fetch.delayed:
            self.fetch.check_and_complete(key)
        if self.deletion.delayed:
            self.deletion.check_and_complete(key)

    def stop(self) -> None:
        """Answer all waiting requests with the results available now."""
        self.produce.complete_all()
        self.fetch.complete_all()
        self.deletion.complete_all()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        due_ms = self._wheel.next_due_ms()
        if due_ms is None or (self._timer is not None and self._timer_due_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = due_ms
        self._timer = self._later(max(0, due_ms - self._now_ms()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        for operation in self._wheel.advance_to(self._now_ms()):
            assert isinstance(operation, DelayedOperation)
            operation.purgatory.expire(operation)
        self._set_timer()


def _log_failure(operation: DelayedOperation, error: Exception) -> None:
    _LOG.error("%s failed", type(operation).__name__, exc_info=error)
