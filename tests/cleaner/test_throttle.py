"""The rate at which the cleaner reads and writes, over a clock that a test moves."""

from __future__ import annotations

import pytest

from kafkalog.cleaner.throttle import Throttle
from kafkalog.errors import CleaningAborted
from tests.mock_time import MockClock


def measure_sleep(throttle: Throttle, clock: MockClock, count: int) -> int:
    before = clock.monotonic_ms()
    throttle.throttle(count)
    return clock.monotonic_ms() - before


def test_it_sleeps_what_is_too_much() -> None:
    """CLN-42: 600 kB in 300 ms at 1 MB/s make 300 ms of sleep; then the count restarts."""
    clock = MockClock()
    throttle = Throttle(1_000_000.0, clock)
    assert measure_sleep(throttle, clock, 600_000) == 0  # the rate is looked at after 300 ms only
    clock.advance(299)
    assert measure_sleep(throttle, clock, 0) == 0
    clock.advance(1)
    assert measure_sleep(throttle, clock, 0) == 300
    assert (throttle.slept_ms, throttle.total_bytes) == (300, 600_000)
    clock.advance(300)
    assert measure_sleep(throttle, clock, 150_000) == 0
    clock.advance(300)
    assert measure_sleep(throttle, clock, 450_000) == 150


def test_it_lets_through_what_the_rate_allows() -> None:
    """CLN-42: and a period in which nothing came does not count for the next one."""
    clock = MockClock()
    throttle = Throttle(1000.0, clock)
    clock.advance(10_000)
    assert measure_sleep(throttle, clock, 9_999) == 0
    clock.advance(300)
    assert measure_sleep(throttle, clock, 300) == 0
    clock.advance(300)
    assert measure_sleep(throttle, clock, 301) == 1


def test_over_a_long_time_the_rate_is_kept() -> None:
    """CLN-42: whatever the sizes."""
    clock = MockClock()
    throttle = Throttle(123_456.0, clock)
    for at in range(2000):
        clock.advance(at % 7)
        throttle.throttle(at * 37 % 5000)
    rate = throttle.total_bytes / clock.monotonic_ms() * 1000
    assert rate == pytest.approx(123_456, rel=0.05)


@pytest.mark.parametrize("rate", [-1.0, 1.7976931348623157e308, float("inf")])
def test_no_limit(rate: float) -> None:
    clock = MockClock()
    throttle = Throttle(rate, clock)
    clock.advance(1000)
    assert measure_sleep(throttle, clock, 1 << 40) == 0


def test_a_new_rate_counts_at_once_also_for_who_is_asleep() -> None:
    """CLN-42: changeable at run time."""
    clock = MockClock()
    throttle = Throttle(1.0, clock)
    clock.advance(300)
    seen: list[int] = []

    def look() -> None:
        seen.append(clock.monotonic_ms())
        if len(seen) == 3:
            throttle.bytes_per_s = 1e9

    throttle.throttle(1_000_000, look)
    assert len(seen) == 3
    assert throttle.bytes_per_s == 1e9


def test_who_is_asleep_can_be_called_off() -> None:
    """An abort does not wait for the end of a long sleep."""
    clock = MockClock()
    throttle = Throttle(1.0, clock)
    clock.advance(300)

    def give_up() -> None:
        raise CleaningAborted("the log is deleted")

    with pytest.raises(CleaningAborted):
        throttle.throttle(1 << 30, give_up)
    assert clock.monotonic_ms() == 300


def test_all_threads_share_it() -> None:
    """CLN-42: while one has to sleep, another that comes sleeps as well."""
    clock = MockClock()
    throttle = Throttle(1000.0, clock)
    clock.advance(300)
    order: list[int] = []

    def another() -> None:
        if not order:
            order.append(clock.monotonic_ms())
            throttle.throttle(1)
            order.append(clock.monotonic_ms())

    throttle.throttle(1300, another)
    assert order == [300, 1300]


def test_a_rate_of_next_to_nothing() -> None:
    """CLN-42: the sleep is for ever, and no error; the cleaner is asked to stop during it."""
    clock = MockClock()
    throttle = Throttle(5e-324, clock)
    clock.advance(300)

    def give_up() -> None:
        raise CleaningAborted("enough")

    with pytest.raises(CleaningAborted):
        throttle.throttle(1, give_up)
    assert throttle.slept_ms > 10**15
