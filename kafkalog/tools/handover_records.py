"""The metadata records that make topics known to a broker, and the batches they go into (format.md section 13)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kafkalog._core.varint import encode_uvarint
from kafkalog.manager.cluster_image import TOPIC_RESOURCE
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.encoder import encoded
from kafkalog.records.internal import METADATA_FRAME_VERSION
from kafkalog.records.schemas.metadata import RECORDS

BATCH_BYTES: Final = 1 << 20
DIRECTORIES_SINCE: Final = 17
"""The level of metadata.version (3.7-IV2) from which a partition's record names its directories."""
_BY_NAME: Final = {schema.name: schema for schema in RECORDS.values()}


class NewPartition(NamedTuple):
    """A partition to be made known: its number, epochs so far, and the id of the data directory it lies in."""

    number: int
    leader_epoch: int
    partition_epoch: int
    directory_id: str


def topic_record(name: str, topic_id: str) -> bytes:
    """A topic and its id."""
    return _value("TopicRecord", 0, {"name": name, "topicId": topic_id})


def partition_record(topic_id: str, partition: NewPartition, node_id: int, metadata_version: int) -> bytes:
    """A partition whose one replica is on the node, in sync and its leader, as it stands after the node's crash.

    So it comes up with eligible leader replicas (KIP-966) and without: such a controller takes a node that it does not
    know for one that crashed, and elects again whom it had seen as the leader; without any it would never elect one.
    """
    message: dict[str, Any] = {
        "partitionId": partition.number,
        "topicId": topic_id,
        "replicas": [node_id],
        "isr": [node_id],
        "removingReplicas": [],
        "addingReplicas": [],
        "leader": node_id,
        "leaderEpoch": partition.leader_epoch,
        "partitionEpoch": partition.partition_epoch,
    }
    if metadata_version < DIRECTORIES_SINCE:
        return _value("PartitionRecord", 0, message)
    return _value("PartitionRecord", 1, message | {"directories": [partition.directory_id]})


def config_records(topic: str, settings: Mapping[str, str]) -> list[bytes]:
    """The settings of a topic, by name."""
    fields = {"resourceType": TOPIC_RESOURCE, "resourceName": topic}
    return [_value("ConfigRecord", 0, fields | {"name": name, "value": settings[name]}) for name in sorted(settings)]


def producer_ids_record(node_id: int, next_producer_id: int) -> bytes:
    """Producer ids below this one are taken."""
    return _value("ProducerIdsRecord", 0, {"brokerId": node_id, "brokerEpoch": -1, "nextProducerId": next_producer_id})


def _value(name: str, version: int, message: Mapping[str, Any]) -> bytes:
    schema = _BY_NAME[name]
    head = encode_uvarint(METADATA_FRAME_VERSION) + encode_uvarint(schema.number) + encode_uvarint(version)
    return head + encoded(schema, message, version)


def batches(groups: Iterable[list[bytes]], base_offset: int, leader_epoch: int, timestamp: int) -> list[bytearray]:
    """Batches of about 1 MiB from `base_offset` on; what stands in one group goes into one batch, so is read whole."""
    made: list[bytearray] = []
    pending: list[bytes] = []

    def build() -> None:
        nonlocal base_offset
        builder = RecordsBuilder(base_offset, leader_epoch=leader_epoch)
        for value in pending:
            builder.append(timestamp, None, value)
        made.append(builder.build())
        base_offset += len(pending)
        pending.clear()

    for group in groups:
        if pending and sum(map(len, pending)) + sum(map(len, group)) > BATCH_BYTES:
            build()
        pending.extend(group)
    if pending:
        build()
    return made
