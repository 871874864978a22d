"""The state of one transactional id as an immutable value, and the steps that change it.

Every function returns the value after a step. A step takes effect once its record is in the log.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypedDict, Unpack

from kafkalog.errors import IllegalState
from kafkalog.server.txns.states import CLASSIC, EPOCH_BUMPS, PREVIOUS, TransactionState
from kafkalog.types import TopicPartition

NO_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
LAST_EPOCH: Final = 0x7FFF - 1
"""Highest epoch for a client; the next one is reserved for fencing that client."""
NO_TIMEOUT_MS: Final = 2**31 - 1
"""Timeout of a transaction in a two-phase commit, which is never aborted for its age."""


class Transaction(NamedTuple):
    """A transactional id: its producer, its state, and the partitions of the transaction that is open or being ended.

    previous_producer_id is the id before the last step; next_producer_id replaces an id whose epochs are used up.
    last_producer_epoch is the epoch before the last bump, -1 if a client that named none requested it. client_version
    is the transaction version of the client's last call (0 or 2). Times are in ms; start_ms is -1 if no transaction has
    begun.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_EPOCH
    timeout_ms: int = 0
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    update_ms: int = 0
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    last_producer_epoch: int = NO_EPOCH
    client_version: int = CLASSIC

    @property
    def is_exhausted(self) -> bool:
        """True if the producer id has no further epoch for a client."""
        return self.producer_epoch >= LAST_EPOCH

    def is_late(self, now_ms: int) -> bool:
        """Return True if the transaction has been open for longer than its timeout."""
        if self.state != TransactionState.ONGOING or self.timeout_ms == NO_TIMEOUT_MS:
            return False
        return self.start_ms + self.timeout_ms < now_ms

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Return True if the id has been idle for at least `expiration_ms`."""
        return self.state.is_idle and self.update_ms <= now_ms - expiration_ms


class Changes(TypedDict, total=False):
    """Fields of a `Transaction` that a step changes, besides its state."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    partitions: frozenset[TopicPartition]
    start_ms: int
    update_ms: int
    next_producer_id: int
    last_producer_epoch: int
    client_version: int


def _after(transaction: Transaction, state: TransactionState, **changes: Unpack[Changes]) -> Transaction:
    if transaction.state not in PREVIOUS[state]:
        raise IllegalState(
            f"the transaction {ascii(transaction.transactional_id[:80])} cannot go from {transaction.state.title} "
            f"to {state.title}"
        )
    return transaction._replace(state=state, previous_producer_id=transaction.producer_id, **changes)


def with_next_epoch(
    transaction: Transaction, timeout_ms: int, expected_epoch: int | None, now_ms: int
) -> Transaction | None:
    """Return the value after InitProducerId; None if the producer's `expected_epoch` is fenced (KIP-360).

    A producer that sends the epoch before the last bump repeats a request whose answer it did not get.
    """
    current, last = transaction.producer_epoch, transaction.last_producer_epoch
    if expected_epoch is None:
        epochs = (current + 1, NO_EPOCH)
    elif current == NO_EPOCH or expected_epoch == current:
        epochs = (current + 1, current)
    elif expected_epoch == last:
        epochs = (current, last)
    else:
        return None
    return _to_empty(transaction, transaction.producer_id, epochs, timeout_ms, now_ms)


def with_new_producer(
    transaction: Transaction, producer_id: int, timeout_ms: int, now_ms: int, keeps_last_epoch: bool
) -> Transaction:
    """Return the value after InitProducerId when the epochs are used up: a new producer id with epoch 0."""
    last = transaction.producer_epoch if keeps_last_epoch else NO_EPOCH
    return _to_empty(transaction, producer_id, (0, last), timeout_ms, now_ms)


def _to_empty(
    transaction: Transaction, producer_id: int, epochs: tuple[int, int], timeout_ms: int, now_ms: int
) -> Transaction:
    return _after(
        transaction, TransactionState.EMPTY, producer_id=producer_id, producer_epoch=epochs[0],
        last_producer_epoch=epochs[1], timeout_ms=timeout_ms, partitions=frozenset(), start_ms=NO_TIME,
        update_ms=now_ms,
    )  # fmt: skip


def with_partitions(
    transaction: Transaction, partitions: frozenset[TopicPartition], client_version: int, now_ms: int
) -> Transaction:
    """Return the value with these partitions added; the first ones begin the transaction."""
    begins = transaction.state.is_idle
    return _after(
        transaction, TransactionState.ONGOING, partitions=transaction.partitions | partitions,
        start_ms=now_ms if begins else transaction.start_ms, update_ms=now_ms, client_version=client_version,
    )  # fmt: skip


def fenced(transaction: Transaction) -> Transaction:
    """Return the open transaction with a bumped epoch, which fences its producer. This state is never in a log.

    The producer may come back by InitProducerId with the epoch that it had, and gets the bumped one.
    """
    if transaction.producer_epoch > LAST_EPOCH:
        raise IllegalState(f"producer {transaction.producer_id} has no epoch left for fencing")
    return _after(
        transaction, TransactionState.PREPARE_EPOCH_FENCE, producer_epoch=transaction.producer_epoch + 1,
        last_producer_epoch=transaction.producer_epoch,
    )  # fmt: skip


def prepared(
    transaction: Transaction, committed: bool, client_version: int, now_ms: int, next_producer_id: int = NO_ID
) -> Transaction:
    """Return the value with its end decided. Version 2 bumps the epoch, and may abort without a transaction."""
    state = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
    epoch, last = transaction.producer_epoch, transaction.last_producer_epoch
    if client_version >= EPOCH_BUMPS:
        epoch, last = epoch + 1, epoch
    return _after(
        transaction, state, next_producer_id=next_producer_id, client_version=client_version, update_ms=now_ms,
        start_ms=now_ms if transaction.state.is_idle else transaction.start_ms, producer_epoch=epoch,
        last_producer_epoch=last,
    )  # fmt: skip


def completed(transaction: Transaction, now_ms: int) -> Transaction:
    """Return the value after all markers are written; the next producer id replaces one without further epochs."""
    committed = transaction.state == TransactionState.PREPARE_COMMIT
    producer_id, epoch = transaction.producer_id, transaction.producer_epoch
    if transaction.client_version >= EPOCH_BUMPS and transaction.next_producer_id != NO_ID:
        producer_id, epoch = transaction.next_producer_id, 0
    return _after(
        transaction, TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT,
        producer_id=producer_id, producer_epoch=epoch, next_producer_id=NO_ID, partitions=frozenset(),
        update_ms=now_ms,
    )  # fmt: skip
