"""Map a function over items in several threads, with results in the items' order and bounded read-ahead.

For work that releases the interpreter lock: decompressing, decoding, checksums. Pure Python code does not get faster.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kafkalog.errors import IllegalState

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
R = TypeVar("R")

THREAD_NAME: Final = "kafkalog-ahead"
_AHEAD_PER_THREAD: Final = 2


def usable_cores() -> int:
    """Return the number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_ahead(
    work: Callable[[T], R], items: Iterable[T], *, threads: int | None = None, ahead: int | None = None
) -> Generator[R]:
    """Yield `work(item)` for each item, in the items' order, computed ahead by `threads` threads.

    threads: None is one for each usable core; with one or none, and for the first item, the caller's thread does the
    work on demand. ahead: the most items taken whose result is not yet yielded; None is twice the threads. This bounds
    the memory.

    The caller's thread takes the items. An exception of `work` or of the items is raised after the results of all items
    before it, and ends the iteration. At the end, at an exception (a Ctrl-C too) and at `close()`, pending work is
    dropped, work in progress is waited for, and the threads end.
    """
    count = usable_cores() if threads is None else threads
    if count <= 1:
        return _inline(work, items)
    return _ahead(work, iter(items), count, max(1, _AHEAD_PER_THREAD * count if ahead is None else ahead))


def _inline(work: Callable[[T], R], items: Iterable[T]) -> Generator[R]:
    for item in items:
        yield work(item)


def _ahead(work: Callable[[T], R], items: Iterator[T], threads: int, ahead: int) -> Generator[R]:
    from concurrent.futures import ThreadPoolExecutor  # takes some milliseconds, and few commands need it

    for item in items:
        yield work(item)
        break
    owner = os.getpid()
    source = _ItemSource(items)
    waiting: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(threads, THREAD_NAME)
    try:
        while True:
            waiting.extend(pool.submit(work, item) for item in source.take(ahead - len(waiting)))
            if not waiting:
                break
            if os.getpid() != owner:
                raise IllegalState(
                    "this iterator's threads are in the parent process", hint="create the iterator after the fork"
                )
            yield waiting.popleft().result()
        source.raise_failure()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class _ItemSource(Generic[T]):
    """Takes items from an iterator; its error is kept until all results before it were yielded."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._failure: Exception | None = None

    def take(self, count: int) -> Iterator[T]:
        """Yield at most `count` more items."""
        while count > 0 and self._failure is None:
            try:
                item = next(self._items)
            except StopIteration:
                return
            except Exception as error:
                self._failure = error
                return
            yield item
            count -= 1

    def raise_failure(self) -> None:
        """Raise the error that ended the items, if any."""
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # else it, its traceback and this frame keep each other alive
