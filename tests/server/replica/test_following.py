"""A follower's decisions: tables, and logs that diverge in every way."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.following import (
    AppendRecords,
    FetchLimits,
    Following,
    PartitionAnswer,
    Plan,
    Position,
    RequestBounds,
    RestartAt,
    RetryLater,
    Suspend,
    TruncateTo,
    TruncateToEpoch,
    first_plan,
    has_unused_epoch,
    last_epoch_for,
    next_due_ms,
    pause_ms,
    plan_of,
    plan_of_bounds,
    row_of,
    truncation_offset,
)

RECORDS = memoryview(b"records")
LIMITS = FetchLimits()


@pytest.mark.parametrize(("answer", "plan"), [
    (PartitionAnswer(0, 7, 2, RECORDS), AppendRecords(RECORDS, 7, 2)),
    (PartitionAnswer(0, 7, 2), AppendRecords(None, 7, 2)),
    (PartitionAnswer(0, 7, 2, RECORDS, (3, 5)), TruncateToEpoch(3, 5)),
    (PartitionAnswer(ErrorCode.OFFSET_OUT_OF_RANGE), RequestBounds()),
    (PartitionAnswer(ErrorCode.FENCED_LEADER_EPOCH), Suspend(74)),
    (PartitionAnswer(ErrorCode.UNKNOWN_LEADER_EPOCH), RetryLater(75)),
    (PartitionAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER), RetryLater(6)),
    (PartitionAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), RetryLater(3)),
    (PartitionAnswer(ErrorCode.UNKNOWN_TOPIC_ID), RetryLater(100)),
    (PartitionAnswer(ErrorCode.INCONSISTENT_TOPIC_ID), RetryLater(103)),
    (PartitionAnswer(ErrorCode.KAFKA_STORAGE_ERROR), RetryLater(56)),
    (PartitionAnswer(ErrorCode.TOPIC_AUTHORIZATION_FAILED, 7, 2, RECORDS, (3, 5)), RetryLater(29)),
    (PartitionAnswer(-1), RetryLater(-1)),
    (PartitionAnswer(999), RetryLater(999)),
])  # fmt: skip
def test_what_is_done_with_an_answer(answer: PartitionAnswer, plan: Plan) -> None:
    assert plan_of(answer) == plan


@pytest.mark.parametrize(("own_end", "start", "end", "plan"), [
    (0, 1000, 2000, RestartAt(1000)),  # an empty follower of a leader that has deleted the beginning
    (10, 11, 11, RestartAt(11)),  # nothing is left there
    (10, 0, 9, TruncateTo(9)),
    (10, 0, 0, TruncateTo(0)),
    (10, 5, 9, TruncateTo(9)),
    (10, 0, 10, RetryLater(1)),  # it lies inside by now
    (10, 10, 20, RetryLater(1)),
    (10, 20, 5, RetryLater(-1)),  # lies
    (10, -1, 5, RetryLater(-1)),
    (10, -1, -1, RetryLater(-1)),
])  # fmt: skip
def test_a_log_that_ends_outside_of_the_leaders(own_end: int, start: int, end: int, plan: Plan) -> None:
    assert plan_of_bounds(own_end, start, end) == plan


@pytest.mark.parametrize(("position", "mark", "plan"), [
    (Position(0, -1, 0), 0, None),
    (Position(10, 3, 0), 5, None),  # the epochs show where it differs
    (Position(10, -1, 0), 5, TruncateTo(5)),
    (Position(10, -1, 0), 10, None),
    (Position(10, -1, 10), 10, None),
])  # fmt: skip
def test_records_without_epochs_go_above_the_high_watermark(position: Position, mark: int, plan: Plan | None) -> None:
    assert first_plan(position, mark) == plan


def test_pauses_grow_up_to_the_setting() -> None:
    assert [pause_ms(failures, LIMITS) for failures in range(7)] == [50, 100, 200, 400, 800, 1000, 1000]
    assert pause_ms(10**6, LIMITS) == 1000


def test_a_failure_pauses_one_partition_and_a_success_ends_it() -> None:
    state = Following(Position(5, 1, 0), 2, is_in_sync=True)
    assert state.is_due(0) and row_of(state, LIMITS) == (5, 1, 0, 2, 1 << 20)
    failed = state.failed(100, LIMITS)
    assert not failed.is_due(149) and failed.is_due(150) and not failed.is_in_sync
    again = failed.failed(150, LIMITS, Position(4, 1, 0))
    assert (again.not_before_ms, again.position.end_offset) == (250, 4)
    assert next_due_ms([failed, again]) == 150
    moved = again.moved(Position(6, 1, 0), is_in_sync=True)
    assert moved == state._replace(position=Position(6, 1, 0))
    standing = state._replace(is_suspended=True)
    assert not standing.is_due(10**9) and next_due_ms([standing]) is None


# Logs that part: each is the list of its records' epochs


def end_of_epoch(log: list[int], epoch: int) -> tuple[int, int] | None:
    """Return the answer of `LeaderEpochCache.end_offset_for` (EPOCH-3)."""
    if not log or epoch > log[-1]:
        return None
    if epoch == log[-1]:
        return epoch, len(log)
    end = next(offset for offset, one in enumerate(log) if one > epoch)
    return (log[end - 1] if end else epoch), end


@st.composite
def diverging_logs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """A leader and a follower: the same up to a place, and then no epoch in both, as each has one leader."""
    common = sorted(draw(st.lists(st.integers(0, 4), max_size=8)))
    last = common[-1] if common else 0
    owner = draw(st.lists(st.booleans(), min_size=12, max_size=12))
    more = sorted(draw(st.lists(st.integers(last, last + 11), max_size=16)))
    tails: tuple[list[int], list[int]] = ([], [])
    for epoch in more:
        tails[owner[epoch - last]].append(epoch)
    leader = common + tails[0]
    return [*leader, max([*leader, *tails[1], 0]) + 1], common + tails[1]  # the leader has begun an epoch of its own


@settings(deadline=None, max_examples=1000)
@given(diverging_logs())
def test_a_follower_is_cut_to_a_part_of_its_leader(logs: tuple[list[int], list[int]]) -> None:
    """It takes as many steps as there are epochs at the most, and nothing that both have is cut."""
    leader, own = logs
    same = next((at for at, (one, other) in enumerate(zip(leader, own, strict=False)) if one != other), len(own))
    same = min(same, len(leader))
    assert all(one <= other for one, other in pairwise(leader))
    for _ in range(len(set(own)) + len(set(leader)) + 1):
        if not own:
            break
        found = end_of_epoch(leader, own[-1])
        assert found is not None
        epoch, end = found
        if epoch >= own[-1] and end >= len(own):
            break
        at = truncation_offset(end, len(own), end_of_epoch(own, epoch))
        assert at < len(own)
        own = own[:at]
    else:
        raise AssertionError("it does not end")
    assert own == leader[: len(own)] and len(own) == same


@given(st.integers(-5, 20), st.integers(0, 20), st.none() | st.tuples(st.integers(-1, 9), st.integers(0, 20)))
def test_a_cut_never_makes_a_log_longer(leader_end: int, own_end: int, own: tuple[int, int] | None) -> None:
    assert 0 <= truncation_offset(leader_end, own_end, own) <= own_end


@pytest.mark.parametrize(
    ("epochs", "next_epoch", "expected"),
    [
        ([], 0, False),
        ([(0, 0), (5, 9)], 4, True),
        ([(0, 0), (5, 9)], 5, False),  # its first record comes
        ([(0, 0), (5, 9)], 6, False),  # a later epoch
        ([(0, 0), (5, 10)], 4, True),
        ([(0, 0), (5, 8)], 4, False),  # it has a record
        ([(5, 90)], 30, False),
        ([(5, 9), (60, 9)], 30, True),
    ],
)
def test_an_epoch_without_a_record_was_begun_for_nothing_where_an_earlier_one_goes_on(
    epochs: list[tuple[int, int]], next_epoch: int, expected: bool
) -> None:
    assert has_unused_epoch(epochs, 9, next_epoch) is expected


@pytest.mark.parametrize(
    ("leader_epoch", "expected"), [(7, 7), (6, 3), (8, 3)], ids=["begun", "of another leader", "not begun"]
)
def test_the_last_epoch_is_that_of_the_last_record_unless_the_leaders_was_begun(
    leader_epoch: int, expected: int
) -> None:
    assert last_epoch_for(leader_epoch, [(0, 0), (3, 5), (7, 9)], 9) == expected
    assert last_epoch_for(leader_epoch, [(0, 0), (3, 5), (7, 8)], 9) == 7, "it has a record"
    assert last_epoch_for(leader_epoch, [], 9) == -1
