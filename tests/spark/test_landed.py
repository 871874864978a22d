"""The log alone shows how much landed, whatever happened to it since: against a model that knows."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import IllegalState
from kafkalog.landing.landed import SEQUENCES, Found, LogBounds, landed_records
from kafkalog.landing.ledger import Producer, Target
from tests.spark.sink_cases import key

OURS = Producer(2**62 + 5, 7)
NOBODY = Producer(-1, -1)


class History(NamedTuple):
    """A log: what landed before the crash, what others wrote behind it, and what was deleted or compacted away."""

    landed: int
    batches: list[Found]
    log_start: int
    end: int


@st.composite
def histories(draw: st.DrawFn, *, start: int, sizes: Sequence[int]) -> History:
    whole = draw(st.integers(0, len(sizes)))
    batches, at = [], start
    for size in sizes[:whole]:
        batches.append(Found(at, at + size, *OURS))
        at += size
    for size in draw(st.lists(st.integers(1, 9), max_size=3)):
        batches.append(Found(at, at + size, *draw(st.sampled_from([NOBODY, Producer(OURS.id, 6), Producer(9, 7)]))))
        at += size
    log_start = draw(st.sampled_from([0, start, *(one.base_offset for one in batches), at]))
    left = [one for one in batches if one.next_offset > log_start and draw(st.integers(0, 3))]
    return History(sum(sizes[:whole]), left, log_start, at)


@given(data=st.data(), start=st.integers(0, 50), before=st.integers(0, 9))
def test_what_is_left_of_a_log_never_tells_a_wrong_number(data: st.DataObject, start: int, before: int) -> None:
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    history = data.draw(histories(start=start, sizes=sizes))
    target = Target(key("t"), start, before, before + sum(sizes))
    batches = [one for one in history.batches if one.next_offset > start]
    remembers = data.draw(st.booleans())
    known = (7, (before + history.landed - 1) % SEQUENCES) if before + history.landed else (6, 40)
    log = LogBounds(history.log_start, history.end, known if remembers else None)
    try:
        assert landed_records(target, OURS, log, batches) == before + history.landed
    except IllegalState as error:
        assert not remembers
        assert "the batches there were deleted" in str(error)
        assert "give_up" in str(error)


@given(data=st.data(), start=st.integers(0, 50))
def test_a_log_that_lost_nothing_tells_it_without_remembering_producers(data: st.DataObject, start: int) -> None:
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    whole = data.draw(st.integers(0, len(sizes)))
    batches, at = [], start
    for size in sizes[:whole]:
        batches.append(Found(at, at + size, *OURS))
        at += size
    if data.draw(st.booleans()):
        batches.append(Found(at, at + 3, *NOBODY))
    log = LogBounds(0, batches[-1].next_offset if batches else start, None)
    assert landed_records(Target(key("t"), start, 0, sum(sizes)), OURS, log, batches) == sum(sizes[:whole])


def test_a_log_that_was_cut_below_the_start_has_nothing_of_it() -> None:
    assert landed_records(Target(key("t"), 10, 0, 9), OURS, LogBounds(0, 7, None), []) == 0


def test_a_log_that_was_cut_below_what_was_counted_is_an_error() -> None:
    with pytest.raises(IllegalState, match=r"ends at 7, but 4 records had landed below 10.*give_up"):
        landed_records(Target(key("t"), 10, 4, 9), OURS, LogBounds(0, 7, (7, 3)), [])


def test_sequences_that_went_round_are_counted_on() -> None:
    target = Target(key("t"), 100, SEQUENCES - 2, SEQUENCES + 8)
    assert landed_records(target, OURS, LogBounds(104, 110, (7, 1)), []) == SEQUENCES + 2


@pytest.mark.parametrize("known", [None, (7, 40), (6, 3)])
def test_a_memory_that_does_not_fit_is_not_believed(known: tuple[int, int] | None) -> None:
    batches = [Found(102, 104, *OURS)]  # compaction took what came before, and perhaps what came behind
    with pytest.raises(IllegalState, match="between 4 and 8 of 20"):
        landed_records(Target(key("t"), 100, 0, 20), OURS, LogBounds(0, 108, known), batches)
