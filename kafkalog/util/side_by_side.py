"""Run a function for many items in several threads, or in the caller's alone if no thread can be started."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(step: Callable[[T], R], items: Iterable[T], threads: int, name: str) -> list[R]:
    """Return `step` of each item, in order; the calling thread works too, with up to `threads` - 1 others.

    If the interpreter is ending or the system has no more threads, fewer are started and the work takes longer. The
    first exception is raised after all items were processed.
    """
    listed = list(items)
    results: list[R | None] = [None] * len(listed)
    failures: list[BaseException] = []
    lock = threading.Lock()
    indexes = iter(range(len(listed)))  # guarded by lock

    def work() -> None:
        while True:
            with lock:
                at = next(indexes, -1)
            if at < 0:
                return
            try:
                results[at] = step(listed[at])
            except BaseException as error:
                failures.append(error)

    helpers = _started(work, min(threads, len(listed)) - 1, name)
    work()
    for thread in helpers:
        thread.join()
    if failures:
        try:
            raise failures[0]
        finally:
            failures.clear()  # else they, their tracebacks and this frame keep each other alive
    return results  # type: ignore[return-value]


def _started(work: Callable[[], None], count: int, name: str) -> list[threading.Thread]:
    helpers: list[threading.Thread] = []
    for number in range(count):
        thread = threading.Thread(target=work, name=f"{name}-{number}")
        try:
            thread.start()
        except RuntimeError:
            break
        helpers.append(thread)
    return helpers
