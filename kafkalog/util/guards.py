"""Locks that are safe to take from finalizers.

A garbage collection can begin at any allocation, also inside a call of this package that holds a lock. It may drop an
unclosed log, whose closing takes the same lock, or waits for the thread that it runs in: a deadlock.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from kafkalog.util.waiting import may_wait

_guards: Final[list[Any]] = []
_steps: Final[deque[Callable[[], object]]] = deque()
_finalizer_lock: Final = threading.Lock()  # held only by threads that this package starts
THREADS: Final = "kafkalog-"
"""Prefix of the names of threads that this package starts."""


def guard() -> AbstractContextManager[object]:
    """Return a lock for the life of the process, released in a forked child; one per module, not per object.

    The lock is reentrant; `run_finalizer` keeps a finalizer from re-entering it.
    """
    lock = threading.RLock()
    _guards.append(lock)
    return lock


class _Nesting(threading.local):
    depth = 0


_nesting: Final = _Nesting()


class finalize_off_thread:
    """A block of work that closing a store waits for: finalizers run in another thread (`run_finalizer`). They nest."""

    __slots__ = ()

    def __enter__(self) -> None:
        _nesting.depth += 1

    def __exit__(self, *exc: object) -> None:
        _nesting.depth -= 1


def run_finalizer(step: Callable[[], object]) -> None:
    """Run the finalizer `step`, in another thread if this one might deadlock.

    That is a thread inside a guard or `finalize_off_thread`, or one of this package: these hold locks of logs, and
    closing waits for them. Within `at_once` a thread may not wait at all. The other thread runs steps one after the
    other: objects dropped together may depend on each other.
    """
    is_ours = _nesting.depth > 0 or not may_wait() or threading.current_thread().name.startswith(THREADS)
    if is_ours or any(lock._is_owned() for lock in _guards):
        _steps.append(step)
        try:
            threading.Thread(target=_run_steps, name=f"{THREADS}finalizer", daemon=True).start()
        except RuntimeError:  # the interpreter ends and closes open files; or the next step runs this one too
            pass
    else:
        step()


def _run_steps() -> None:
    with _finalizer_lock:
        while _steps:
            _steps.popleft()()


def _free_in_child() -> None:
    for lock in (*_guards, _finalizer_lock):
        lock._at_fork_reinit()
    _steps.clear()


os.register_at_fork(after_in_child=_free_in_child)
