"""The system's clock, and ages by it that a jump of the wall clock does not change."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final, Protocol

from kafkalog._core.bytes.clock import wall_milliseconds

_LOG: Final = logging.getLogger(__name__)


class Clock(Protocol):
    """Wall time for timestamps, monotonic time for waiting; both in whole milliseconds."""

    def milliseconds(self) -> int:
        """Return the wall-clock time since 1970 in ms, for records and file times."""

    def monotonic_ms(self) -> int:
        """Return a time that never goes back, from an arbitrary start, for timeouts only."""

    def sleep(self, ms: float) -> None:
        """Return after `ms` milliseconds."""


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    milliseconds = staticmethod(wall_milliseconds)  # without a Python frame, since each append calls it

    def monotonic_ms(self) -> int:
        """Return the monotonic time in ms."""
        return time.monotonic_ns() // 1_000_000

    def sleep(self, ms: float) -> None:
        """Return after `ms` milliseconds."""
        time.sleep(ms / 1000)

    def __repr__(self) -> str:
        return "SYSTEM_CLOCK"


SYSTEM_CLOCK = SystemClock()
JUMP_MS: Final = 5_000
"""A wall clock that gains more than this on the monotonic clock was set forward."""
TRUSTED_AFTER_MS: Final = 86_400_000
"""Time after which ages follow a wall clock that was set forward."""


class AgeClock:
    """Wall time for ages: data written a minute ago is a minute old, even if the wall clock is set.

    It advances with the monotonic clock and is never ahead of the wall clock. So setting the wall clock forward makes
    no data old, and setting it back makes no data written afterwards old. After a day ahead, the wall clock is trusted:
    it was wrong before. Threads: safe.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._lead_ms = clock.milliseconds() - clock.monotonic_ms()  # wall - monotonic time; guarded by self._lock
        self._ahead: tuple[int, int] | None = None  # (since, by how much) as above; guarded by self._lock

    def milliseconds(self) -> int:
        """Return the wall time in ms for computing ages."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            lead_ms = self._clock.milliseconds() - now_ms
            if lead_ms - self._lead_ms <= JUMP_MS:
                self._lead_ms, self._ahead = min(lead_ms, self._lead_ms), None
            else:
                self._handle_jump_locked(now_ms, lead_ms)
            return now_ms + self._lead_ms

    def _handle_jump_locked(self, now_ms: int, lead_ms: int) -> None:
        """Handle a wall clock that was set forward: follow it after a day."""
        if self._ahead is None:
            jump_s = (lead_ms - self._lead_ms) // 1000
            _LOG.warning("the wall clock jumped ahead by %d s: ages follow it after a day", jump_s)
            self._ahead = now_ms, lead_ms
        since_ms, least_ms = self._ahead
        self._ahead = since_ms, min(least_ms, lead_ms)
        if now_ms - since_ms >= TRUSTED_AFTER_MS:
            self._lead_ms, self._ahead = self._ahead[1], None
