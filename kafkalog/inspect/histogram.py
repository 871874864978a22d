"""Distribution of numbers: counts in steps of an eighth of a power of two, for any range."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

_STEPS: Final = 8
"""Steps from one power of two to the next: a quantile is off by at most a twelfth of it."""
_MOST: Final = 64 * _STEPS


class Step(NamedTuple):
    """The numbers in [low, high): their count and sum."""

    low: int
    high: int
    number: int
    total: int


class Histogram:
    """Counts of numbers from 0 up, added array by array.

    One thread adds; then any thread may call `quantile` and `octaves`.
    """

    __slots__ = ("_counts", "_totals", "count", "largest", "smallest", "total")

    def __init__(self) -> None:
        from kafkalog.records.arrays import numpy

        self._counts = numpy.zeros(_MOST + 1, numpy.float64)
        self._totals = numpy.zeros(_MOST + 1, numpy.float64)
        self.count = 0
        self.total = 0
        self.largest = 0
        self.smallest = 0

    def add(self, numbers: NDArray[numpy.int64]) -> None:
        """Add numbers; those below 0 are ignored."""
        from kafkalog.records.arrays import numpy

        numbers = numbers[numbers >= 0]
        if not len(numbers):
            return
        self.smallest = int(numbers.min()) if not self.count else min(self.smallest, int(numbers.min()))
        steps = numpy.floor(numpy.log2(numpy.maximum(numbers, 1)) * _STEPS).astype(numpy.int64) + 1
        steps = numpy.minimum(numpy.where(numbers > 0, steps, 0), _MOST)
        self._counts += numpy.bincount(steps, minlength=_MOST + 1)
        self._totals += numpy.bincount(steps, weights=numbers, minlength=_MOST + 1)
        self.count += len(numbers)
        self.total += int(numbers.sum())
        self.largest = max(self.largest, int(numbers.max()))

    @property
    def mean(self) -> float | None:
        """The mean; None without numbers."""
        return self.total / self.count if self.count else None

    @classmethod
    def merged(cls, several: Iterable[Histogram]) -> Histogram:
        """Return a histogram with the numbers of several."""
        result = cls()
        for one in several:
            if one.count:
                result.smallest = min(result.smallest, one.smallest) if result.count else one.smallest
                result.largest = max(result.largest, one.largest)
                result.count += one.count
                result.total += one.total
                result._counts += one._counts
                result._totals += one._totals
        return result

    def quantile(self, share: float) -> float | None:
        """Return roughly the number that a `share` of all numbers does not exceed; None without numbers."""
        if not self.count:
            return None
        if share >= 1:
            return float(self.largest)
        below, wanted = 0.0, share * self.count
        for step, count in enumerate(self._counts.tolist()):
            if count and below + count >= wanted:
                if not step:
                    return 0.0
                low, high = 2 ** ((step - 1) / _STEPS), 2 ** (step / _STEPS)
                found = low + (high - low) * max(wanted - below, 0.0) / count
                return min(max(found, float(self.smallest)), float(self.largest))
            below += count
        return float(self.largest)

    def octaves(self) -> list[Step]:
        """Return the counts by powers of two, from the first non-empty one to the last; 0 has its own step."""
        from kafkalog.records.arrays import numpy

        if not self.count:
            return []
        steps = []
        if self._counts[0]:
            steps.append(Step(0, 1, int(self._counts[0]), 0))
        used = numpy.flatnonzero(self._counts[1:])
        if len(used):
            for octave in range(int(used[0]) // _STEPS, int(used[-1]) // _STEPS + 1):
                part = slice(1 + octave * _STEPS, 1 + (octave + 1) * _STEPS)
                count, total = int(self._counts[part].sum()), int(self._totals[part].sum())
                steps.append(Step(2**octave, 2 ** (octave + 1), count, total))
        return steps

    def as_dict(self) -> dict[str, object]:
        """Return count, mean, quantiles and largest, for JSON."""
        names = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
        found = {name: self.quantile(share) for name, share in names.items()}
        rounded = {name: None if value is None else round(value) for name, value in found.items()}
        return {"count": self.count, "mean": self.mean, **rounded, "largest": self.largest if self.count else None}
