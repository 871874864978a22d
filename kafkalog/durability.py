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


def open_gate(gate: threading.Lock) -> None:
    """Releases a lock that a thread waits for, or will; one that is free already stays so.

    This, not a condition or an event, is how threads are woken here: the methods of those are Python code
    that a Ctrl-C can stop half-way, and the next wake-up is then lost.
    """
    if gate.locked():
        try:
            gate.release()
        except RuntimeError:  # another thread was faster
            pass


def shut_gate() -> threading.Lock:
    """A gate to wait at: `gate.acquire()` returns once it is opened."""
    gate = threading.Lock()
    gate.acquire()
    return gate


class BackgroundFlush:
    """Flushes a log within `delay_ms` of the first append that is not on disk yet.

    Threads: `touch` from any thread, after each append; one daemon thread calls `flush`. A flush that
    failed fails every later `touch`: what the disk lost is not known after that.
    """

    def __init__(self, flush: Callable[[], object], delay_ms: float, name: str) -> None:
        self._flush = flush
        self._delay = delay_ms / 1000
        self._wake = shut_gate()
        self._stop = shut_gate()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"kafkalog-flush-{name}", daemon=True)
        self._thread.start()

    def touch(self) -> None:
        """Notes that there is data to flush; raises what an earlier flush met."""
        if self._failure is not None:
            raise again(self._failure)
        open_gate(self._wake)

    def close(self) -> None:
        """Ends the thread without a last flush: closing the log flushes."""
        with deferred_interrupts():
            open_gate(self._stop)
            open_gate(self._wake)
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
