"""A hierarchical timer wheel: adding and cancelling take constant time, however many requests wait.

Most waiting requests finish long before their limit, so a heap would fill with obsolete entries. The lowest wheel has
`size` buckets of one ms and holds the tasks due soon. Each bucket of the next wheel is as long as the whole wheel below
it and holds tasks due later. A bucket that becomes due is emptied into the wheels below it.
"""

from __future__ import annotations

import heapq
from typing import Final

SIZE: Final = 64


class TimerTask:
    """A task with a time limit. It can be in one wheel, once."""

    __slots__ = ("_bucket", "due_ms")

    def __init__(self) -> None:
        self.due_ms = 0
        self._bucket: dict[TimerTask, None] | None = None

    @property
    def is_scheduled(self) -> bool:
        """True while the task is in a wheel."""
        return self._bucket is not None


class _Level:
    """One wheel: buckets by tick number, at most as many as the wheel has."""

    __slots__ = ("buckets", "tick_ms")

    def __init__(self, tick_ms: int) -> None:
        self.tick_ms = tick_ms
        self.buckets: dict[int, dict[TimerTask, None]] = {}


class TimerWheel:
    """Tasks by due time, in ms of a monotonic clock.

    It has no thread and no clock: the owner calls `advance_to` at `next_due_ms` or later. One thread at a time.
    """

    def __init__(self, now_ms: int, size: int = SIZE) -> None:
        if size < 2:
            raise ValueError(f"a wheel of {size} buckets: it needs 2 at least")
        self._size = size
        self._now_ms = now_ms
        self._levels = [_Level(1)]
        self._expirations: list[tuple[int, int, int]] = []  # (due ms, level, bucket) of each bucket that has tasks
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, task: TimerTask, due_ms: int) -> bool:
        """Add a task. Return False, without adding it, if it is due already."""
        if task.is_scheduled:
            raise ValueError("the task is in a wheel already")
        task.due_ms = due_ms
        if not self._place(task):
            return False
        self._count += 1
        return True

    def cancel(self, task: TimerTask) -> bool:
        """Remove a task. Return False if it is not in a wheel."""
        bucket, task._bucket = task._bucket, None
        if bucket is None:
            return False
        del bucket[task]
        self._count -= 1
        return True

    def next_due_ms(self) -> int | None:
        """Return the time of the next work for `advance_to`, None without tasks. It may be early, never late."""
        while self._expirations:
            when, level, index = self._expirations[0]
            if self._levels[level].buckets.get(index):
                return when
            heapq.heappop(self._expirations)
            self._levels[level].buckets.pop(index, None)
        return None

    def advance_to(self, now_ms: int) -> list[TimerTask]:
        """Remove the tasks due by `now_ms` and return them in the order of their ticks."""
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
