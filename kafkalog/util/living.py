"""The objects of one kind that a process has, for who wants to see all of them."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Generic, TypeVar

T = TypeVar("T")


class Living(Generic[T]):
    """A set of objects that keeps none of them alive. Threads: any; usable from a `__del__`, and after a fork."""

    def __init__(self) -> None:
        # a collection of garbage may run code in the middle of a call, in the same thread: it must not wait for us
        self._lock = threading.RLock()
        self._objects: weakref.WeakSet[T] = weakref.WeakSet()  # guarded by self._lock
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        """In a forked child: another thread of the parent may have held the lock."""
        self._lock = threading.RLock()

    def add(self, one: T) -> None:
        """One more, as long as it lives."""
        with self._lock:
            self._objects.add(one)

    def all(self) -> list[T]:
        """Those that live now."""
        with self._lock:
            return list(self._objects)
