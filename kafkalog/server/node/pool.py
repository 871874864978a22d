"""The pool of `num.io.threads` threads for the log's long calls, with metrics of waiting calls."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic
from typing import ParamSpec, Protocol, TypeVar

from kafkalog.server.status.metrics import QueueCounts
from kafkalog.util.waiting import MustWait, at_once

P = ParamSpec("P")
T = TypeVar("T")


class Run(Protocol):
    """Function that runs another one outside of the event loop and returns its result, as `CallPool.run` does."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> Awaitable[T]: ...


async def read_with(run: Run, function: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> T:
    """Call a function that only reads: on the loop if all it needs is in memory, else by `run`. Return its result."""
    try:
        return at_once(function, *args, **named)
    except MustWait:
        return await run(function, *args, **named)


class CallPool:
    """Runs functions in threads; used only in the loop's thread.

    `pending` is the number of unfinished calls. `on_change` is called whenever one finishes.
    """

    def __init__(self, threads: int, counts: QueueCounts | None = None) -> None:
        self.threads = threads
        self.pending = 0
        self.counts = QueueCounts() if counts is None else counts
        self.on_change: Callable[[], object] | None = None
        self._executor = _executor(threads)
        self._former: list[ThreadPoolExecutor] = []  # of earlier sizes: they finish their calls

    @property
    def waiting(self) -> int:
        """Number of calls that no thread has taken yet."""
        return max(0, self.pending - self.threads)

    def run(self, function: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> Awaitable[T]:
        """Run a function in a thread; return its result or raise its error, whose traceback keeps no buffers alive."""
        call: Callable[..., T] = partial(function, **named) if named else function
        loop = asyncio.get_running_loop()
        self.pending += 1
        self.counts.waiting = self.waiting
        future = loop.run_in_executor(self._executor, _timed, call, args, monotonic())
        future.add_done_callback(self._on_done)
        return _result(future)

    def _on_done(self, future: asyncio.Future[tuple[T, float]]) -> None:
        self.pending -= 1
        self.counts.waiting = self.waiting
        if not future.cancelled() and future.exception() is None:
            self.counts.waits_ms.add(future.result()[1] * 1000)
        if self.on_change is not None:
            self.on_change()

    def resize(self, threads: int) -> None:
        """Change the number of threads for later calls; earlier calls finish in the threads that they wait for."""
        if threads == self.threads:
            return
        self._former.append(self._executor)
        self._executor.shutdown(wait=False)
        self._executor, self.threads = _executor(threads), threads
        if not self.pending:
            self._former.clear()

    def close(self) -> None:
        """Wait for pending calls and end the threads."""
        for executor in (*self._former, self._executor):
            executor.shutdown()


def _executor(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="kafkalog-io")


def _timed(function: Callable[..., T], args: tuple[object, ...], queued_at: float) -> tuple[T, float]:
    waited = monotonic() - queued_at
    try:
        return function(*args), waited
    except BaseException as error:
        clear_frames(error)  # frees unpacked data before the error is reported
        raise


async def _result(future: asyncio.Future[tuple[T, float]]) -> T:
    try:
        return (await future)[0]
    finally:
        del future  # else the future, its error and this frame keep each other alive


def clear_frames(error: BaseException) -> None:
    """Clear the variables of all frames in the tracebacks of `error` and its causes; its text is unchanged.

    An error keeps the frames of its traceback, and these keep their buffers as long as the error exists.
    """
    pending: list[BaseException] = [error]
    seen: set[int] = set()
    while pending:
        one = pending.pop()
        if id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            pending += [other for other in (one.__cause__, one.__context__) if other is not None]
