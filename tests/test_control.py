"""kafkalog.control: its face."""

import doctest

import kafkalog
from kafkalog import control


def test_the_examples() -> None:
    assert doctest.testmod(control) == doctest.TestResults(0, 3)


def test_it_is_reached_from_the_package() -> None:
    assert kafkalog.control is control
    assert sorted(control.__all__) == control.__all__
