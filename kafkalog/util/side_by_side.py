"""The same for many things at once, in several threads; in this one alone where no thread can be started."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(step: Callable[[T], R], items: Iterable[T], threads: int, name: str) -> list[R]:
    """`step` of each item, in their order; the calling thread works along, with up to `threads` - 1 others.

    Others are not started where the interpreter ends, or the system has no more: then the work takes longer. The
    first exception is raised once all had their turn.
    """
    listed = list(items)
    results: list[R | None] = [None] * len(listed)
    failures: list[BaseException] = []
    lock = threading.Lock()
    left = iter(range(len(listed)))  # guarded by lock

    def work() -> None:
        while True:
            with lock:
                at = next(left, -1)
            if at < 0:
                return
            try:
                results[at] = step(listed[at])
            except BaseException as error:
                failures.append(error)

    others = _started(work, min(threads, len(listed)) - 1, name)
    work()
    for thread in others:
        thread.join()
    if failures:
        try:
            raise failures[0]
        finally:
            failures.clear()  # else they, their tracebacks and this frame keep each other alive
    return results  # type: ignore[return-value]


def _started(work: Callable[[], None], count: int, name: str) -> list[threading.Thread]:
    others: list[threading.Thread] = []
    for number in range(count):
        thread = threading.Thread(target=work, name=f"{name}-{number}")
        try:
            thread.start()
        except RuntimeError:
            break
        others.append(thread)
    return others
