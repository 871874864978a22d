"""The states of a transaction, step by step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import IllegalState
from kafkalog.server.txns.states import CLASSIC, EPOCH_BUMPS, IDLE, PREVIOUS, TransactionState
from kafkalog.server.txns.transaction import (
    LAST_EPOCH,
    NO_TIMEOUT_MS,
    Transaction,
    completed,
    fenced,
    prepared,
    with_new_producer,
    with_next_epoch,
    with_partitions,
)
from kafkalog.types import TopicPartition

S = TransactionState
A, B = TopicPartition("a", 0), TopicPartition("b", 3)


def make_ongoing(epoch: int = 4, version: int = CLASSIC) -> Transaction:
    idle = Transaction("x", 7, epoch, 1000)
    return with_partitions(idle, frozenset([A]), version, 50)


def test_a_transaction_from_its_first_partition_to_its_end() -> None:
    transaction = with_partitions(make_ongoing(), frozenset([B]), CLASSIC, 60)
    assert (transaction.state, transaction.partitions, transaction.start_ms) == (S.ONGOING, {A, B}, 50)
    ending = prepared(transaction, True, CLASSIC, 70)
    assert (ending.state, ending.producer_epoch, ending.start_ms) == (S.PREPARE_COMMIT, 4, 50)
    assert ending.partitions == {A, B}
    ended = completed(ending, 80)
    assert (ended.state, ended.partitions, ended.start_ms, ended.update_ms) == (S.COMPLETE_COMMIT, frozenset(), 50, 80)
    assert with_partitions(ended, frozenset([B]), CLASSIC, 90).start_ms == 90


def test_by_version_2_an_end_bumps_the_epoch_and_changes_the_producer_where_epochs_are_used_up() -> None:
    ending = prepared(make_ongoing(version=EPOCH_BUMPS), False, EPOCH_BUMPS, 70)
    assert (ending.state, ending.producer_epoch, ending.last_producer_epoch) == (S.PREPARE_ABORT, 5, 4)
    last = prepared(make_ongoing(LAST_EPOCH, EPOCH_BUMPS), True, EPOCH_BUMPS, 70, 99)
    assert (last.producer_id, last.producer_epoch, last.next_producer_id) == (7, LAST_EPOCH + 1, 99)
    ended = completed(last, 80)
    assert (ended.producer_id, ended.producer_epoch, ended.next_producer_id) == (99, 0, -1)
    assert (ended.previous_producer_id, ended.last_producer_epoch) == (7, LAST_EPOCH)


def test_a_producer_may_abort_by_version_2_what_it_never_began() -> None:
    ending = prepared(Transaction("x", 7, 4, 1000), False, EPOCH_BUMPS, 70)
    assert (ending.state, ending.start_ms) == (S.PREPARE_ABORT, 70)


def test_fencing_takes_the_epoch_that_no_client_gets() -> None:
    ending = prepared(fenced(make_ongoing(LAST_EPOCH)), False, CLASSIC, 70)
    assert (ending.state, ending.producer_epoch) == (S.PREPARE_ABORT, LAST_EPOCH + 1)
    with pytest.raises(IllegalState, match="no epoch left"):
        fenced(make_ongoing(LAST_EPOCH + 1))


@pytest.mark.parametrize(
    ("expected", "epochs"),
    [(None, (5, -1)), (4, (5, 4)), (3, (4, 3)), (2, None), (5, None)],
    ids=["unknown", "current", "asked again", "fenced", "from the future"],
)
def test_epochs_of_a_producer_that_asks_again(expected: int | None, epochs: tuple[int, int] | None) -> None:
    idle = Transaction("x", 7, 4, 1000, last_producer_epoch=3)
    after = with_next_epoch(idle, 2000, expected, 90)
    assert (None if after is None else (after.producer_epoch, after.last_producer_epoch)) == epochs
    if after is not None:
        assert (after.state, after.timeout_ms, after.update_ms, after.start_ms) == (S.EMPTY, 2000, 90, -1)


def test_a_new_producer_begins_at_epoch_0_and_remembers_the_one_before() -> None:
    after = with_new_producer(Transaction("x", 7, LAST_EPOCH, 1000), 8, 1000, 90, True)
    assert (after.producer_id, after.producer_epoch) == (8, 0)
    assert (after.previous_producer_id, after.last_producer_epoch) == (7, LAST_EPOCH)
    assert with_new_producer(Transaction("x", 7, LAST_EPOCH, 1000), 8, 1000, 90, False).last_producer_epoch == -1


@given(state=st.sampled_from(S), step=st.sampled_from(["init", "add", "commit", "abort", "fence", "complete"]))
def test_no_step_leads_where_it_must_not(state: TransactionState, step: str) -> None:
    transaction = Transaction("x", 7, 4, 1000, state, frozenset([A]), 10, 20)
    steps = {
        "init": (S.EMPTY, lambda: with_next_epoch(transaction, 1, None, 30)),
        "add": (S.ONGOING, lambda: with_partitions(transaction, frozenset([B]), CLASSIC, 30)),
        "commit": (S.PREPARE_COMMIT, lambda: prepared(transaction, True, CLASSIC, 30)),
        "abort": (S.PREPARE_ABORT, lambda: prepared(transaction, False, CLASSIC, 30)),
        "fence": (S.PREPARE_EPOCH_FENCE, lambda: fenced(transaction)),
        "complete": (S.COMPLETE_COMMIT if state == S.PREPARE_COMMIT else S.COMPLETE_ABORT, None),
    }
    target, take = steps[step]
    take = take or (lambda: completed(transaction, 30))
    if state in PREVIOUS[target]:
        assert take().state == target
    else:
        with pytest.raises(IllegalState, match=f"cannot go from {state.title} to {target.title}"):
            take()


def test_which_transactions_are_late_and_which_ids_are_forgotten() -> None:
    transaction = make_ongoing()
    assert (transaction.is_late(1050), transaction.is_late(1051)) == (False, True)
    assert not transaction._replace(timeout_ms=NO_TIMEOUT_MS).is_late(10**15)  # it waits for another's commit
    assert not transaction.is_expired(10**15, 1)
    for state in S:
        assert transaction._replace(state=state).is_expired(60, 10) == (state in IDLE)
        assert not transaction._replace(state=state).is_expired(59, 10)


def test_names_of_states_are_those_of_the_reference() -> None:
    assert [state.title for state in S] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    ]  # fmt: skip
