"""Batches of a segment outside the chain of the others."""

import pytest

from kafkalog.tools.verify.chain import Placed, outside_chain

LONGEST = 2**31 - 1


def positions_outside(lowest: int, *offsets: tuple[int, int]) -> set[int]:
    """The numbers of the batches, given as (base, last), that are outside."""
    batches = [Placed(number, 1, base, last) for number, (base, last) in enumerate(offsets)]
    return outside_chain(batches, lowest, None)


@pytest.mark.parametrize(
    ("offsets", "left_out"),
    [([(0, 4), (5, 9), (10, 14)], set()), ([(0, 4), (5, 9), (7, 9), (10, 14)], {2}),
     ([(0, 4), (7, 9), (5, 9), (10, 14)], {1}), ([(0, 4), (9, 9), (5, 8), (10, 14)], {1})],
)  # fmt: skip
def test_of_two_batches_the_one_that_jumps_is_outside(offsets: list[tuple[int, int]], left_out: set[int]) -> None:
    assert positions_outside(0, *offsets) == left_out


@pytest.mark.parametrize(
    ("base", "last", "is_outside"),
    [(7, LONGEST + 7, False), (7, LONGEST + 8, True), (6, 9, True), (9, 8, True)],
)
def test_a_batch_beyond_what_its_segment_can_hold_is_outside(base: int, last: int, is_outside: bool) -> None:
    assert positions_outside(7, (base, last)) == ({0} if is_outside else set())
