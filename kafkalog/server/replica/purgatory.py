"""Requests that cannot be answered yet: they wait under keys, are looked at when a key changes, and have a limit.

All of it runs in one thread, that of the event loop, so an operation is completed once without a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final

from kafkalog.server.replica.timer import TimerTask, TimerWheel

PURGE_INTERVAL: Final = 1000
"""How many entries of operations that are done may lie under keys before they are swept (`purge.interval.requests`).

More may where more wait than that: a sweep looks at all of them.
"""


class DelayedOperation(TimerTask):
    """A request that waits: subclasses say when it is done, and what then has to be sent.

    `on_complete` is called once, whatever comes first: the last condition, the limit, or a stop.
    """

    __slots__ = ("delay_ms", "is_completed", "keys")

    def __init__(self, delay_ms: int) -> None:
        super().__init__()
        self.delay_ms = delay_ms
        self.is_completed = False
        self.keys = 0
        """Under how many keys it was put."""

    def try_complete(self) -> bool:
        """Looks whether it can be answered, and if so ends in `force_complete()`; True if this call completed it."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Answers the request."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """Its limit passed: called before `on_complete`."""

    def let_go(self) -> None:
        """Drops what it remembers of the request: it is done, and may lie under keys for a while."""

    def force_complete(self) -> bool:
        """Answers with what there is; True if it was not done before."""
        if self.is_completed:
            return False
        self.is_completed = True
        self.on_complete()
        return True


class Purgatory:
    """The operations that wait, by key, with their limits in a timer wheel.

    `on_error` is told of an exception in an operation's own code: it must not reach the append that woke it (PART-17).
    """

    def __init__(
        self,
        wheel: TimerWheel,
        now_ms: Callable[[], int],
        on_error: Callable[[DelayedOperation, Exception], object],
        purge_interval: int = PURGE_INTERVAL,
    ) -> None:
        self._wheel = wheel
        self._now_ms = now_ms
        self._on_error = on_error
        self._purge_interval = purge_interval
        self._watched: dict[Hashable, list[DelayedOperation]] = {}
        self._waiting = 0
        self._live = self._stale = 0  # entries under keys: of operations that wait, and at most of those that are done

    @property
    def delayed(self) -> int:
        """How many operations wait."""
        return self._waiting

    @property
    def watched(self) -> int:
        """How many entries there are under all keys, those included that are done and not yet swept."""
        return sum(map(len, self._watched.values()))

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """True if it was done at once; else it waits under `keys`, each of which has to wake it by itself."""
        if self._tries(operation):
            return True
        self._waiting += 1
        for key in keys:
            self._watched.setdefault(key, []).append(operation)
            operation.keys += 1
        self._live += operation.keys
        if not self._wheel.add(operation, self._now_ms() + operation.delay_ms):
            self.expire(operation)
        return operation.is_completed

    def check_and_complete(self, key: Hashable) -> int:
        """Looks at all that wait under the key, whose state changed; how many were completed by that."""
        operations = self._watched.pop(key, None)
        if operations is None:
            return 0
        completed, left = 0, []
        for operation in operations:
            if operation.is_completed:
                continue
            if self._tries(operation):
                completed += 1
                self._done(operation)
            else:
                left.append(operation)
        if left:  # what came in meanwhile stands behind those that waited before
            self._watched[key] = left + self._watched.get(key, [])
        return completed

    def expire(self, operation: DelayedOperation) -> None:
        """The wheel says that its limit has passed."""
        if operation.is_completed:
            return
        try:
            operation.on_expiration()
        except Exception as error:
            self._on_error(operation, error)
        self._complete(operation)

    def cancel(self, operation: DelayedOperation) -> None:
        """Nobody waits for its answer any more: it is given up without one."""
        if not operation.is_completed:
            operation.is_completed = True
            self._done(operation)

    def cancel_for_key(self, key: Hashable) -> list[DelayedOperation]:
        """Takes all operations from under the key, without completing them: they wait under their other keys."""
        return [operation for operation in self._watched.pop(key, ()) if not operation.is_completed]

    def complete_all(self) -> None:
        """Answers all that wait, with what there is: before a stop."""
        for operations in list(self._watched.values()):
            for operation in operations:
                if not operation.is_completed:
                    self._complete(operation)
        self._watched.clear()

    def _tries(self, operation: DelayedOperation) -> bool:
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
        self._done(operation)

    def _done(self, operation: DelayedOperation) -> None:
        self._wheel.cancel(operation)
        operation.let_go()
        self._waiting -= 1
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
