"""Transactional batches of a produce request, and their verification by the coordinator (FLOW-9)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple

from kafkalog._core.batch.scan import BatchTable
from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.append_results import refused
from kafkalog.server.replica.partition import Partition
from kafkalog.server.replica.results import AppendParams, AppendResult
from kafkalog.storage.producer_state import VerificationGuard
from kafkalog.types import TopicPartition

Verifier = Callable[..., Mapping[TopicPartition, int]]
"""`TransactionCoordinator.verify`: the answer by partition, 0 to proceed or the error code for the client."""
Asker = Callable[..., Awaitable[Mapping[TopicPartition, int]]]
"""The same of a coordinator in another process."""
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


NOTHING_TO_VERIFY: Final = Verified({}, {})


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


async def verified(
    batches: dict[TopicPartition, TransactionalBatch],
    params: AppendParams,
    find: Callable[[TopicPartition], Partition],
    verify: Verifier | None,
    ask: Asker | None = None,
) -> Verified:
    """Verify with the coordinator the transactions that begin with these batches; with `ask`, in another process.

    Batches of partitions that are missing, or that another node leads, are removed from `batches`: the coordinator need
    not be here then, and its absence would keep clients at this node.

    If the batches have more than one producer, the whole request is rejected with INVALID_PRODUCER_ID_MAPPING. While
    another process is asked, a marker that is written makes the guards invalid: no append follows a transaction's end.
    """
    result = Verified({}, {})
    for key in tuple(batches):
        try:
            find(key).leader_role()
        except KafkalogError as error:
            result.refused[key] = refused(key, error, None)
            del batches[key]
    if len({(one.producer_id, one.producer_epoch) for one in batches.values()}) > 1:
        text = "Transactional records contained more than one producer ID"
        refusal = AppendResult(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message=text)
        return Verified(result.refused | dict.fromkeys(batches, refusal), {})
    producer = None if verify is None else _guard(batches, params.produce_version, find, result)
    if verify is not None and producer is not None:
        batch = params.transactional_id or "", producer.producer_id, producer.producer_epoch, list(result.guards)
        version = {"produce_version": params.produce_version}
        codes = verify(*batch, **version) if ask is None else await ask(*batch, **version)
        result.refused.update({key: _refusal(code) for key, code in codes.items() if code})
    return result


def _guard(
    batches: Mapping[TopicPartition, TransactionalBatch], version: int, find: Callable[[TopicPartition], Partition],
    result: Verified,
) -> TransactionalBatch | None:  # fmt: skip
    """Begin the verification of each partition that needs it; return the producer if there is one."""
    producer = None
    for key, batch in batches.items():
        log = find(key).log
        if log.verifies_transactions:
            bumps = version >= EPOCH_BUMPS_VERSION
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
    return producer


def _refusal(code: int) -> AppendResult:
    if code == ErrorCode.INVALID_TXN_STATE:
        return AppendResult(code, message="Partition was not added to the transaction")
    if code == ErrorCode.NOT_ENOUGH_REPLICAS:
        return AppendResult(code, message="Unable to verify the partition has been added to the transaction.")
    return AppendResult(code)
