"""An event loop in a thread of its own, for callers without one."""

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

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result or raise its error; a Ctrl-C cancels it.

        LogClosed if `stop` comes first.
        """
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # the loop is closed
            work.close()
            raise _closed() from None
        self._calls.add(future)
        if not self._thread.is_alive():  # it ended before the coroutine began
            future.cancel()
        try:
            return future.result()
        except CancelledError:
            raise _closed() from None
        except BaseException:
            future.cancel()
            raise
        finally:
            self._calls.discard(future)

    def stop(self) -> None:
        """End the thread; what is left on the loop is cancelled."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        for future in tuple(self._calls):
            future.cancel()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._stopping.wait())


def _closed() -> LogClosed:
    return LogClosed("the queue was closed meanwhile")
