"""Locks that whoever the garbage collector wakes may find held by its own thread.

A collection can begin at any allocation, also in the middle of a call of ours that holds a lock. It may drop a log that
nobody closed, whose closing takes the same lock, or waits for the thread that it runs in: it would wait for itself for
ever.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final

_guards: Final[list[Any]] = []
_steps: Final[deque[Callable[[], object]]] = deque()
_taking: Final = threading.Lock()  # held by threads of our own only
THREADS: Final = "kafkalog-"
"""What the names of the threads begin with that this package starts."""


def guard() -> AbstractContextManager[object]:
    """A lock for the life of the process, free again in a forked child. Made once for a module, not for each object.

    A thread that has it may take it again; that this does not happen to closing is what `finish` is for.
    """
    lock = threading.RLock()
    _guards.append(lock)
    return lock


class _Inside(threading.local):
    depth = 0


_inside: Final = _Inside()


class ends_elsewhere:
    """A block in which this thread does work that the end of a store waits for: see `finish`. Blocks nest."""

    __slots__ = ()

    def __enter__(self) -> None:
        _inside.depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _inside.depth -= 1


def finish(step: Callable[[], object]) -> None:
    """Runs `step`, the end of something that was dropped; in another thread where this one may have to end first.

    That is where it is inside a guard, or in `ends_elsewhere`, or one of ours: those hold locks of logs, and closing
    waits for them. There, steps go one after the other: what was dropped together may be two ends of one thing.
    """
    is_ours = _inside.depth > 0 or threading.current_thread().name.startswith(THREADS)
    if is_ours or any(lock._is_owned() for lock in _guards):
        _steps.append(step)
        try:
            threading.Thread(target=_take_steps, name=f"{THREADS}finish", daemon=True).start()
        except RuntimeError:  # the interpreter ends, which closes what is open; or it is taken with the next step
            pass
    else:
        step()


def _take_steps() -> None:
    with _taking:
        while _steps:
            _steps.popleft()()


def _free_in_child() -> None:
    for lock in (*_guards, _taking):
        lock._at_fork_reinit()
    _steps.clear()


os.register_at_fork(after_in_child=_free_in_child)
