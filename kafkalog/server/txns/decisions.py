"""What the coordinator says to a producer's call: an error, or the transaction as it is after the call.

Pure: the callers write what comes out, and only then does it count. The rules are those of the reference, KIP-360 and
KIP-890 among them; where two errors fit, the order of the checks says which is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

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


class Decision(NamedTuple):
    """`transaction` is what has to be written; None where nothing changes, with `error` as the answer."""

    error: ErrorCode
    transaction: Transaction | None = None


class ProducerEpoch(NamedTuple):
    """The producer id and epoch that a producer says it has."""

    producer_id: int
    epoch: int


def decide_init(
    transaction: Transaction,
    timeout_ms: int,
    expected: ProducerEpoch | None,
    now_ms: int,
    new_producer_id: Callable[[], int],
) -> Decision:
    """For InitProducerId. A transaction in PREPARE_EPOCH_FENCE comes back where an open one is to be aborted first."""
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
    """Whether the producer may be the one the id belongs to; its epoch is looked at later."""
    if transaction.producer_epoch == NO_EPOCH or expected.producer_id == transaction.producer_id:
        return True
    # it asks again after it got a new producer id, an answer that never reached it
    return expected.producer_id == transaction.previous_producer_id and expected.epoch >= LAST_EPOCH


def decide_add(
    transaction: Transaction | None,
    producer: ProducerEpoch,
    partitions: frozenset[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Decision:
    """For AddPartitionsToTxn and AddOffsetsToTxn."""
    refusal = _refusal(transaction, producer)
    if transaction is None or refusal != ErrorCode.NONE:
        return Decision(refusal)
    if transaction.state == _S.ONGOING and partitions <= transaction.partitions:
        return Decision(ErrorCode.NONE)
    return Decision(ErrorCode.NONE, with_partitions(transaction, partitions, client_version, now_ms))


def decide_verify(
    transaction: Transaction | None, producer: ProducerEpoch, partitions: frozenset[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Whether each partition is one of the transaction's: what a broker asks before it appends (KIP-890)."""
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
    """The end of an open transaction that its producer did not ask for: fenced before it is aborted."""
    return prepared(fenced(transaction), False, CLASSIC, now_ms)


def decide_end(
    transaction: Transaction | None,
    producer: ProducerEpoch,
    committed: bool,
    client_version: int,
    now_ms: int,
    new_producer_id: Callable[[], int],
) -> Decision:
    """For EndTxn. NONE without a transaction: it has ended so already, and the producer asks again."""
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
    """The answer to an end that comes again: it has ended so, is ending so, or not so at all."""
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
    """By version 2 an epoch belongs to one transaction, so it tells whether an end comes again or is the next one."""
    is_current = producer.epoch == transaction.producer_epoch
    again_after_rotation = (
        transaction.previous_producer_id == producer.producer_id
        and producer.epoch == LAST_EPOCH
        and transaction.producer_epoch == 0
    )
    comes_again = again_after_rotation or transaction.producer_epoch == producer.epoch + 1
    if transaction.producer_id != producer.producer_id and not again_after_rotation:
        return Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    state = transaction.state
    if state.is_prepared:
        known = transaction.producer_epoch == producer.epoch + 1
    elif state in (_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT):
        known = comes_again or is_current
    else:
        known = is_current
    if not known:
        return Decision(ErrorCode.PRODUCER_FENCED)
    if state.is_prepared or (comes_again and state != _S.ONGOING):
        return Decision(_repeated(state, committed))
    if committed and state != _S.ONGOING:
        return Decision(ErrorCode.INVALID_TXN_STATE)
    next_id = new_producer_id() if transaction.is_exhausted else NO_ID
    return Decision(ErrorCode.NONE, prepared(transaction, committed, EPOCH_BUMPS, now_ms, next_id))
