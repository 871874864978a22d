"""Records of `__transaction_state`: the key is a transactional id, the value the whole transaction.

Value versions 0 and 1 are read. With `transaction.version` 1 or 2 value version 1 is written, else 0, as by a broker
(format.md section 13, A10).
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog._core.batch.encode import encode_ready
from kafkalog._core.batch.ready_batch import ReadyBatch
from kafkalog.errors import InvalidRecord
from kafkalog.records.encoder import encoded
from kafkalog.records.internal import coordinator_record
from kafkalog.records.message import MessageError
from kafkalog.records.schemas.transactions import KEYS, VALUES
from kafkalog.server.node.topics import TRANSACTION_STATE
from kafkalog.server.txns.states import TransactionState
from kafkalog.server.txns.transaction import Transaction
from kafkalog.storage.log_walk import data_records
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.storage.log_walk import Walkable

TOPIC: Final = TRANSACTION_STATE
_TYPE: Final = 0
_SHORT: Final = struct.Struct(">h")


class LoadedTransactions(NamedTuple):
    """The transactions of one partition by id, and a message for each record that cannot be read.

    `unreadable` are the ids whose last record cannot be read; they are not in `transactions`.
    """

    transactions: dict[str, Transaction]
    problems: list[str]
    unreadable: set[str]


def transaction_key(transactional_id: str) -> bytes:
    """Return the key of an id's records."""
    return _SHORT.pack(_TYPE) + encoded(KEYS[_TYPE], {"transactionalId": transactional_id}, 0)


def transaction_value(transaction: Transaction, version: int = 1) -> bytes:
    """Return the value of a transaction's record. It lacks `last_producer_epoch`; version 0 has no tagged fields."""
    tagged = {
        "previousProducerId": transaction.previous_producer_id,
        "nextProducerId": transaction.next_producer_id,
        "clientTransactionVersion": transaction.client_version,
    }
    message: dict[str, object] = {
        "producerId": transaction.producer_id,
        "producerEpoch": transaction.producer_epoch,
        "transactionTimeoutMs": transaction.timeout_ms,
        "transactionStatus": int(transaction.state),
        "transactionPartitions": _partitions(transaction),
        "transactionLastUpdateTimestampMs": transaction.update_ms,
        "transactionStartTimestampMs": transaction.start_ms,
        **(tagged if version else {}),
    }
    return _SHORT.pack(version) + encoded(VALUES[_TYPE], message, version)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition numbers by topic, in order."""
    found: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        found[topic].append(partition)
    return dict(found)


def _partitions(transaction: Transaction) -> list[dict[str, object]] | None:
    if transaction.state == TransactionState.EMPTY:
        return None
    grouped = by_topic(transaction.partitions)
    return [{"topic": topic, "partitionIds": numbers} for topic, numbers in grouped.items()]


def transaction_of(key: bytes, value: bytes | None) -> tuple[str, Transaction | None]:
    """Return a record's id and transaction, None for a tombstone. MessageError if the record cannot be read."""
    record = coordinator_record(key, value, KEYS, VALUES)
    transactional_id: str = record.key["transactionalId"]
    data = record.value
    if data is None:
        return transactional_id, None
    try:
        state = TransactionState(data["transactionStatus"])
    except ValueError:
        raise MessageError(f"unknown transaction state {data['transactionStatus']}") from None
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


def transactions_batch(
    entries: Iterable[tuple[str, Transaction | None]], now_ms: int, value_version: int = 1
) -> ReadyBatch:
    """Return an uncompressed batch with a record for each id, a tombstone for None. `entries` must not be empty."""
    records = [
        (transaction_key(name), None if transaction is None else transaction_value(transaction, value_version))
        for name, transaction in entries
    ]
    batch = encode_ready(records, timestamp=now_ms)
    assert batch is not None
    return batch


def read_transactions(log: Walkable) -> LoadedTransactions:
    """Return the last value of each id in a partition. CorruptRecord, with its place, for damage; StorageError.

    A record of a later format is skipped and reported in `problems`.
    """
    found: dict[str, Transaction] = {}
    problems: list[str] = []
    unreadable: set[str] = set()
    for record in data_records(log, log.log_start_offset, log.log_end_offset):
        try:
            transactional_id, transaction = transaction_of(record.key or b"", record.value)
        except (MessageError, InvalidRecord) as error:
            problems.append(f"offset {record.offset}: {error.message}")
            unreadable |= (ids := _ids_in(record.key))
            for name in ids:
                found.pop(name, None)
            continue
        unreadable.discard(transactional_id)
        if transaction is None:
            found.pop(transactional_id, None)
        else:
            found[transactional_id] = transaction
    return LoadedTransactions(found, problems, unreadable)


def _ids_in(key: bytes | None) -> set[str]:
    """Return the id in a key as a set, empty if the key is of another type or cannot be read."""
    try:
        return {transaction_of(key or b"", None)[0]}
    except MessageError:
        return set()
