"""A server's clock that the test moves ahead: its time, and the timers that wait for it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Any, TypeVarTuple

from kafkalog._core.bytes.clock import wall_milliseconds
from kafkalog.util.clock import SYSTEM_CLOCK

Ts = TypeVarTuple("Ts")


class MovedClock:
    """The machine's clock, `ahead_ms` ahead of it."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms

    def milliseconds(self) -> int:
        """Return the wall-clock time in ms."""
        return wall_milliseconds() + self.ahead_ms

    def monotonic_ms(self) -> int:
        """Return the monotonic time in ms."""
        return SYSTEM_CLOCK.monotonic_ms() + self.ahead_ms

    def sleep(self, ms: float) -> None:
        """Return after `ms` milliseconds of real time."""
        SYSTEM_CLOCK.sleep(ms)


class MovableTimer(asyncio.TimerHandle):
    """A timer whose callback runs when its time has come, or when the clock is moved past it."""

    def __init__(
        self, timers: MovableTimers, due_ms: float, order: int, callback: Callable[[], object]
    ) -> None:
        self.due_ms = due_ms
        self.order = order
        self._timers = timers
        self._run_once: Callable[[], object] | None = callback
        self._loop_handle: asyncio.TimerHandle | None = None

    def __lt__(self, other: Any) -> bool:
        return (self.due_ms, self.order) < (other.due_ms, other.order)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"<MovableTimer due at {self.due_ms:g} ms>"

    def schedule(self, loop: asyncio.AbstractEventLoop, delay_ms: float) -> None:
        """Run the callback after `delay_ms` of real time."""
        if self._loop_handle is not None:
            self._loop_handle.cancel()
        self._loop_handle = loop.call_later(max(0.0, delay_ms) / 1000, self.run)

    def cancel(self) -> None:
        """Prevent the callback from running."""
        self._run_once = None
        self._end()

    def cancelled(self) -> bool:
        """Return True if the timer was cancelled, or has run."""
        return self._run_once is None

    def when(self) -> float:
        """Return the time at which it is due, in seconds of the moved clock."""
        return self.due_ms / 1000

    def run(self) -> None:
        """Run the callback now."""
        callback, self._run_once = self._run_once, None
        self._end()
        if callback is not None:
            callback()

    def _end(self) -> None:
        self._timers.pending.discard(self)
        if self._loop_handle is not None:
            self._loop_handle.cancel()
            self._loop_handle = None


class MovableTimers:
    """The timers of a server's node: `later` replaces the loop's. Used only in the loop's thread."""

    def __init__(self, clock: MovedClock) -> None:
        self.pending: set[MovableTimer] = set()
        self._clock = clock
        self._orders = itertools.count()

    def later(self, delay_ms: float, callback: Callable[[*Ts], object], /, *args: *Ts) -> asyncio.TimerHandle:
        """Call `callback(*args)` after `delay_ms` of the moved clock."""
        now_ms = self._clock.monotonic_ms()
        timer = MovableTimer(self, now_ms + delay_ms, next(self._orders), lambda: callback(*args))
        self.pending.add(timer)
        timer.schedule(asyncio.get_running_loop(), delay_ms)
        return timer

    async def advance(self, ms: int) -> None:
        """Move the clock ahead and run the callbacks that are due by then, in the order of their times."""
        self._clock.ahead_ms += ms
        now_ms = self._clock.monotonic_ms()
        due = [timer for timer in self.pending if timer.due_ms <= now_ms]
        heapq.heapify(due)
        while due:
            heapq.heappop(due).run()
            await asyncio.sleep(0)  # requests that it answers go on
        loop = asyncio.get_running_loop()
        for timer in tuple(self.pending):
            timer.schedule(loop, timer.due_ms - now_ms)
