"""Metadata records that add topics to a broker, and their batches (format.md section 13)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kafkalog._core.bytes.varint import encode_uvarint
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
    """A partition to add: its number, its epochs, and the id of its data directory."""

    number: int
    leader_epoch: int
    partition_epoch: int
    directory_id: str


def topic_record(name: str, topic_id: str) -> bytes:
    """Return the record of a topic and its id."""
    return _value("TopicRecord", 0, {"name": name, "topicId": topic_id})


def partition_record(topic_id: str, partition: NewPartition, node_id: int, metadata_version: int) -> bytes:
    """Return the record of a partition whose one replica is on the node, in sync and its leader, as after its crash.

    So it becomes available with eligible leader replicas (KIP-966) and without. Such a controller takes an unknown node
    for one that crashed, and elects the previous leader again; without a leader it would never elect one.
    """
    message: dict[str, object] = {
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
    """Return the records of a topic's settings, by name."""
    fields = {"resourceType": TOPIC_RESOURCE, "resourceName": topic}
    return [_value("ConfigRecord", 0, fields | {"name": name, "value": settings[name]}) for name in sorted(settings)]


def producer_ids_record(node_id: int, next_producer_id: int) -> bytes:
    """Return the record that reserves producer ids below this one."""
    return _value("ProducerIdsRecord", 0, {"brokerId": node_id, "brokerEpoch": -1, "nextProducerId": next_producer_id})


def _value(name: str, version: int, message: Mapping[str, object]) -> bytes:
    schema = _BY_NAME[name]
    head = encode_uvarint(METADATA_FRAME_VERSION) + encode_uvarint(schema.number) + encode_uvarint(version)
    return head + encoded(schema, message, version)


def batches(groups: Iterable[list[bytes]], base_offset: int, leader_epoch: int, timestamp: int) -> list[bytearray]:
    """Return batches of about 1 MiB from `base_offset` on; each group is in one batch, so that it is read completely.
    """
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
