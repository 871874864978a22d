"""Operations are counted and timed one by one; quantiles are those of the times."""

from itertools import count
from math import inf

import numpy
import pytest

from kafkalog.bench.meter import BLOCK_OPS, SAMPLE_GAP, Deadline, Latencies, Meter


def latencies(*times: int) -> Latencies:
    found = Latencies()
    found.add(numpy.array(times, numpy.int64))
    return found


def test_quantiles_are_off_by_less_than_a_hundredth() -> None:
    found = latencies(*range(1, 100_001))
    for share in (0.5, 0.95, 0.99, 0.999):
        assert found.quantile(share) == pytest.approx(share * 100_000, rel=0.01)
    assert (found.count, found.largest) == (100_000, 100_000)


def test_a_quantile_of_too_few_is_not_known() -> None:
    """One that lies beyond it there must be: p99.9 of a hundred times would be the longest, by another name."""
    found = latencies(*range(1, 101))
    assert found.quantile(0.999) is None and found.quantile(0.99) is not None
    assert latencies(5).quantile(0.5) is None and Latencies().quantile(0.5) is None


def test_a_quantile_is_never_above_the_longest() -> None:
    assert latencies(*[1000] * 10_000).quantile(0.999) <= 1000  # type: ignore[operator]


def test_those_of_two_threads_together() -> None:
    one = latencies(10, 20)
    one.merge(latencies(1_000_000))
    assert (one.count, one.largest) == (3, 1_000_000)


def test_times_of_any_length_are_counted() -> None:
    assert latencies(0, 1, 2**62).count == 3


def test_every_operation_of_a_block_is_counted_and_timed() -> None:
    meter, done = Meter(Deadline(None)), []
    assert meter.each(map(done.append, range(BLOCK_OPS))) == BLOCK_OPS
    assert meter.each(map(done.append, range(7))) == 7
    assert done == [*range(BLOCK_OPS), *range(7)]
    assert meter.ops == meter.latencies.count == BLOCK_OPS + 7 and not meter.was_cut
    assert 0 < meter.busy_ns <= meter.ended_ns - meter.begun_ns


def test_quick_operations_are_timed_now_and_then() -> None:
    meter, done = Meter(Deadline(None)), []
    assert meter.some(map(done.append, range(BLOCK_OPS)), BLOCK_OPS) == BLOCK_OPS
    assert done == list(range(BLOCK_OPS)) and meter.ops == BLOCK_OPS
    assert BLOCK_OPS // (2 * SAMPLE_GAP) <= meter.latencies.count <= 2 * BLOCK_OPS // SAMPLE_GAP
    assert len(set(meter.gaps())) > 10  # uneven


def test_a_deadline_ends_a_block_after_the_operation_that_passes_it() -> None:
    meter = Meter(Deadline(None))
    assert meter.deadline.at_ns == inf

    def step(number: int) -> None:
        if number == 4:
            meter.deadline.pass_now()

    assert meter.each(map(step, count())) == 5
    assert meter.was_cut and meter.ops == 5
