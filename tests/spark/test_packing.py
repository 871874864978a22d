"""Pieces of work in tasks: nothing lost, nothing twice, even loads."""

from hypothesis import given
from hypothesis import strategies as st

from kafkalog.spark.packing import MIN_TASK_BYTES, TASKS_A_CORE, packed


def size(piece: tuple[int, int]) -> int:
    return piece[1]


@given(st.lists(st.integers(0, 4 * MIN_TASK_BYTES), max_size=60), st.integers(1, 9))
def test_every_piece_is_in_one_list_and_the_largest_goes_first(sizes: list[int], cores: int) -> None:
    pieces = list(enumerate(sizes))
    lists = packed(pieces, size, cores)
    assert sorted(piece for some in lists for piece in some) == pieces
    assert all(lists) and len(lists) <= max(cores * TASKS_A_CORE, cores)
    assert len(lists) >= min(cores, len(pieces))
    loads = [sum(map(size, some)) for some in lists]
    assert loads == sorted(loads, reverse=True)
    if lists:  # greedy: no list is heavier than the mean and one piece
        assert loads[0] <= sum(sizes) / len(lists) + max(sizes)


def test_small_pieces_make_no_more_tasks_than_cores() -> None:
    assert [len(some) for some in packed(list(enumerate([10] * 100)), size, 2)] == [50, 50]


def test_large_ones_make_several_a_core() -> None:
    assert len(packed(list(enumerate([MIN_TASK_BYTES] * 100)), size, 2)) == 2 * TASKS_A_CORE
