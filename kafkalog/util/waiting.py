"""Calls that must not wait: an event loop reads only what is in memory, and leaves the rest to a thread.

`at_once` calls a function in this way. The places where a read may wait for the disk, or for a lock that is held during
file calls, then raise MustWait; the caller repeats the whole call in a thread that may wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class MustWait(Exception):
    """A call within `at_once` needs data that may not be in memory, or a lock that another thread holds."""


class _Thread(threading.local):
    """Mode of the current thread."""

    may_wait = True


class _Lock(Protocol):
    def acquire(self, blocking: bool = True) -> bool: ...
    def release(self) -> None: ...


THREAD: Final = _Thread()
"""`may_wait` is False within `at_once`. A hot path sets it itself: no `await` may come before it is True again."""


def at_once(function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Call a function that only reads. Raise MustWait, with nothing changed, if it would have to wait."""
    before, THREAD.may_wait = THREAD.may_wait, False
    try:
        return function(*args, **named)
    finally:
        THREAD.may_wait = before


def check_may_wait() -> None:
    """Raise MustWait within `at_once`: the caller is about to open a file."""
    if not THREAD.may_wait:
        raise MustWait


@contextmanager
def held(lock: _Lock) -> Iterator[None]:
    """Hold `lock` during the block; within `at_once` raise MustWait if another thread holds it."""
    if not lock.acquire(THREAD.may_wait):
        raise MustWait
    try:
        yield
    finally:
        lock.release()
