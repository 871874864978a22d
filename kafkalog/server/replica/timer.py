"""A hierarchical timer wheel: adding and cancelling take constant time, however many requests wait.

Most requests that wait are done long before their limit, so a heap would be full of entries that nobody needs any more.
A wheel of `size` buckets of one ms holds what is due soon; a wheel above it, whose bucket is as long as the whole wheel
below, what is due later. A bucket whose time has come is emptied into the wheels below it.
"""

from __future__ import annotations

import heapq
from typing import Any, Final

SIZE: Final = 64


class TimerTask:
    """Something with a limit in time. It may be in one wheel, once."""

    __slots__ = ("_bucket", "due_ms")

    def __init__(self) -> None:
        self.due_ms = 0
        self._bucket: dict[TimerTask, None] | None = None

    @property
    def is_scheduled(self) -> bool:
        """Whether its time is still to come."""
        return self._bucket is not None


class _Level:
    """One wheel: buckets by the number of the tick, as many at a time as the wheel has."""

    __slots__ = ("buckets", "tick_ms")

    def __init__(self, tick_ms: int) -> None:
        self.tick_ms = tick_ms
        self.buckets: dict[int, dict[TimerTask, None]] = {}


class TimerWheel:
    """Tasks by the time when they are due, in ms of a clock that never goes back.

    It has no thread and no clock: who owns it calls `advance_to` at `next_due_ms` or later. One thread at a time.
    """

    def __init__(self, now_ms: int, size: int = SIZE) -> None:
        if size < 2:
            raise ValueError(f"a wheel of {size} buckets: it needs 2 at least")
        self._size = size
        self._now_ms = now_ms
        self._levels = [_Level(1)]
        self._expirations: list[tuple[int, int, int]] = []  # (when, level, bucket) of each bucket that has tasks
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, task: TimerTask, due_ms: int) -> bool:
        """Takes the task in; False where its time has come already, and then it is not in the wheel."""
        if task.is_scheduled:
            raise ValueError("the task is in a wheel already")
        task.due_ms = due_ms
        if not self._place(task):
            return False
        self._count += 1
        return True

    def cancel(self, task: TimerTask) -> bool:
        """Takes the task out; False where it is in no wheel, or no more."""
        bucket, task._bucket = task._bucket, None
        if bucket is None:
            return False
        del bucket[task]
        self._count -= 1
        return True

    def next_due_ms(self) -> int | None:
        """When `advance_to` has something to do next, None with no task in the wheel. It may be early, never late."""
        while self._expirations:
            when, level, index = self._expirations[0]
            if self._levels[level].buckets.get(index):
                return when
            heapq.heappop(self._expirations)
            self._levels[level].buckets.pop(index, None)
        return None

    def advance_to(self, now_ms: int) -> list[Any]:
        """The tasks that are due by `now_ms`, in the order of their ticks; they are in the wheel no more."""
        due: list[TimerTask] = []
        while self._expirations and self._expirations[0][0] <= now_ms:
            when, level, index = heapq.heappop(self._expirations)
            bucket = self._levels[level].buckets.pop(index)
            self._now_ms = max(self._now_ms, when)
            for task in bucket:
                task._bucket = None
                if not self._place(task):
                    due.append(task)
        self._now_ms = max(self._now_ms, now_ms)
        self._count -= len(due)
        return due

    def _place(self, task: TimerTask) -> bool:
        if task.due_ms <= self._now_ms:
            return False
        number, tick_ms = 0, 1
        while task.due_ms >= self._now_ms - self._now_ms % tick_ms + tick_ms * self._size:
            number, tick_ms = number + 1, tick_ms * self._size
        while len(self._levels) <= number:
            self._levels.append(_Level(self._levels[-1].tick_ms * self._size))
        buckets, index = self._levels[number].buckets, task.due_ms // tick_ms
        bucket = buckets.get(index)
        if bucket is None:
            bucket = buckets[index] = {}
            heapq.heappush(self._expirations, (index * tick_ms, number, index))
        bucket[task] = None
        task._bucket = bucket
        return True
