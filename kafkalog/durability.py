"""When appended data is forced to disk: `sync=False`, `True` or a number of milliseconds."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable

from kafkalog.errors import IllegalArgument, IllegalState, KafkalogError
from kafkalog.util.interrupts import deferred_interrupts

Sync = bool | int | float


def check_sync(sync: Sync) -> Sync:
    """`sync` itself: False, True, or a positive number of milliseconds; IllegalArgument otherwise."""
    if isinstance(sync, bool):
        return sync
    if isinstance(sync, int | float) and 0 < sync < 2**31:
        return sync
    raise IllegalArgument(
        f"sync is {sync!r}", hint="use False (page cache), True (every append on disk) or milliseconds"
    )


def again(error: BaseException) -> BaseException:
    """A fresh copy of `error`, for raising it once more in another call or thread."""
    if isinstance(error, KafkalogError):
        fresh: BaseException = copy.copy(error)
    else:
        fresh = IllegalState(f"an earlier write failed: {error!r}")
    fresh.__cause__ = error
    return fresh


class BackgroundFlush:
    """Flushes a log within `delay_ms` of the first append that is not on disk yet.

    Threads: `touch` from any thread, after each append; one daemon thread calls `flush`. A flush that
    failed fails every later `touch`: what the disk lost is not known after that.
    """

    def __init__(self, flush: Callable[[], object], delay_ms: float, name: str) -> None:
        self._flush = flush
        self._delay = delay_ms / 1000
        # plain locks, released to wake the thread: an event's `set` is Python code that a Ctrl-C can stop half-way
        self._wake = threading.Lock()
        self._wake.acquire()
        self._stop = threading.Lock()
        self._stop.acquire()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"kafkalog-flush-{name}", daemon=True)
        self._thread.start()

    def touch(self) -> None:
        """Notes that there is data to flush; raises what an earlier flush met."""
        if self._failure is not None:
            raise again(self._failure)
        if self._wake.locked():
            _open(self._wake)

    def close(self) -> None:
        """Ends the thread without a last flush: closing the log flushes."""
        with deferred_interrupts():
            _open(self._stop)
            _open(self._wake)
            if threading.current_thread() is not self._thread:
                self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.acquire()
            if self._stop.acquire(timeout=self._delay):
                return
            try:
                self._flush()
            except BaseException as error:
                self._failure = error
                return


def _open(gate: threading.Lock) -> None:
    """Releases a lock that another thread waits for; one that is free already stays so."""
    try:
        gate.release()
    except RuntimeError:
        pass
