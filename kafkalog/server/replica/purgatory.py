"""Requests that cannot be answered yet: they wait under keys, are retried when a key changes, and have a time limit.

Everything runs in the event loop's thread, so that an operation is completed once without a lock.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import TimerHandle
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Final, TypeVar

from kafkalog.types import TopicPartition

T = TypeVar("T")
_LOG: Final = logging.getLogger(__name__)
Later = Callable[[float, Callable[[], object]], TimerHandle]
"""Function that calls back after the given ms and returns a handle with `cancel()`."""
PURGE_INTERVAL: Final = 1000
"""Number of entries of completed operations that triggers a sweep (`purge.interval.requests`).

If more entries than that are waiting, their number is the threshold, because a sweep visits all of them.
"""


class DelayedOperation:
    """A waiting request. Subclasses define when it is done and what it then sends.

    `on_complete` is called once: at the last condition, at the time limit, or at a stop.
    """

    __slots__ = ("delay_ms", "is_completed", "keys", "timer")

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        self.timer: TimerHandle | None = None
        self.is_completed = False
        self.keys = 0
        """Number of keys that the operation was put under."""

    def try_complete(self) -> bool:
        """Call `force_complete()` if the request can be answered. Return True if this call completed it."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Answer the request."""
        raise NotImplementedError

    def release(self) -> None:
        """Drop references to the request: a completed operation may remain under its keys for a while."""

    def force_complete(self) -> bool:
        """Answer with the results available now. Return True if the operation was not yet completed."""
        if self.is_completed:
            return False
        self.is_completed = True
        self.on_complete()
        return True


class Purgatory:
    """The waiting operations by key. `later` sets their time limits.

    `on_error` receives exceptions that an operation raises: they must not reach the append that woke it (PART-17).
    """

    def __init__(
        self,
        later: Later,
        on_error: Callable[[DelayedOperation, Exception], object],
        purge_interval: int = PURGE_INTERVAL,
    ) -> None:
        self._later = later
        self._on_error = on_error
        self._purge_interval = purge_interval
        self._watched: dict[Hashable, list[DelayedOperation]] = {}
        self.delayed = 0  # number of waiting operations
        self._live = self._stale = 0  # entries under keys of waiting operations, and at most of completed ones

    @property
    def watched(self) -> int:
        """Number of entries under all keys, including completed ones that are not yet swept."""
        return sum(map(len, self._watched.values()))

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """Return True if the operation completes at once. Otherwise put it under `keys`, each of which must wake it."""
        if self._try(operation):
            return True
        self.delayed += 1
        for key in keys:
            self._watched.setdefault(key, []).append(operation)
            operation.keys += 1
        self._live += operation.keys
        if operation.delay_ms > 0:
            operation.timer = self._later(operation.delay_ms, partial(self.expire, operation))
        else:
            self.expire(operation)
        return operation.is_completed

    def check_and_complete(self, key: Hashable) -> int:
        """Retry all operations under a key whose state changed. Return the number completed."""
        operations = self._watched.pop(key, None)
        if operations is None:
            return 0
        completed, left = 0, []
        for operation in operations:
            if operation.is_completed:
                continue
            if self._try(operation):
                completed += 1
                self._finish(operation)
            else:
                left.append(operation)
        if left:  # operations added meanwhile go after those that waited before
            self._watched[key] = left + self._watched.get(key, [])
        return completed

    def expire(self, operation: DelayedOperation) -> None:
        """Complete an operation whose time limit has expired."""
        if not operation.is_completed:
            self._complete(operation)

    def cancel(self, operation: DelayedOperation) -> None:
        """Drop an operation without an answer: no one waits for it."""
        if not operation.is_completed:
            operation.is_completed = True
            self._finish(operation)

    def complete_all(self) -> None:
        """Answer all waiting operations with the results available now; called before a stop."""
        for operations in list(self._watched.values()):
            for operation in operations:
                self.expire(operation)
        self._watched.clear()

    def _try(self, operation: DelayedOperation) -> bool:
        try:
            return operation.try_complete()
        except Exception as error:
            self._on_error(operation, error)
            return operation.is_completed

    def _complete(self, operation: DelayedOperation) -> None:
        try:
            operation.force_complete()
        except Exception as error:
            self._on_error(operation, error)
        self._finish(operation)

    def _finish(self, operation: DelayedOperation) -> None:
        if operation.timer is not None:
            operation.timer.cancel()
            operation.timer = None
        operation.release()
        self.delayed -= 1
        self._live -= operation.keys
        self._stale += operation.keys
        if self._stale >= max(self._purge_interval, self._live):
            self._purge()

    def _purge(self) -> None:
        self._stale = 0
        for key, operations in list(self._watched.items()):
            left = [operation for operation in operations if not operation.is_completed]
            if left:
                self._watched[key] = left
            else:
                del self._watched[key]


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

        `on_wait` is called if the operation does not complete at once.
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
