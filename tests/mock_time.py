"""A clock that tests set, and a scheduler that runs tasks when it reaches their time."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable, Iterable

from kafkalog.errors import IllegalState
from kafkalog.util.scheduler import ONCE, Task


class MockClock:
    """A clock that changes only by `advance`, `sleep` and `set_wall_ms`. Threads: safe."""

    def __init__(self, now_ms: int = 1_000_000_000_000) -> None:
        self._setting = threading.Lock()
        self._now_ms = now_ms  # guarded by self._setting
        self._monotonic_ms = 0  # guarded by self._setting

    def milliseconds(self) -> int:
        """Return the current wall time in ms."""
        with self._setting:
            return self._now_ms

    def monotonic_ms(self) -> int:
        """Return the sum of all advances in ms."""
        with self._setting:
            return self._monotonic_ms

    def sleep(self, ms: float) -> None:
        """Advance by `ms` and return at once."""
        self.advance(int(ms))

    def advance(self, ms: int) -> int:
        """Advance by `ms` and return the new wall time; raise ValueError if `ms` is negative."""
        if ms < 0:
            raise ValueError(f"time cannot go back: advance({ms})")
        with self._setting:
            self._now_ms += ms
            self._monotonic_ms += ms
            return self._now_ms

    def set_wall_ms(self, now_ms: int) -> None:
        """Set the wall clock, forward or back, as an operator may; monotonic time does not change."""
        with self._setting:
            self._now_ms = now_ms


class MockScheduler:
    """Runs tasks in the caller's thread when `tick()` finds that a MockClock has reached their time.

    Tasks run in the order of their times, then of their scheduling. Belongs to one thread.
    """

    def __init__(self, clock: MockClock) -> None:
        self.clock = clock
        self._queue: list[Task] = []
        self._orders = itertools.count()
        self._stopped = False

    def schedule(self, name: str, func: Callable[[], object], delay_ms: int = 0, period_ms: int = ONCE) -> Task:
        """Schedule `func` and return the task; one that is due already (`delay_ms` <= 0) runs before this returns."""
        if self._stopped:
            raise IllegalState(f"the scheduler is shut down: cannot schedule {name}")
        at_ms = self.clock.monotonic_ms() + max(0, delay_ms)
        task = Task(name, func, at_ms, period_ms, next(self._orders))
        heapq.heappush(self._queue, task)
        self.tick()
        return task

    def discard(self, tasks: Iterable[Task]) -> None:
        """Cancel `tasks` and remove them from the queue."""
        discarded = set(tasks)
        for task in discarded:
            task.cancel()
        self._queue = sorted(task for task in self._queue if task not in discarded)

    def tick(self) -> int:
        """Run every due task, periodic ones as often as they are due; return the number of runs."""
        runs = 0
        while self._queue and self._queue[0].at_ms <= self.clock.monotonic_ms():
            task = heapq.heappop(self._queue)
            due_ms = task.at_ms
            task.run()
            runs += 1
            if not self._stopped and task.next_run(due_ms):
                heapq.heappush(self._queue, task)
        return runs

    def advance(self, ms: int) -> int:
        """Advance the clock by `ms` and run due tasks; return the number of runs."""
        self.clock.advance(ms)
        return self.tick()

    @property
    def pending(self) -> list[str]:
        """Names of the pending tasks, the next one first."""
        return [task.name for task in sorted(self._queue) if not task.cancelled]

    def shutdown(self) -> None:
        """Drop the pending tasks."""
        self._stopped = True
        self._queue.clear()
