"""The cleaner's I/O rate limit, shared by all its threads (CLN-42)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from kafkalog.util.clock import SYSTEM_CLOCK, Clock

CHECK_MS: Final = 300
"""Interval between checks of the rate, in ms."""
_MAX_SLEEP_MS: Final = 2**53
_SLICE_MS: Final = 100  # a sleeping thread calls its `check` this often


class Throttle:
    """Makes threads sleep when together they read and write more than `bytes_per_s`.

    Every 300 ms they sleep (bytes - rate * elapsed) / rate: 600 kB in 300 ms at 1 MB/s make 300 ms of sleep. Then the
    count restarts at 0. A negative rate means no limit, as in the reference. `total_bytes` and `slept_ms` are totals.
    Threads: all methods, from any; while one has to sleep, so do the others.
    """

    def __init__(self, bytes_per_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._bytes_per_s = bytes_per_s  # guarded by self._lock
        self._since_ms = clock.monotonic_ms()  # guarded by self._lock; later than now while threads sleep
        self._bytes = 0  # guarded by self._lock; since then
        self.total_bytes = 0  # guarded by self._lock
        self.slept_ms = 0  # guarded by self._lock

    @property
    def bytes_per_s(self) -> float:
        """The rate; a new one takes effect at once, also for sleeping threads."""
        return self._bytes_per_s

    @bytes_per_s.setter
    def bytes_per_s(self, bytes_per_s: float) -> None:
        with self._lock:
            if bytes_per_s != self._bytes_per_s:
                self._bytes_per_s = bytes_per_s
                self._since_ms = min(self._since_ms, self._clock.monotonic_ms())

    def throttle(self, count: int, check: Callable[[], object] = lambda: None) -> None:
        """Sleep until `count` more bytes fit the rate; `check` is called meanwhile and may raise."""
        with self._lock:
            self.total_bytes += count
            self._bytes += count
            self._check_rate_locked()
        while (left_ms := self._left_ms()) > 0:
            check()
            self._clock.sleep(min(left_ms, _SLICE_MS))

    def _check_rate_locked(self) -> None:
        now_ms = self._clock.monotonic_ms()
        elapsed_ms = now_ms - self._since_ms
        if elapsed_ms < CHECK_MS or self._bytes <= 0:
            return
        sleep_ms = 0
        if self._bytes_per_s > 0:
            needed_ms = min(self._bytes * 1000 / self._bytes_per_s, _MAX_SLEEP_MS)
            sleep_ms = max(round(needed_ms - elapsed_ms), 0)
        self._since_ms = now_ms + sleep_ms
        self._bytes = 0
        self.slept_ms += sleep_ms

    def _left_ms(self) -> int:
        with self._lock:
            return self._since_ms - self._clock.monotonic_ms()
