"""Preparation of numbers for charts: rates in equal time steps, and axes with round ends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kafkalog.inspect.tally import Span

STEPS: Final = 96
_OUTLIER_SHARE: Final = 0.001
"""Share of the records left out of the time axis if they would stretch it more than tenfold."""


class Series(NamedTuple):
    """Records and bytes a second in steps of `step_ms` from `start_ms` on; `outside` is the share before and after."""

    start_ms: int
    step_ms: float
    records: tuple[float, ...]
    bytes: tuple[float, ...]
    outside: float

    @property
    def end_ms(self) -> int:
        """End of the last step (ms)."""
        return round(self.start_ms + self.step_ms * len(self.records))


def rates(spans: Iterable[Span], steps: int = STEPS) -> Series | None:
    """Return the rates over these spans, each spread evenly over its time; None without records and bytes.

    A few records with outlying times do not stretch the axis: they are left out, and `outside` is their share.
    """
    from kafkalog.records.arrays import numpy

    used_spans = sorted(span for span in spans if span.records > 0 or span.bytes > 0)
    if not used_spans:
        return None
    table = numpy.array(used_spans, dtype=numpy.float64)
    first, last = table[:, 0], numpy.maximum(table[:, 1], table[:, 0] + 1)
    weights = table[:, 2] if table[:, 2].sum() else table[:, 3]
    low, high = _range(first, last, weights)
    edges = numpy.linspace(low, high, steps + 1)
    sums = []
    for column in (table[:, 2], table[:, 3]):
        density = column / (last - first)
        cumulative = [float((density * numpy.clip(edge - first, 0, last - first)).sum()) for edge in edges]
        sums.append(numpy.diff(cumulative) / ((high - low) / steps / 1000))
    inside = float(sums[0].sum() * (high - low) / steps / 1000)
    total = float(table[:, 2].sum())
    outside = max(0.0, 1 - inside / total) if total else 0.0
    records, sizes = (tuple(map(float, one)) for one in sums)
    return Series(int(low), (high - low) / steps, records, sizes, outside if outside > 1e-6 else 0.0)


def _range(first: object, last: object, weights: object) -> tuple[float, float]:
    """Return the first and last time, without a small share of the records if those lie far away."""
    from kafkalog.records.arrays import numpy

    starts, ends, counts = numpy.asarray(first), numpy.asarray(last), numpy.asarray(weights)
    low, high = float(starts.min()), float(ends.max())
    order = numpy.argsort(starts)
    share = numpy.cumsum(counts[order]) / max(float(counts.sum()), 1.0)
    inner_low = float(starts[order][int(numpy.searchsorted(share, _OUTLIER_SHARE / 2))])
    at = min(int(numpy.searchsorted(share, 1 - _OUTLIER_SHARE / 2)), len(order) - 1)
    inner_high = max(float(ends[order][: at + 1].max()), inner_low + 1)
    return (inner_low, inner_high) if high - low > 10 * (inner_high - inner_low) else (low, high)


def axis_end(value: float, *, binary: bool = False) -> float:
    """Return the end of an axis that reaches `value`: 1, 2, 4 or 5 times a power of ten, or a power of two for bytes.

    >>> axis_end(37), axis_end(0.12), axis_end(0), axis_end(3000, binary=True)
    (40.0, 0.2, 1.0, 4096.0)
    """
    if value <= 0:
        return 1.0
    if binary:
        return float(2 ** math.ceil(math.log2(max(value, 1.0))))
    unit = 10.0 ** math.floor(math.log10(value))
    for step in (1, 2, 4, 5, 10):
        if value <= step * unit * (1 + 1e-9):
            return float(f"{step * unit:.12g}")
    return 10 * unit


def average_runs(values: Sequence[float], most: int) -> list[tuple[int, int, float]]:
    """Split `values` into at most `most` runs of about equal length and return (first, last, mean) of each.

    >>> average_runs([1, 3, 5, 7], 2), average_runs([1, 2], 9)
    ([(0, 1, 2.0), (2, 3, 6.0)], [(0, 0, 1.0), (1, 1, 2.0)])
    """
    count = min(most, len(values))
    found = []
    for at in range(count):
        first, end = at * len(values) // count, (at + 1) * len(values) // count
        found.append((first, end - 1, sum(values[first:end]) / (end - first)))
    return found
