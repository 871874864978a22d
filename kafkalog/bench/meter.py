"""Timing of operations: one clock reading each, written into a preallocated array."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from math import inf
from random import Random
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    from kafkalog._core.batch.record import Record

BLOCK_OPS: Final = 4096
"""Operations between two pauses of the clock, in which inputs are prepared and times are counted."""
SAMPLE_GAP: Final = 32
"""Of quick operations about one in this many is timed: reading the clock would be a large part of each."""
_STEPS: Final = 128
_MOST_STEP: Final = 64 * _STEPS


class Deadline:
    """Time limit of a benchmark; `pass_now` ends it in all its threads."""

    __slots__ = ("at_ns",)

    def __init__(self, seconds: float | None) -> None:
        self.at_ns: float = inf if seconds is None else perf_counter_ns() + seconds * 1e9

    def pass_now(self) -> None:
        """End the benchmark now."""
        self.at_ns = -inf


class Latencies:
    """Times in ns, counted in steps of 1/128 of a power of two: a quantile has an error below 1 %."""

    __slots__ = ("_counts", "count", "largest")

    def __init__(self) -> None:
        from kafkalog.records.arrays import numpy

        self._counts = numpy.zeros(_MOST_STEP + 1, numpy.int64)
        self.count = 0
        self.largest = 0

    def add(self, times: NDArray[numpy.int64]) -> None:
        """Count times; at least one is given."""
        from kafkalog.records.arrays import numpy

        steps = numpy.log2(numpy.maximum(times, 1).astype(numpy.float64)) * _STEPS
        self._counts += numpy.bincount(steps.astype(numpy.int64), minlength=_MOST_STEP + 1)
        self.count += len(times)
        self.largest = max(self.largest, int(times.max()))

    def merge(self, other: Latencies) -> None:
        """Add the counts of another thread."""
        self._counts += other._counts
        self.count += other.count
        self.largest = max(self.largest, other.largest)

    def quantile(self, share: float) -> float | None:
        """Return the quantile `share` in ns; None if too few were timed for a time above it."""
        from kafkalog.records.arrays import numpy

        if self.count * (1 - share) < 1 - 1e-9:
            return None
        step = int(numpy.searchsorted(numpy.cumsum(self._counts), share * self.count))
        return min(2 ** ((step + 0.5) / _STEPS), float(self.largest))


class Meter:
    """The operations of one thread: their number, bytes, records and times.

    Operations come in blocks of at most BLOCK_OPS, each an iterator whose steps are the operations; time between blocks
    does not count. Threads: one.
    """

    def __init__(self, deadline: Deadline, seed: int = 0) -> None:
        self.deadline = deadline
        self.latencies = Latencies()
        self.ops = self.records = self.bytes = 0
        self.begun_ns = self.ended_ns = self._paused_ns = 0
        self.was_cut = False  # by the deadline
        self._spent = array("q", bytes(8 * BLOCK_OPS))
        self._random = Random(seed)

    @property
    def busy_ns(self) -> int:
        """Nanoseconds spent in operations."""
        return self.ended_ns - self.begun_ns - self._paused_ns

    def each(self, steps: Iterator[object]) -> int:
        """Run and time all steps, or fewer at the deadline; return the number of operations.

        One reading of the clock ends an operation and starts the next.
        """
        spent, clock, until, count = self._spent, perf_counter_ns, self.deadline, 0
        last = self._resume()
        for _ in steps:
            now = clock()
            spent[count] = now - last
            last = now
            count += 1
            if now > until.at_ns:
                self.was_cut = True
                break
        self._pause(last, count, count)
        return count

    def some(self, steps: Iterator[object], count: int) -> int:
        """Run `count` quick operations as `each` does, timing about one in SAMPLE_GAP of them."""
        spent, clock, until, timed, left = self._spent, perf_counter_ns, self.deadline, 0, count
        last = self._resume()
        for gap in self.gaps():
            gap = min(gap, left)
            deque(islice(steps, gap), 0)
            left -= gap
            before = last = clock()
            self.was_cut = before > until.at_ns
            if not left or self.was_cut:
                break
            next(steps)
            last = clock()
            spent[timed] = last - before
            timed += 1
            left -= 1
        self._pause(last, count - left, timed)
        return count - left

    def read_through(self, records: Iterator[Record], most: int) -> int:
        """Read at most `most` records as `some` does: create key and value of each, and sum their lengths."""
        spent, clock, until, timed, count, size = self._spent, perf_counter_ns, self.deadline, 0, 0, 0
        last = self._resume()
        for gap in self.gaps():
            for record in islice(records, min(gap, most - count)):
                key, value = record.key, record.value
                size += (0 if key is None else len(key)) + (0 if value is None else len(value))
                count += 1
            before = last = clock()
            self.was_cut = count < most and before > until.at_ns
            if count >= most or self.was_cut or (one := next(records, None)) is None:
                break
            key, value = one.key, one.value
            size += (0 if key is None else len(key)) + (0 if value is None else len(value))
            count += 1
            last = clock()
            spent[timed] = last - before
            timed += 1
        self.bytes += size
        self.records += count
        self._pause(last, count, timed)
        return count

    def once(self, step: Callable[[], object]) -> None:
        """Run and time one operation."""
        self.each(step() for _ in range(1))

    def add_time(self, work: Callable[[], object]) -> None:
        """Run work that belongs to the operations but is none itself; its time counts."""
        self._resume()
        work()
        self._pause(perf_counter_ns(), 0, 0)

    def gaps(self) -> list[int]:
        """Return the numbers of untimed operations before each timed one: random, to avoid periodic effects."""
        return self._random.choices(range(SAMPLE_GAP // 2, SAMPLE_GAP * 3 // 2), k=BLOCK_OPS)

    def _resume(self) -> int:
        now = perf_counter_ns()
        if self.ended_ns:
            self._paused_ns += now - self.ended_ns
        else:
            self.begun_ns = now
        return now

    def _pause(self, ended_ns: int, ops: int, timed: int) -> None:
        from kafkalog.records.arrays import numpy

        self.ended_ns = ended_ns
        self.ops += ops
        if timed:
            self.latencies.add(numpy.frombuffer(self._spent, numpy.int64, timed))
