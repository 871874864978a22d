"""A scheduler of delayed and periodic tasks, which run on background threads: deletes, flushes, checkpoints."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from kafkalog.errors import IllegalState
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.interrupts import deferred_interrupts

_LOG: Final = logging.getLogger(__name__)
ONCE: Final = -1
_LONGEST_WAIT_MS: Final = 86_400_000  # a longer wait may not fit the system's type; the loop waits again


class Task:
    """A scheduled function; `cancel()` prevents further runs, `done` is True after the last one."""

    __slots__ = ("at_ms", "cancelled", "done", "func", "name", "order", "period_ms")

    def __init__(self, name: str, func: Callable[[], object], at_ms: int, period_ms: int, order: int) -> None:
        self.name = name
        self.func = func
        self.at_ms = at_ms
        self.period_ms = period_ms
        self.order = order
        self.cancelled = False
        self.done = False

    def cancel(self) -> None:
        """Prevent further runs; a run in progress finishes."""
        self.cancelled = True

    def __lt__(self, other: Task) -> bool:
        return (self.at_ms, self.order) < (other.at_ms, other.order)

    def run(self) -> None:
        """Run once. An exception is logged; this task and the others continue."""
        if self.cancelled:
            return
        try:
            self.func()
        except Exception:
            _LOG.exception("background task %s failed", self.name)

    def next_run(self, now_ms: int) -> bool:
        """Schedule the next run one period later (at least 1 ms: KAFKA-16588); return False if there is none."""
        if self.cancelled or self.period_ms < 0:
            self.done = True
            return False
        self.at_ms = now_ms + max(1, self.period_ms)
        return True


class Schedules(Protocol):
    """Interface of a scheduler."""

    def schedule(self, name: str, func: Callable[[], object], delay_ms: int = 0, period_ms: int = ONCE) -> Task:
        """Run `func` after `delay_ms`; with `period_ms` >= 0 again, that long after the end of each run."""

    def shutdown(self) -> None:
        """Stop: running tasks finish, pending ones never run."""


class Scheduler:
    """Runs tasks on up to `threads` daemon threads, each started when a task finds no idle thread.

    With `ends_when_idle` a thread ends when no task is pending; otherwise it waits for the next one.

    Threads: safe. A Ctrl-C waits for the end of a call: inside a condition's methods, which are Python code, it could
    leave the lock taken or lose a wake-up.
    """

    def __init__(
        self,
        name: str = "kafkalog-scheduler",
        clock: Clock = SYSTEM_CLOCK,
        threads: int = 1,
        *,
        ends_when_idle: bool = False,
    ) -> None:
        self._name = name
        self._clock = clock
        self._ends_when_idle = ends_when_idle
        self._changed = threading.Condition()
        self._queue: list[Task] = []  # guarded by self._changed
        self._threads: set[threading.Thread] = set()  # guarded by self._changed
        self._most = max(1, threads)  # guarded by self._changed
        self._idle = 0  # threads that wait for a task; guarded by self._changed
        self._stopped = False  # guarded by self._changed
        self._orders = itertools.count()

    def schedule(self, name: str, func: Callable[[], object], delay_ms: int = 0, period_ms: int = ONCE) -> Task:
        """Run `func` after `delay_ms`, and with `period_ms` >= 0 periodically; return the task.

        Raises IllegalState after `shutdown()`.
        """
        at_ms = self._clock.monotonic_ms() + max(0, delay_ms)
        task = Task(name, func, at_ms, period_ms, next(self._orders))
        with deferred_interrupts(), self._changed:
            if self._stopped:
                raise IllegalState(f"{self._name} is shut down: cannot schedule {name}")
            heapq.heappush(self._queue, task)
            self._grow_locked()
            self._changed.notify()
        return task

    def discard(self, tasks: Iterable[Task]) -> None:
        """Cancel `tasks` and remove them from the queue; a run in progress finishes."""
        with deferred_interrupts(), self._changed:
            discarded = set(tasks)
            for task in discarded:
                task.cancel()
            self._queue = [task for task in self._queue if task not in discarded]
            heapq.heapify(self._queue)
            self._changed.notify_all()

    def resize(self, threads: int) -> None:
        """Limit the threads to `threads` from now on; surplus threads end when they have no task."""
        with deferred_interrupts(), self._changed:
            self._most = max(1, threads)
            self._changed.notify_all()

    def shutdown(self, timeout_s: float | None = 10.0) -> None:
        """Stop: wait for running tasks, drop pending ones. A second call does nothing."""
        with deferred_interrupts(), self._changed:
            self._stopped = True
            self._queue.clear()
            threads = tuple(self._threads)
            self._changed.notify_all()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(timeout_s)

    def _grow_locked(self) -> None:
        """Start a thread if tasks are pending and no thread is idle; after a failure the next call retries."""
        if self._queue and not self._idle and len(self._threads) < self._most:
            name = self._name if self._most == 1 else f"{self._name}-{len(self._threads)}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                _LOG.warning("%s: %s; tasks wait for a running thread", name, error)
            else:
                self._threads.add(thread)

    def _work(self) -> None:
        while (task := self._next()) is not None:
            task.run()
            with self._changed:
                if not self._stopped and task.next_run(self._clock.monotonic_ms()):
                    heapq.heappush(self._queue, task)
            del task  # releases what its function holds, such as a deleted segment

    def _next(self) -> Task | None:
        """Wait for the next due task and return it; return None at shutdown, and to a thread that is to end."""
        with self._changed:
            while not self._stopped and len(self._threads) <= self._most and (self._queue or not self._ends_when_idle):
                wait_ms = self._queue[0].at_ms - self._clock.monotonic_ms() if self._queue else _LONGEST_WAIT_MS
                if wait_ms <= 0:
                    task = heapq.heappop(self._queue)
                    self._grow_locked()
                    return task
                self._idle += 1
                try:
                    self._changed.wait(min(wait_ms, _LONGEST_WAIT_MS) / 1000)
                finally:
                    self._idle -= 1
            self._threads.discard(threading.current_thread())
            return None
