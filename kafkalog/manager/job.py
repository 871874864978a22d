"""One background job: a function, its schedule, and the result of its last run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.scheduler import ONCE, Schedules, Task
from kafkalog.util.weak_registry import WeakRegistry

FAR_MS: Final = 2**63 - 1
JOBS: Final[WeakRegistry[Job]] = WeakRegistry()
"""The jobs of this process."""


class Job:
    """A function that runs `delay_ms` after the start, then every `period_ms`, and the result of its last run.

    `last_run_ms` (wall clock, ms) is the start of the last run, `last_duration_ms` its duration, `last_error` the
    exception that it raised. Each is None before the first run, and `last_error` is None after a successful run. A
    period of 0 or less means one run, as for the reference's scheduler.

    Threads: `run` from any; one at a time runs, the others wait for it.
    """

    __slots__ = (
        "__weakref__", "_clock", "_func", "_lock", "_period", "_running", "_scheduler", "_task", "delay_ms",
        "last_duration_ms", "last_error", "last_run_ms", "name", "runs",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        func: Callable[[], object],
        *,
        delay_ms: int,
        period_ms: int | Callable[[], int],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.name = name
        self.delay_ms = delay_ms
        self.runs = 0
        self.last_run_ms: int | None = None
        self.last_duration_ms: int | None = None
        self.last_error: Exception | None = None
        self._func = func
        self._period = period_ms
        self._clock = clock
        self._running = threading.RLock()
        self._lock = threading.Lock()
        self._task: Task | None = None  # guarded by self._lock
        self._scheduler: Schedules | None = None  # guarded by self._lock
        JOBS.add(self)

    @property
    def period_ms(self) -> int:
        """Time from the end of a run to the next, in ms; it follows the settings."""
        return self._period if isinstance(self._period, int) else self._period()

    def run(self) -> None:
        """Run now, in this thread. An exception of the function is stored in `last_error` and raised."""
        with self._running:
            began_ms = self._clock.monotonic_ms()
            self.last_run_ms = self._clock.milliseconds()
            self.runs += 1
            try:
                self._func()
                self.last_error = None
            except Exception as error:
                self.last_error = error
                raise
            finally:
                self.last_duration_ms = self._clock.monotonic_ms() - began_ms
                period_ms = _period_or_once(self.period_ms)
                with self._lock:
                    if self._task is not None:
                        self._task.period_ms = period_ms

    def start(self, scheduler: Schedules) -> None:
        """Schedule the job on `scheduler`: first after the delay, or after the period if that is shorter."""
        period_ms = self.period_ms
        first_ms = min(self.delay_ms, period_ms) if period_ms > 0 else self.delay_ms
        task = scheduler.schedule(self.name, self.run, first_ms, _period_or_once(period_ms))  # it may run at once
        with self._lock:
            self._scheduler, self._task = scheduler, task

    def reschedule(self) -> None:
        """Apply a changed period: the next run is one period from now."""
        period_ms = self.period_ms
        with self._lock:
            task, scheduler = self._task, self._scheduler
            if task is None or scheduler is None or task.period_ms == _period_or_once(period_ms) or period_ms <= 0:
                return
            task.cancel()
            self._task = scheduler.schedule(self.name, self.run, period_ms, period_ms)

    def stop(self) -> None:
        """Take the job off the scheduler and wait for a run in progress to end."""
        with self._lock:
            if self._task is not None:
                self._task.cancel()
            self._task = self._scheduler = None
        with self._running:
            pass

    def __repr__(self) -> str:
        period_ms = self.period_ms
        every = f"every {period_ms} ms" if 0 < period_ms < FAR_MS else "once"
        if self.last_run_ms is None:
            return f"<Job {self.name} {every}, not run yet>"
        outcome = "succeeded" if self.last_error is None else f"failed: {self.last_error}"
        return f"<Job {self.name} {every}, {self.runs} runs, the last took {self.last_duration_ms} ms and {outcome}>"


def _period_or_once(period_ms: int) -> int:
    return period_ms if period_ms > 0 else ONCE
