"""The log of transactions: the partitions of `__transaction_state`; each transactional id maps to one."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode, code_of
from kafkalog.server.settings.features import TRANSACTION
from kafkalog.server.txns.records import TOPIC, read_transactions, transactions_batch
from kafkalog.server.txns.transaction import Transaction
from kafkalog.types import TopicPartition
from kafkalog.util.java_hash import partition_of

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

_LOG: Final = logging.getLogger(__name__)
_UNAVAILABLE: Final = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
})  # fmt: skip
_BATCH_BYTES: Final = 100_000
_TOMBSTONE_BYTES: Final = 32
_NOT_LED_HERE: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})


class TransactionLog:
    """The known transactions and their records. Only for the event loop's thread.

    A change takes effect once its record is in the log. An id is not served if its partition or its last record could
    not be read, since its state is unknown: a fenced producer must not return, and a commit that a later version has
    decided must not become an abort.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._transactions: dict[str, Transaction] = {}
        self._unreadable: set[int] = set()
        self._unreadable_ids: set[str] = set()
        self.is_loading = True
        self.is_closed = False
        """True once its coordinator has stopped. Nothing is written then: in a replica set this node may lead again by
        now, and another coordinator knows newer states."""

    async def load(self) -> None:
        """Read all partitions. The transactions are served once `is_loading` is False."""
        topic = self._node.topics.get(TOPIC)
        for index in range(0 if topic is None else topic.partitions):
            await self._load_partition(index)

    async def _load_partition(self, index: int) -> None:
        try:
            log = self._node.replicas.partition(TOPIC, index).log
            if log.log_start_offset == log.log_end_offset:
                return
            loaded = await self._node.run(read_transactions, log)
        except Exception as error:  # the transactions of the other partitions are still served
            cause = None if isinstance(error, KafkalogError | OSError) else error
            message = "the transactions of %s-%d cannot be read and are not served: %s"
            _LOG.error(message, TOPIC, index, error, exc_info=cause)
            self._unreadable.add(index)
            return
        for problem in loaded.problems:
            _LOG.warning("skipped a record of %s-%d: %s", TOPIC, index, problem)
        for name in sorted(loaded.unreadable):
            _LOG.error("the last record of transaction %s cannot be read; it is not served", ascii(name[:80]))
        self._unreadable_ids |= loaded.unreadable
        for name, transaction in loaded.transactions.items():
            known = self._transactions.get(name)
            # after the topic got more partitions, an id may have records in two of them: use the newer one
            if known is None or known.update_ms <= transaction.update_ms:
                self._transactions[name] = transaction

    def __iter__(self) -> Iterator[Transaction]:
        unreadable = self._unreadable_ids
        return iter([one for name, one in self._transactions.items() if name not in unreadable])

    def find(self, transactional_id: str) -> tuple[ErrorCode, Transaction | None]:
        """Return the transaction of an id, None if unknown; an error for "", while loading, or if it cannot be read."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, None
        if self.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None
        is_unreadable = transactional_id in self._unreadable_ids
        if is_unreadable or (self._unreadable and self.partition_for(transactional_id) in self._unreadable):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        return ErrorCode.NONE, self._transactions.get(transactional_id)

    def partition_for(self, transactional_id: str) -> int:
        """Return the partition number of the id's records; 0 if the topic is missing."""
        topic = self._node.topics.get(TOPIC)
        return 0 if topic is None else partition_of(transactional_id, topic.partitions)

    def coordinator_epoch(self, transactional_id: str) -> int:
        """Return the epoch for the id's markers, the partition's leader epoch. UnknownTopicOrPartition."""
        epoch: int = self._node.replicas.partition(TOPIC, self.partition_for(transactional_id)).leader_epoch
        return epoch

    async def settled(self, transactional_id: str) -> ErrorCode:
        """Wait until the id's records are replicated. Return NONE, or the error for its producer, which retries.

        A single node does not wait.
        """
        if self._node.topics.get(TOPIC) is None:
            return ErrorCode.NONE
        place = TopicPartition(TOPIC, self.partition_for(transactional_id))
        code: int = await self._node.replicas.settled([place])
        return _client_code(ErrorCode(code)) if code else ErrorCode.NONE

    def is_alone(self, transactional_id: str) -> bool:
        """Return True if this node leads the id's partition and has its only copy."""
        place = TopicPartition(TOPIC, self.partition_for(transactional_id))
        return bool(self._node.replicas.partition(*place).is_alone)

    def write(self, transaction: Transaction) -> ErrorCode:
        """Write and store the transaction's new value; after an error, the old one remains."""
        error = self._append(self.partition_for(transaction.transactional_id), [transaction], is_end=False)
        if error == ErrorCode.NONE:
            self._transactions[transaction.transactional_id] = transaction
        return error

    def forget(self, transactions: Iterable[Transaction]) -> int:
        """Remove ids by writing their tombstones; return the number of removed ids."""
        by_partition: dict[int, list[Transaction]] = {}
        for transaction in transactions:
            by_partition.setdefault(self.partition_for(transaction.transactional_id), []).append(transaction)
        count = 0
        for index, expired in by_partition.items():
            for batch in _in_batches(expired):
                if self._append(index, batch, is_end=True) != ErrorCode.NONE:
                    break
                count += len(batch)
                for transaction in batch:
                    del self._transactions[transaction.transactional_id]
        return count

    def _append(self, index: int, transactions: list[Transaction], is_end: bool) -> ErrorCode:
        if self.is_closed:
            return ErrorCode.NOT_COORDINATOR
        entries = [(one.transactional_id, None if is_end else one) for one in transactions]
        value_version = min(1, self._node.features.level(TRANSACTION))
        batch = transactions_batch(entries, self._node.clock(), value_version)
        try:
            self._node.replicas.append_now(TopicPartition(TOPIC, index), batch, "coordinator")
        except KafkalogError as error:
            _LOG.warning("a record of %s-%d could not be written: %s", TOPIC, index, error)
            return _client_code(ErrorCode(code_of(error)))
        return ErrorCode.NONE


def _in_batches(transactions: Iterable[Transaction]) -> Iterator[list[Transaction]]:
    """Split the transactions so that the tombstones of each part fit into a batch."""
    batch: list[Transaction] = []
    size = 0
    for one in transactions:
        batch.append(one)
        size += _TOMBSTONE_BYTES + len(one.transactional_id)
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _client_code(code: ErrorCode) -> ErrorCode:
    """Return the error for a producer from the error of the coordinator's own append."""
    if code in _UNAVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.NOT_COORDINATOR if code in _NOT_LED_HERE else ErrorCode.UNKNOWN_SERVER_ERROR
