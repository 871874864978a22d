"""Transactional batches of a produce request, and their verification by the coordinator (FLOW-9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kafkalog._core.batch.scan import BatchTable
from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.append_results import refused
from kafkalog.server.replica.partition import Partition
from kafkalog.server.replica.results import AppendResult
from kafkalog.storage.producer_state import VerificationGuard
from kafkalog.types import TopicPartition

Verifier = Callable[..., Mapping[TopicPartition, int]]
"""`TransactionCoordinator.verify`: the answer by partition, 0 to proceed or the error code for the client."""
EPOCH_BUMPS_VERSION = 12
"""First version of Produce with which a client's epoch grows with each transaction (KIP-890)."""


class TransactionalBatch(NamedTuple):
    """Producer and first sequence of a transactional batch."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


class Verified(NamedTuple):
    """The rejected partitions, and the guards to pass to the appends of the others."""

    refused: dict[TopicPartition, AppendResult]
    guards: dict[TopicPartition, VerificationGuard]


def transactional_batches(
    tables: Iterable[tuple[TopicPartition, BatchTable]],
) -> dict[TopicPartition, TransactionalBatch]:
    """Return the first batch of each partition where that batch is transactional."""
    found = {}
    for key, table in tables:
        if not table.has_producers:
            continue
        header = table[0]
        if header.is_transactional and header.producer_id >= 0:
            found[key] = TransactionalBatch(header.producer_id, header.producer_epoch, header.base_sequence)
    return found


def verified(
    batches: Mapping[TopicPartition, TransactionalBatch],
    transactional_id: str | None,
    produce_version: int,
    find: Callable[[TopicPartition], Partition],
    verify: Verifier | None,
) -> Verified:
    """Verify with the coordinator the transactions that begin with these batches.

    If the batches have more than one producer, the whole request is rejected with INVALID_PRODUCER_ID_MAPPING. Raise
    the errors of `find` for a missing partition.
    """
    result = Verified({}, {})
    if len({(one.producer_id, one.producer_epoch) for one in batches.values()}) > 1:
        text = "Transactional records contained more than one producer ID"
        refusal = AppendResult(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message=text)
        return Verified(dict.fromkeys(batches, refusal), {})
    if verify is None:
        return result
    producer = None
    for key, batch in batches.items():
        log = find(key).log
        if log.verifies_transactions:
            bumps = produce_version >= EPOCH_BUMPS_VERSION
            try:
                guard = log.maybe_start_verification(
                    batch.producer_id, batch.base_sequence, batch.producer_epoch, bumps
                )
            except KafkalogError as error:  # the log takes no writes: reject this partition alone
                result.refused[key] = refused(key, error, None)
                continue
            if guard is not None:
                result.guards[key] = guard
                producer = batch
    if producer is not None:
        codes = verify(
            transactional_id or "", producer.producer_id, producer.producer_epoch, list(result.guards),
            produce_version=produce_version,
        )  # fmt: skip
        result.refused.update({key: _refusal(code) for key, code in codes.items() if code})
    return result


def _refusal(code: int) -> AppendResult:
    if code == ErrorCode.INVALID_TXN_STATE:
        return AppendResult(code, message="Partition was not added to the transaction")
    if code == ErrorCode.NOT_ENOUGH_REPLICAS:
        return AppendResult(code, message="Unable to verify the partition has been added to the transaction.")
    return AppendResult(code)
