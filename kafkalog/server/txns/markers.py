"""Markers: the control batches that end a transaction in each of its partitions."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import KafkalogError
from kafkalog.records.control import ControlType
from kafkalog.records.control_batch import marker_batch
from kafkalog.server.error_codes import ErrorCode, code_of
from kafkalog.server.node.topics import CONSUMER_OFFSETS
from kafkalog.server.txns.states import EPOCH_BUMPS
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

_LOG: Final = logging.getLogger(__name__)
_DONE: Final = frozenset({
    # the partition was deleted, or has a newer epoch of this producer, whose first batch or marker ended this one
    ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH,
})  # fmt: skip


class Marker(NamedTuple):
    """The end of a producer's transaction, the same in all of its partitions."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int


def write_marker(node: Node, partition: TopicPartition, marker: Marker) -> ErrorCode:
    """Append a marker to a partition and return the error code.

    For a partition of `__consumer_offsets`, also notify the group coordinator.
    """
    kind = ControlType.COMMIT if marker.committed else ControlType.ABORT
    try:
        batch = marker_batch(
            kind, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, timestamp=node.clock()
        )
        bumps = marker.transaction_version >= EPOCH_BUMPS
        node.replicas.append_now(partition, batch, "coordinator", epoch_bumps=bumps)
    except KafkalogError as error:
        _LOG.warning("cannot write the marker of producer %d to %s: %s", marker.producer_id, partition, error)
        return ErrorCode(code_of(error))
    if partition.topic == CONSUMER_OFFSETS:
        node.groups.commits.on_transaction_ended(
            marker.producer_id, marker.producer_epoch, [partition.partition], marker.committed
        )
    return ErrorCode.NONE


def write_markers(node: Node, partitions: Iterable[TopicPartition], marker: Marker) -> frozenset[TopicPartition]:
    """Write the marker to all partitions; return those where this failed, to be retried.

    While a directory is offline, an unknown partition does not count as deleted, since it may be in that directory.
    """
    is_offline = any(True for _ in node.store.offline) or (node.workers is not None and node.workers.offline)
    done = _DONE - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} if is_offline else _DONE
    return frozenset(one for one in sorted(partitions) if _write_with_epoch(node, one, marker) not in done)


def _write_with_epoch(node: Node, partition: TopicPartition, marker: Marker) -> ErrorCode:
    """Write the marker, if necessary with a later coordinator epoch, and return the error code.

    A manually written marker may have had a later epoch. There is no other coordinator, so this one continues with that
    epoch; otherwise the transaction would stay open for readers.
    """
    code = write_marker(node, partition, marker)
    if code != ErrorCode.TRANSACTION_COORDINATOR_FENCED:
        return code
    producers = node.replicas.partition(*partition).log.producers
    known = next(one.coordinator_epoch for one in producers if one.producer_id == marker.producer_id)
    return write_marker(node, partition, marker._replace(coordinator_epoch=known))
