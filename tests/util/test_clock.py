"""Clocks: the system's, and the tests' own."""

import time

import pytest

from kafkalog.util.clock import SYSTEM_CLOCK
from tests.mock_time import MockClock


def test_system_clock_is_the_system_s() -> None:
    before = time.time_ns() // 1_000_000
    now = SYSTEM_CLOCK.milliseconds()
    assert before <= now <= time.time_ns() // 1_000_000
    start = SYSTEM_CLOCK.monotonic_ms()
    SYSTEM_CLOCK.sleep(2)
    assert SYSTEM_CLOCK.monotonic_ms() >= start + 1


def test_mock_clock_stands_until_it_is_moved() -> None:
    clock = MockClock(5000)
    assert clock.milliseconds() == clock.milliseconds() == 5000
    assert clock.advance(10) == 5010
    clock.sleep(5)
    assert (clock.milliseconds(), clock.monotonic_ms()) == (5015, 15)
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)


def test_the_wall_clock_may_be_set_back_and_monotonic_time_does_not_notice() -> None:
    clock = MockClock(5000)
    clock.advance(3)
    clock.set_wall_ms(100)
    assert (clock.milliseconds(), clock.monotonic_ms()) == (100, 3)
