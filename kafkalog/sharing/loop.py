"""An event loop in a separate thread, for callers without one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from kafkalog.errors import LogClosed

T = TypeVar("T")


class LoopThread:
    """An event loop that runs until `stop`. Threads: any may call."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._calls: set[Future[Any]] = set()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop; its future is cancelled if `stop` comes first. LogClosed after `stop`."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # the loop is closed
            work.close()
            raise closed() from None
        self._calls.add(future)
        future.add_done_callback(self._calls.discard)
        if not self._thread.is_alive():  # it ended before the coroutine began
            future.cancel()
        return future

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result or raise its error; a Ctrl-C cancels it.

        LogClosed if `stop` comes first.
        """
        return result_of(self.submit(work))

    def stop(self) -> None:
        """End the thread; what is left on the loop is cancelled."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        for future in list(self._calls):  # one step of the interpreter, also without the GIL
            future.cancel()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._stopping.wait())


def result_of(future: Future[T]) -> T:
    """Wait for a call's result; a Ctrl-C cancels the call. LogClosed if the loop ended first."""
    try:
        return future.result()
    except CancelledError:
        raise closed() from None
    except BaseException:
        future.cancel()
        raise
    finally:
        del future  # else it, its error and this frame keep each other alive


def closed() -> LogClosed:
    """Return the error of a call that the end of the loop has overtaken."""
    return LogClosed("the queue was closed meanwhile")
