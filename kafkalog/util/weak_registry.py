"""Weak registry of all objects of one kind in the process."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

from kafkalog.util.guards import guard

T = TypeVar("T")


class WeakRegistry(Generic[T]):
    """A set of weak references to objects. Threads: any; usable from a `__del__`, and after a fork."""

    def __init__(self) -> None:
        self._lock = guard()
        self._objects: weakref.WeakSet[T] = weakref.WeakSet()  # guarded by self._lock

    def add(self, one: T) -> None:
        """Add an object for as long as it lives."""
        with self._lock:
            self._objects.add(one)

    def all(self) -> list[T]:
        """Return the live objects."""
        with self._lock:
            return list(self._objects)
