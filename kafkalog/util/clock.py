"""Where time comes from: the system, or a test's own clock."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final, Protocol

_LOG: Final = logging.getLogger(__name__)


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
JUMP_MS: Final = 5_000
"""A wall clock that gains more than this on the monotonic one was set forward."""
BELIEVED_AFTER_MS: Final = 86_400_000
"""So long a wall clock that was set forward has to stand before ages are counted by it."""


class AgeClock:
    """Wall time for ages: what was written a minute ago is a minute old, whatever happens to the wall clock.

    It goes with the monotonic clock and is never ahead of the wall clock. So a wall clock that is set forward makes
    nothing old, and one that is set back makes nothing that is written from then on old. A wall clock that has stood
    ahead for a day is believed: it was wrong before. Threads: safe.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._lead_ms = clock.milliseconds() - clock.monotonic_ms()  # wall - monotonic time; guarded by self._lock
        self._ahead: tuple[int, int] | None = None  # (since, by how much) as above; guarded by self._lock

    def milliseconds(self) -> int:
        """Wall time in ms that ages may be counted up to."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            lead_ms = self._clock.milliseconds() - now_ms
            if lead_ms - self._lead_ms <= JUMP_MS:
                self._lead_ms, self._ahead = min(lead_ms, self._lead_ms), None
            else:
                self._look_ahead_locked(now_ms, lead_ms)
            return now_ms + self._lead_ms

    def _look_ahead_locked(self, now_ms: int, lead_ms: int) -> None:
        """The wall clock was set forward: wait whether it stays there."""
        if self._ahead is None:
            jump_s = (lead_ms - self._lead_ms) // 1000
            _LOG.warning("the wall clock went ahead by %d s: ages follow it when it has stood for a day", jump_s)
            self._ahead = now_ms, lead_ms
        since_ms, least_ms = self._ahead
        self._ahead = since_ms, min(least_ms, lead_ms)
        if now_ms - since_ms >= BELIEVED_AFTER_MS:
            self._lead_ms, self._ahead = self._ahead[1], None


class MockClock:
    """A clock that stands still until `advance` or `sleep` moves it. Threads: safe."""

    def __init__(self, now_ms: int = 1_000_000_000_000) -> None:
        self._setting = threading.Lock()
        self._now_ms = now_ms  # guarded by self._setting
        self._monotonic_ms = 0  # guarded by self._setting

    def milliseconds(self) -> int:
        """The wall time it stands at, in ms."""
        with self._setting:
            return self._now_ms

    def monotonic_ms(self) -> int:
        """The sum of all advances, in ms."""
        with self._setting:
            return self._monotonic_ms

    def sleep(self, ms: float) -> None:
        """Move on by `ms` and return at once."""
        self.advance(int(ms))

    def advance(self, ms: int) -> int:
        """The new wall time, `ms` later; ValueError when `ms` is negative."""
        if ms < 0:
            raise ValueError(f"time does not go back: advance({ms})")
        with self._setting:
            self._now_ms += ms
            self._monotonic_ms += ms
            return self._now_ms

    def set_wall_ms(self, now_ms: int) -> None:
        """Set the wall clock, back too, as an operator may; monotonic time does not move."""
        with self._setting:
            self._now_ms = now_ms
