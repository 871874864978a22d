"""Calls that must not wait: an event loop reads only what is in memory, and leaves the rest to a thread.

`at_once` calls a function in this way. The places where a read may wait for the disk, or for a lock that is held during
file calls, then raise MustWait; the caller repeats the whole call in a thread that may wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Final, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
AT_ONCE: Final[set[int]] = set()
"""Ids of the threads within `at_once`; a hot path adds its own, and discards it before the next `await`.

A set costs a read less than a thread-local variable would; outside of a server it is always empty.
"""


class MustWait(Exception):
    """A call within `at_once` needs data that may not be in memory, or a lock that another thread holds."""


class _Lock(Protocol):
    def acquire(self, blocking: bool = True) -> bool: ...
    def release(self) -> None: ...


def at_once(function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Call a function that only reads. Raise MustWait, with nothing changed, if it would have to wait."""
    thread = get_ident()
    if thread in AT_ONCE:
        return function(*args, **named)
    AT_ONCE.add(thread)
    try:
        return function(*args, **named)
    finally:
        AT_ONCE.discard(thread)


def may_wait() -> bool:
    """Return False within `at_once`."""
    return get_ident() not in AT_ONCE


def check_may_wait() -> None:
    """Raise MustWait within `at_once`: the caller is about to open a file."""
    if get_ident() in AT_ONCE:
        raise MustWait


@contextmanager
def held(lock: _Lock) -> Iterator[None]:
    """Hold `lock` during the block; within `at_once` raise MustWait if another thread holds it."""
    if not lock.acquire(may_wait()):
        raise MustWait
    try:
        yield
    finally:
        lock.release()
