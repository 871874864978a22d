"""Sequence arithmetic: the worked values and the round trip."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.records.format import MAX_SEQUENCE
from tests.sequences import decrement_sequence, increment_sequence

SEQUENCES = st.integers(0, MAX_SEQUENCE)


@pytest.mark.parametrize(
    ("sequence", "by", "expected"),
    [(MAX_SEQUENCE, 1, 0), (MAX_SEQUENCE - 5, 10, 4), (0, 0, 0), (7, 3, 10)],
)
def test_increment_wraps_to_zero(sequence: int, by: int, expected: int) -> None:
    """REC-13: after 2147483647 comes 0."""
    assert increment_sequence(sequence, by) == expected


@pytest.mark.parametrize(
    ("sequence", "by", "expected"),
    [(0, 1, MAX_SEQUENCE), (5, 10, MAX_SEQUENCE - 4), (10, 3, 7)],
)
def test_decrement_wraps_to_the_largest(sequence: int, by: int, expected: int) -> None:
    """REC-13: before 0 comes 2147483647."""
    assert decrement_sequence(sequence, by) == expected


@given(SEQUENCES, SEQUENCES)
def test_one_undoes_the_other(sequence: int, by: int) -> None:
    """REC-13: going forth and back ends where it began, and stays in range on the way."""
    moved = increment_sequence(sequence, by)
    assert 0 <= moved <= MAX_SEQUENCE
    assert decrement_sequence(moved, by) == sequence
