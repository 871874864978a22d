"""Where time comes from: the system, or a test's own clock."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for timestamps, monotonic time for waiting; both in whole milliseconds."""

    def milliseconds(self) -> int:
        """Wall-clock time since 1970 in ms: what goes into records and file times."""

    def monotonic_ms(self) -> int:
        """Time that never goes back, from an arbitrary start: for timeouts only."""

    def sleep(self, ms: float) -> None:
        """Return after `ms` milliseconds."""


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def milliseconds(self) -> int:
        """Wall-clock time since 1970 in ms."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Monotonic time in ms."""
        return time.monotonic_ns() // 1_000_000

    def sleep(self, ms: float) -> None:
        """Return after `ms` milliseconds."""
        time.sleep(ms / 1000)

    def __repr__(self) -> str:
        return "SYSTEM_CLOCK"


SYSTEM_CLOCK = SystemClock()


class MockClock:
    """A clock that stands still until `advance` or `sleep` moves it. Threads: safe."""

    def __init__(self, now_ms: int = 1_000_000_000_000) -> None:
        self._lock = threading.Lock()
        self._now_ms = now_ms  # guarded by self._lock
        self._monotonic_ms = 0  # guarded by self._lock

    def milliseconds(self) -> int:
        """The wall time it stands at, in ms."""
        with self._lock:
            return self._now_ms

    def monotonic_ms(self) -> int:
        """The sum of all advances, in ms."""
        with self._lock:
            return self._monotonic_ms

    def sleep(self, ms: float) -> None:
        """Move on by `ms` and return at once."""
        self.advance(int(ms))

    def advance(self, ms: int) -> int:
        """The new wall time, `ms` later; ValueError when `ms` is negative."""
        if ms < 0:
            raise ValueError(f"time does not go back: advance({ms})")
        with self._lock:
            self._now_ms += ms
            self._monotonic_ms += ms
            return self._now_ms

    def set_wall_ms(self, now_ms: int) -> None:
        """Set the wall clock, back too, as an operator may; monotonic time does not move."""
        with self._lock:
            self._now_ms = now_ms
