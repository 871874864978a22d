"""Background tasks of logs that are opened by themselves: delayed deletes, and the flush after a roll."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

from kafkalog.storage.log_parts.remover import DELETE_TASK
from kafkalog.util.guards import guard
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.scheduler import ONCE, Scheduler, Task

_LOCK: Final = guard()


def _new_scheduler() -> Scheduler:
    return Scheduler("kafkalog-background", ends_when_idle=True)


_process_scheduler = _new_scheduler()


def process_scheduler() -> Scheduler:
    """Return the scheduler that all logs of this process share: one daemon thread, which ends when it has no task."""
    return _process_scheduler


def _replace_in_child() -> None:
    """Give a forked child its own scheduler: the parent's has no thread there, and its lock may be taken."""
    global _process_scheduler
    _process_scheduler = _new_scheduler()


os.register_at_fork(after_in_child=_replace_in_child)


class LogTasks:
    """Tasks of one log on a shared scheduler; each runs once, and none after `shutdown()`.

    Files to be deleted without a delay are deleted in the calling thread. Threads: safe.
    """

    __slots__ = ("_closed", "_pending", "_running", "_scheduler")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._pending: dict[Task, Task | None] = {}  # task -> its task in the scheduler; guarded by _LOCK
        self._closed = False  # guarded by _LOCK
        self._running = threading.RLock()  # held by a run; reentrant, since a hook in a run may close the log

    def schedule(self, name: str, func: Callable[[], object], delay_ms: int = 0, period_ms: int = ONCE) -> Task:
        """Run `func` once after `delay_ms`; after `shutdown()`, delete files at once and drop other tasks."""
        task = Task(name, func, 0, ONCE, 0)
        is_delete = name == DELETE_TASK
        with deferred_interrupts(), _LOCK:
            is_now = self._closed or (is_delete and delay_ms <= 0)
            if not is_now:
                self._pending[task] = None
                scheduled = self._scheduler.schedule(name, lambda: self._run(task), delay_ms)
                if task in self._pending:  # a scheduler of tests may have run it
                    self._pending[task] = scheduled
        if is_now and is_delete:
            func()
        return task

    def _run(self, task: Task) -> None:
        """Run a task, unless it was dropped or run before its time."""
        with self._running:
            with _LOCK:
                if task not in self._pending:
                    return
                del self._pending[task]
            task.func()

    def delete_now(self) -> bool:
        """Delete the files that wait for their delay; return False if there were none. Errors are logged."""
        with deferred_interrupts():
            deletes = self._drop(lambda task: task.name == DELETE_TASK)
            for task in deletes:
                task.run()
        return bool(deletes)

    def shutdown(self) -> None:
        """Delete files that wait for their delay, drop pending flushes, and wait for a run in progress to end."""
        with deferred_interrupts():
            with _LOCK:
                self._closed = True
            self._drop(lambda task: task.name != DELETE_TASK)
            self.delete_now()
            with self._running:
                pass

    def _drop(self, condition: Callable[[Task], bool]) -> list[Task]:
        """Remove the pending tasks that meet the condition, from the scheduler too, and return them in order."""
        with _LOCK:
            dropped = {task: scheduled for task, scheduled in self._pending.items() if condition(task)}
            for task in dropped:
                del self._pending[task]
            self._scheduler.discard(scheduled for scheduled in dropped.values() if scheduled is not None)
        return list(dropped)
