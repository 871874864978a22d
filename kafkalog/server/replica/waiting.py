"""Requests that wait for partitions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from kafkalog.server.replica.purgatory import PURGE_INTERVAL, DelayedOperation, Later, Purgatory
from kafkalog.types import TopicPartition

T = TypeVar("T")
_LOG: Final = logging.getLogger(__name__)


class WaitingRequests:
    """Purgatories for `produce`, `fetch` and `deletion`."""

    def __init__(
        self,
        later: Later,
        *,
        produce_purge_interval: int = PURGE_INTERVAL,
        fetch_purge_interval: int = PURGE_INTERVAL,
    ) -> None:
        self.produce = Purgatory(later, _log_failure, produce_purge_interval)
        self.fetch = Purgatory(later, _log_failure, fetch_purge_interval)
        self.deletion = Purgatory(later, _log_failure, 1)

    async def answer(
        self, purgatory: Purgatory, delay: Callable[[Callable[[T], object]], DelayedOperation],
        keys: Iterable[TopicPartition], on_wait: Callable[[], object] | None = None,
    ) -> T:  # fmt: skip
        """Wait for the answer of the operation that `delay` creates from a function which takes the answer.

        `on_wait` is called if the answer is not there at once.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        operation = delay(lambda result: None if future.done() else future.set_result(result))
        if not purgatory.try_complete_else_watch(operation, keys) and on_wait is not None:
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


def _log_failure(operation: DelayedOperation, error: Exception) -> None:
    _LOG.error("%s failed", type(operation).__name__, exc_info=error)
