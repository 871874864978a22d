"""The coordinator's answers in every state of a transaction."""

import pytest

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.txns.decisions import (
    Decision,
    ProducerEpoch,
    decide_abort,
    decide_add,
    decide_end,
    decide_init,
    decide_verify,
)
from kafkalog.server.txns.states import CLASSIC, EPOCH_BUMPS, IDLE, TransactionState
from kafkalog.server.txns.transaction import LAST_EPOCH, Transaction, completed
from kafkalog.types import TopicPartition

S, E = TransactionState, ErrorCode
A, B = TopicPartition("a", 0), TopicPartition("b", 3)
PREPARED = (S.PREPARE_COMMIT, S.PREPARE_ABORT)
LIVING = [*sorted(IDLE), S.ONGOING, *PREPARED]


def make_transaction(state: S, epoch: int = 4, **changes: object) -> Transaction:
    open_ = state in (S.ONGOING, *PREPARED)
    fields = {"partitions": frozenset([A]) if open_ else frozenset(), "start_ms": 10 if open_ else -1, **changes}
    return Transaction("x", 7, epoch, 1000, state, **fields)  # type: ignore[arg-type]


def init(transaction: Transaction, expected: ProducerEpoch | None = None) -> Decision:
    return decide_init(transaction, 2000, expected, 50, lambda: 99)


def end(transaction: Transaction | None, epoch: int, committed: bool, version: int, producer_id: int = 7) -> Decision:
    return decide_end(transaction, ProducerEpoch(producer_id, epoch), committed, version, 50, lambda: 99)


def test_a_new_id_begins_at_epoch_0() -> None:
    after = init(Transaction("x", 7)).transaction
    assert after is not None and (after.producer_id, after.producer_epoch, after.last_producer_epoch) == (7, 0, -1)
    # a producer that lost its id gets a new one, whatever id it sends
    assert init(Transaction("x", 7), ProducerEpoch(3, 9)).transaction is not None


@pytest.mark.parametrize("state", LIVING)
def test_initialising_in_each_state(state: S) -> None:
    decision = init(make_transaction(state))
    if state in PREPARED:
        assert decision == Decision(E.CONCURRENT_TRANSACTIONS)
    elif state == S.ONGOING:
        fenced = decision.transaction
        assert fenced is not None and (fenced.state, fenced.producer_epoch) == (S.PREPARE_EPOCH_FENCE, 5)
    else:
        after = decision.transaction
        assert after is not None and (after.state, after.producer_epoch, after.timeout_ms) == (S.EMPTY, 5, 2000)


def test_a_producer_that_says_who_it_is_goes_on_unless_another_one_came() -> None:
    idle = make_transaction(S.COMPLETE_COMMIT, last_producer_epoch=3)
    bumped = init(idle, ProducerEpoch(7, 4)).transaction
    assert bumped is not None and (bumped.producer_epoch, bumped.last_producer_epoch) == (5, 4)
    again = init(idle, ProducerEpoch(7, 3)).transaction
    assert again is not None and (again.producer_epoch, again.last_producer_epoch) == (4, 3)
    assert init(idle, ProducerEpoch(7, 2)) == Decision(E.PRODUCER_FENCED)
    assert init(idle, ProducerEpoch(8, 4)) == Decision(E.PRODUCER_FENCED)
    # this error comes before the request to wait
    assert init(make_transaction(S.PREPARE_ABORT), ProducerEpoch(8, 4)) == Decision(E.PRODUCER_FENCED)


def test_used_up_epochs_lead_to_another_producer_id() -> None:
    idle = make_transaction(S.COMPLETE_ABORT, LAST_EPOCH)
    after = init(idle).transaction
    assert after is not None and (after.producer_id, after.producer_epoch, after.last_producer_epoch) == (99, 0, -1)
    own = init(idle, ProducerEpoch(7, LAST_EPOCH)).transaction
    assert own is not None and (own.producer_id, own.previous_producer_id) == (99, 7)
    assert own.last_producer_epoch == LAST_EPOCH
    # the answer was lost, and the producer asks again with what it had
    again = init(own, ProducerEpoch(7, LAST_EPOCH)).transaction
    assert again is not None and (again.producer_id, again.producer_epoch) == (99, 0)
    assert init(own, ProducerEpoch(7, 5)) == Decision(E.PRODUCER_FENCED)
    assert init(make_transaction(S.EMPTY, LAST_EPOCH), ProducerEpoch(7, 3)) == Decision(E.PRODUCER_FENCED)


@pytest.mark.parametrize("state", LIVING)
def test_adding_partitions_in_each_state(state: S) -> None:
    decision = decide_add(make_transaction(state), ProducerEpoch(7, 4), frozenset([B]), CLASSIC, 50)
    if state in PREPARED:
        assert decision == Decision(E.CONCURRENT_TRANSACTIONS)
    else:
        after = decision.transaction
        assert after is not None and after.state == S.ONGOING
        assert (after.partitions, after.start_ms) == (({A, B}, 10) if state == S.ONGOING else ({B}, 50))


def test_partitions_that_are_in_it_need_no_record() -> None:
    assert decide_add(make_transaction(S.ONGOING), ProducerEpoch(7, 4), frozenset([A]), CLASSIC, 50) == Decision(E.NONE)


@pytest.mark.parametrize(
    ("producer", "error"),
    [((8, 4), E.INVALID_PRODUCER_ID_MAPPING), ((7, 3), E.PRODUCER_FENCED), ((7, 5), E.PRODUCER_FENCED)],
)
def test_who_may_not_touch_a_transaction(producer: tuple[int, int], error: E) -> None:
    who = ProducerEpoch(*producer)
    for state in LIVING:
        assert decide_add(make_transaction(state), who, frozenset([B]), CLASSIC, 50) == Decision(error)
        assert decide_verify(make_transaction(state), who, frozenset([A])) == {A: error}
        assert decide_end(make_transaction(state), who, True, CLASSIC, 50, lambda: 99) == Decision(error)
    assert decide_add(None, who, frozenset([B]), CLASSIC, 50) == Decision(E.INVALID_PRODUCER_ID_MAPPING)
    assert decide_verify(None, who, frozenset([B])) == {B: E.INVALID_PRODUCER_ID_MAPPING}
    for version in (CLASSIC, EPOCH_BUMPS):
        assert end(None, 4, True, version) == Decision(E.INVALID_PRODUCER_ID_MAPPING)


def test_verifying() -> None:
    found = decide_verify(make_transaction(S.ONGOING), ProducerEpoch(7, 4), frozenset([A, B]))
    assert found == {A: E.NONE, B: E.TRANSACTION_ABORTABLE}
    assert decide_verify(make_transaction(S.EMPTY), ProducerEpoch(7, 4), frozenset([A])) == {A: E.TRANSACTION_ABORTABLE}
    found = decide_verify(make_transaction(S.PREPARE_COMMIT), ProducerEpoch(7, 4), frozenset([A]))
    assert found == {A: E.CONCURRENT_TRANSACTIONS}


CLASSIC_ENDS = {
    S.EMPTY: (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
    S.ONGOING: (S.PREPARE_COMMIT, S.PREPARE_ABORT),
    S.PREPARE_COMMIT: (E.CONCURRENT_TRANSACTIONS, E.INVALID_TXN_STATE),
    S.PREPARE_ABORT: (E.INVALID_TXN_STATE, E.CONCURRENT_TRANSACTIONS),
    S.COMPLETE_COMMIT: (E.NONE, E.INVALID_TXN_STATE),
    S.COMPLETE_ABORT: (E.INVALID_TXN_STATE, E.NONE),
}
"""State -> what a commit and an abort lead to."""


def outcome(decision: Decision) -> E | S:
    return decision.error if decision.transaction is None else decision.transaction.state


@pytest.mark.parametrize("state", LIVING)
@pytest.mark.parametrize("committed", [True, False])
def test_ends_in_each_state(state: S, committed: bool) -> None:
    decision = end(make_transaction(state), 4, committed, CLASSIC)
    assert outcome(decision) == CLASSIC_ENDS[state][not committed]
    if decision.transaction is not None:
        assert decision.transaction.producer_epoch == 4


BUMPING_ENDS = {
    # state: (a commit asked for again, a commit, an abort asked for again, an abort)
    S.EMPTY: (E.PRODUCER_FENCED, E.INVALID_TXN_STATE, E.PRODUCER_FENCED, S.PREPARE_ABORT),
    S.ONGOING: (E.PRODUCER_FENCED, S.PREPARE_COMMIT, E.PRODUCER_FENCED, S.PREPARE_ABORT),
    S.PREPARE_COMMIT: (E.CONCURRENT_TRANSACTIONS, E.PRODUCER_FENCED, E.INVALID_TXN_STATE, E.PRODUCER_FENCED),
    S.PREPARE_ABORT: (E.INVALID_TXN_STATE, E.PRODUCER_FENCED, E.CONCURRENT_TRANSACTIONS, E.PRODUCER_FENCED),
    S.COMPLETE_COMMIT: (E.NONE, E.INVALID_TXN_STATE, E.INVALID_TXN_STATE, S.PREPARE_ABORT),
    S.COMPLETE_ABORT: (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE, E.NONE, S.PREPARE_ABORT),
}


@pytest.mark.parametrize("state", LIVING)
@pytest.mark.parametrize("case", range(4), ids=["commit again", "commit", "abort again", "abort"])
def test_ends_that_bump_the_epoch_in_each_state(state: S, case: int) -> None:
    decision = end(make_transaction(state), 4 if case % 2 else 3, case < 2, EPOCH_BUMPS)
    assert outcome(decision) == BUMPING_ENDS[state][case]
    if decision.transaction is not None:
        assert (decision.transaction.producer_epoch, decision.transaction.last_producer_epoch) == (5, 4)


def test_an_end_asked_for_again_after_the_producer_id_changed() -> None:
    rotated = make_transaction(S.COMPLETE_COMMIT, 0, previous_producer_id=5)
    assert end(rotated, LAST_EPOCH, True, EPOCH_BUMPS, producer_id=5) == Decision(E.NONE)
    assert end(rotated, LAST_EPOCH, False, EPOCH_BUMPS, producer_id=5) == Decision(E.INVALID_TXN_STATE)
    assert end(rotated, LAST_EPOCH - 1, True, EPOCH_BUMPS, producer_id=5) == Decision(E.INVALID_PRODUCER_ID_MAPPING)


def test_the_end_of_the_last_epoch_takes_another_producer_id() -> None:
    after = end(make_transaction(S.ONGOING, LAST_EPOCH), LAST_EPOCH, True, EPOCH_BUMPS).transaction
    assert after is not None and (after.next_producer_id, after.producer_epoch) == (99, LAST_EPOCH + 1)
    assert end(make_transaction(S.ONGOING, LAST_EPOCH), LAST_EPOCH, True, CLASSIC).transaction is not None


@pytest.mark.parametrize("version", [CLASSIC, EPOCH_BUMPS])
def test_a_producer_whose_transaction_was_aborted_comes_back_with_its_epoch(version: int) -> None:
    """It gets the epoch that fenced it, until another producer has initialized the id."""
    aborted = completed(decide_abort(make_transaction(S.ONGOING, client_version=version), 50), 60)
    for epoch in (4, 5):
        back = init(aborted, ProducerEpoch(7, epoch)).transaction
        assert back is not None and (back.state, back.producer_epoch) == (S.EMPTY, epoch + 1 if epoch == 5 else 5)
    assert init(aborted, ProducerEpoch(7, 3)) == Decision(E.PRODUCER_FENCED)
    another = init(aborted).transaction
    assert another is not None and init(another, ProducerEpoch(7, 4)) == Decision(E.PRODUCER_FENCED)


def test_an_abort_that_nobody_asked_for_fences_the_producer() -> None:
    after = decide_abort(make_transaction(S.ONGOING, client_version=EPOCH_BUMPS), 50)
    assert (after.state, after.producer_epoch, after.partitions) == (S.PREPARE_ABORT, 5, {A})
    assert end(after, 4, True, CLASSIC) == Decision(E.PRODUCER_FENCED)


def test_a_client_gets_epochs_up_to_32766_and_then_another_producer_id() -> None:
    """The last one that 16 bits have is the coordinator's, to fence with."""
    last = init(make_transaction(S.COMPLETE_COMMIT, 32765)).transaction
    assert last is not None and (last.producer_id, last.producer_epoch) == (7, 32766)
    after = init(last).transaction
    assert after is not None and (after.producer_id, after.producer_epoch) == (99, 0)
    for epoch, expected in ((32765, (32766, -1)), (32766, (32767, 99))):
        ended = end(make_transaction(S.ONGOING, epoch), epoch, True, EPOCH_BUMPS).transaction
        assert ended is not None and (ended.producer_epoch, ended.next_producer_id) == expected
    fenced = init(make_transaction(S.ONGOING, 32766)).transaction
    assert fenced is not None and fenced.producer_epoch == 32767
