"""Decisions on producers' calls: an error, or the transaction after the call.

The functions are pure; a result takes effect once the caller has written it. The rules are those of the reference,
including KIP-360 and KIP-890. If several errors apply, the order of the checks decides which is returned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.txns.states import CLASSIC, EPOCH_BUMPS, TransactionState
from kafkalog.server.txns.transaction import (
    LAST_EPOCH,
    NO_EPOCH,
    NO_ID,
    Transaction,
    fenced,
    prepared,
    with_new_producer,
    with_next_epoch,
    with_partitions,
)
from kafkalog.types import TopicPartition

_S = TransactionState
PRODUCE_ADDS: Final = 12
"""First version of Produce that adds its partitions to the transaction."""
PRODUCE_ABORTABLE: Final = 11
"""First version of Produce whose clients know TRANSACTION_ABORTABLE."""
COMMIT_ADDS: Final = 5
COMMIT_ABORTABLE: Final = 4
_TRANSIENT: Final = frozenset({
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
})  # fmt: skip


class Decision(NamedTuple):
    """The transaction to be written, or None if nothing changes; `error` is then the answer."""

    error: ErrorCode
    transaction: Transaction | None = None


class ProducerEpoch(NamedTuple):
    """The producer id and epoch that a producer sends."""

    producer_id: int
    epoch: int


def decide_init(
    transaction: Transaction,
    timeout_ms: int,
    expected: ProducerEpoch | None,
    now_ms: int,
    new_producer_id: Callable[[], int],
) -> Decision:
    """Decide InitProducerId. A result in PREPARE_EPOCH_FENCE means that an open transaction must be aborted first."""
    if expected is not None and not _is_known(transaction, expected):
        return Decision(ErrorCode.PRODUCER_FENCED)
    if transaction.state.is_prepared:
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.state == _S.ONGOING:
        return Decision(ErrorCode.NONE, fenced(transaction))
    if transaction.is_exhausted and (expected is None or expected.epoch == transaction.producer_epoch):
        rotated = with_new_producer(transaction, new_producer_id(), timeout_ms, now_ms, expected is not None)
        return Decision(ErrorCode.NONE, rotated)
    after = with_next_epoch(transaction, timeout_ms, None if expected is None else expected.epoch, now_ms)
    return Decision(ErrorCode.PRODUCER_FENCED) if after is None else Decision(ErrorCode.NONE, after)


def _is_known(transaction: Transaction, expected: ProducerEpoch) -> bool:
    """Return True if the producer may own the transactional id; the caller checks its epoch."""
    if transaction.producer_epoch == NO_EPOCH or expected.producer_id == transaction.producer_id:
        return True
    # it repeats a request whose answer, a new producer id, it did not get
    return expected.producer_id == transaction.previous_producer_id and expected.epoch >= LAST_EPOCH


def decide_add(
    transaction: Transaction | None,
    producer: ProducerEpoch,
    partitions: frozenset[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Decision:
    """Decide AddPartitionsToTxn and AddOffsetsToTxn."""
    refusal = _refusal(transaction, producer)
    if transaction is None or refusal != ErrorCode.NONE:
        return Decision(refusal)
    if transaction.state == _S.ONGOING and partitions <= transaction.partitions:
        return Decision(ErrorCode.NONE)
    return Decision(ErrorCode.NONE, with_partitions(transaction, partitions, client_version, now_ms))


def decide_verify(
    transaction: Transaction | None, producer: ProducerEpoch, partitions: frozenset[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Return NONE for each partition in the transaction, else TRANSACTION_ABORTABLE or an error for all (KIP-890).

    A broker verifies this before it appends.
    """
    refusal = _refusal(transaction, producer)
    if transaction is None or refusal != ErrorCode.NONE:
        return dict.fromkeys(partitions, refusal)
    known = transaction.partitions
    return {one: ErrorCode.NONE if one in known else ErrorCode.TRANSACTION_ABORTABLE for one in partitions}


def _refusal(transaction: Transaction | None, producer: ProducerEpoch) -> ErrorCode:
    if transaction is None or transaction.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != producer.epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if transaction.state.is_prepared else ErrorCode.NONE


def decide_abort(transaction: Transaction, now_ms: int) -> Transaction:
    """Fence an open transaction and return it prepared to abort, without a request of its producer.

    Fencing has bumped the epoch, so the end does not; the client's version stays.
    """
    aborted = prepared(fenced(transaction), False, CLASSIC, now_ms)
    return aborted._replace(client_version=transaction.client_version)


def decide_end(
    transaction: Transaction | None,
    producer: ProducerEpoch,
    committed: bool,
    client_version: int,
    now_ms: int,
    new_producer_id: Callable[[], int],
) -> Decision:
    """Decide EndTxn. NONE without a transaction means a repeated request: it has already ended this way."""
    if transaction is None:
        return Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if client_version >= EPOCH_BUMPS:
        return _decide_bumping_end(transaction, producer, committed, now_ms, new_producer_id)
    if transaction.producer_id != producer.producer_id:
        return Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != producer.epoch:
        return Decision(ErrorCode.PRODUCER_FENCED)
    if transaction.state == _S.ONGOING:
        return Decision(ErrorCode.NONE, prepared(transaction, committed, CLASSIC, now_ms))
    return Decision(_repeated(transaction.state, committed))


def _repeated(state: TransactionState, committed: bool) -> ErrorCode:
    """Return the code for a repeated EndTxn: the same end is complete, is in progress, or never began."""
    if state == (_S.COMPLETE_COMMIT if committed else _S.COMPLETE_ABORT):
        return ErrorCode.NONE
    if state == (_S.PREPARE_COMMIT if committed else _S.PREPARE_ABORT):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.INVALID_TXN_STATE


def _decide_bumping_end(
    transaction: Transaction,
    producer: ProducerEpoch,
    committed: bool,
    now_ms: int,
    new_producer_id: Callable[[], int],
) -> Decision:
    """Decide EndTxn of transaction version 2.

    An epoch belongs to one transaction, so it distinguishes a repeated end from the next one.
    """
    is_current = producer.epoch == transaction.producer_epoch
    is_repeated_after_rotation = (
        transaction.previous_producer_id == producer.producer_id
        and producer.epoch == LAST_EPOCH
        and transaction.producer_epoch == 0
    )
    is_repeated = is_repeated_after_rotation or transaction.producer_epoch == producer.epoch + 1
    if transaction.producer_id != producer.producer_id and not is_repeated_after_rotation:
        return Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    state = transaction.state
    if state.is_prepared:
        known = transaction.producer_epoch == producer.epoch + 1
    elif state in (_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT):
        known = is_repeated or is_current
    else:
        known = is_current
    if not known:
        return Decision(ErrorCode.PRODUCER_FENCED)
    if state.is_prepared or (is_repeated and state != _S.ONGOING):
        return Decision(_repeated(state, committed))
    if committed and state != _S.ONGOING:
        return Decision(ErrorCode.INVALID_TXN_STATE)
    next_id = new_producer_id() if transaction.is_exhausted else NO_ID
    return Decision(ErrorCode.NONE, prepared(transaction, committed, EPOCH_BUMPS, now_ms, next_id))


def verification_error(code: ErrorCode, knows_abortable: bool) -> ErrorCode:
    """Convert the coordinator's error code to one that clients of the version know."""
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code


def produce_error(code: ErrorCode, version: int) -> ErrorCode:
    """Convert the coordinator's error code for Produce. A transient error becomes one that every client retries."""
    if code in _TRANSIENT or (code == ErrorCode.CONCURRENT_TRANSACTIONS and version < PRODUCE_ADDS):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return verification_error(code, version >= PRODUCE_ABORTABLE)
