"""Records of `__transaction_state`: a transactional id as its key, the whole transaction as its value.

Value versions 0 and 1 are read, 1 is written, as a broker of 4.3.1 does (format.md section 13, A10).
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kafkalog.errors import InvalidRecord
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.encoder import encoded
from kafkalog.records.internal import coordinator_record
from kafkalog.records.message import MessageError
from kafkalog.records.schemas.transactions import KEYS, VALUES
from kafkalog.records.tables import batch_table
from kafkalog.server.topics import TRANSACTION_STATE
from kafkalog.server.txns.states import TransactionState
from kafkalog.server.txns.transaction import Transaction
from kafkalog.storage.log_walk import Walkable, log_chunks
from kafkalog.types import TopicPartition

TOPIC: Final = TRANSACTION_STATE
_TYPE: Final = 0
_VERSION: Final = 1
_SHORT: Final = struct.Struct(">h")


class LoadedTransactions(NamedTuple):
    """What the records of one partition say: transactions by id, and of what could not be read, why.

    `unreadable` are the ids whose last record is one that cannot be read; they are not among the transactions.
    """

    transactions: dict[str, Transaction]
    problems: list[str]
    unreadable: set[str]


def transaction_key(transactional_id: str) -> bytes:
    """The key of an id's records."""
    return _SHORT.pack(_TYPE) + encoded(KEYS[_TYPE], {"transactionalId": transactional_id}, 0)


def transaction_value(transaction: Transaction) -> bytes:
    """The value that says all of a transaction but the epoch before the last bump, which no record has."""
    message: dict[str, Any] = {
        "producerId": transaction.producer_id,
        "previousProducerId": transaction.previous_producer_id,
        "nextProducerId": transaction.next_producer_id,
        "producerEpoch": transaction.producer_epoch,
        "transactionTimeoutMs": transaction.timeout_ms,
        "transactionStatus": int(transaction.state),
        "transactionPartitions": _partitions(transaction),
        "transactionLastUpdateTimestampMs": transaction.update_ms,
        "transactionStartTimestampMs": transaction.start_ms,
        "clientTransactionVersion": transaction.client_version,
    }
    return _SHORT.pack(_VERSION) + encoded(VALUES[_TYPE], message, _VERSION)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of partitions by their topic, in order."""
    found: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        found[topic].append(partition)
    return dict(found)


def _partitions(transaction: Transaction) -> list[dict[str, Any]] | None:
    if transaction.state == TransactionState.EMPTY:
        return None
    grouped = by_topic(transaction.partitions)
    return [{"topic": topic, "partitionIds": numbers} for topic, numbers in grouped.items()]


def transaction_of(key: bytes, value: bytes | None) -> tuple[str, Transaction | None]:
    """The id of a record and its transaction, None for a tombstone. MessageError for what cannot be read."""
    record = coordinator_record(key, value, KEYS, VALUES)
    transactional_id: str = record.key["transactionalId"]
    data = record.value
    if data is None:
        return transactional_id, None
    try:
        state = TransactionState(data["transactionStatus"])
    except ValueError:
        raise MessageError(f"the state {data['transactionStatus']} of a transaction is not known") from None
    partitions = [
        TopicPartition(entry["topic"], partition)
        for entry in data["transactionPartitions"] or ()
        for partition in entry["partitionIds"]
    ]
    return transactional_id, Transaction(
        transactional_id, data["producerId"], data["producerEpoch"], data["transactionTimeoutMs"], state,
        frozenset(partitions), data["transactionStartTimestampMs"], data["transactionLastUpdateTimestampMs"],
        data.get("previousProducerId", -1), data.get("nextProducerId", -1),
        client_version=data.get("clientTransactionVersion", 0),
    )  # fmt: skip


def transactions_batch(entries: Iterable[tuple[str, Transaction | None]], now_ms: int) -> bytearray:
    """A batch with a record for each id; None makes its tombstone. Never compressed."""
    builder = RecordsBuilder()
    for transactional_id, transaction in entries:
        value = None if transaction is None else transaction_value(transaction)
        builder.append(now_ms, transaction_key(transactional_id), value)
    return builder.build()


def read_transactions(log: Walkable) -> LoadedTransactions:
    """Return the last value of each id in a partition. CorruptRecord, with its place, for damage; StorageError.

    A record of a later format is a problem that is told: an older coordinator passes over it.
    """
    found: dict[str, Transaction] = {}
    problems: list[str] = []
    unreadable: set[str] = set()
    for chunk in log_chunks(log, log.log_start_offset, log.log_end_offset):
        for row in range(chunk.first, chunk.last):
            if chunk.batches[row].is_control:
                continue
            for record in batch_table(chunk.data, chunk.batches, row, base_position=chunk.position, path=chunk.path):
                try:
                    transactional_id, transaction = transaction_of(record.key or b"", record.value)
                except (MessageError, InvalidRecord) as error:
                    problems.append(f"offset {record.offset}: {error.message}")
                    unreadable |= (names := _names(record.key))
                    for name in names:
                        found.pop(name, None)
                    continue
                unreadable.discard(transactional_id)
                if transaction is None:
                    found.pop(transactional_id, None)
                else:
                    found[transactional_id] = transaction
    return LoadedTransactions(found, problems, unreadable)


def _names(key: bytes | None) -> set[str]:
    """The id that a key names; none where the key is of another kind, or cannot be read itself."""
    try:
        return {transaction_of(key or b"", None)[0]}
    except MessageError:
        return set()
