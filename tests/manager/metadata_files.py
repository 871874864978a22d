"""A data directory as a broker leaves it, as far as its metadata goes: topics, settings, replicas."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kafkalog.manager.cluster_metadata import METADATA_DIRECTORY
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.encoder import encoded
from kafkalog.records.schemas.metadata import RECORDS
from tests.builder import uvarint

SCHEMAS = {schema.name: schema for schema in RECORDS.values()}
ID = "Er3uhoIpQAyT3-6BGQRyUA"
TOPIC, BROKER = 2, 4


def metadata_value(kind: str, **fields: Any) -> bytes:
    """A metadata record's bytes, in its lowest version."""
    schema = SCHEMAS[kind]
    return b"\x01" + uvarint(schema.number) + uvarint(schema.lowest) + encoded(schema, fields, schema.lowest)


def write_metadata(directory: Path, values: Sequence[bytes]) -> None:
    """`__cluster_metadata-0` with one segment of these records."""
    builder = RecordsBuilder(0)
    for value in values:
        builder.append(1, None, value)
    path = directory / METADATA_DIRECTORY
    path.mkdir(parents=True, exist_ok=True)
    (path / f"{0:020d}.log").write_bytes(builder.build())


def topic_values(
    name: str, settings: Mapping[str, str], *, topic_id: str = ID, replicas: int = 1, count: int = 1
) -> list[bytes]:
    """The records of a topic with so many partitions."""
    brokers = list(range(1, replicas + 1))
    partition = {
        "topicId": topic_id, "replicas": brokers, "isr": brokers, "removingReplicas": [],
        "addingReplicas": [], "leader": 1, "leaderEpoch": 0, "partitionEpoch": 0,
    }  # fmt: skip
    return [
        metadata_value("TopicRecord", name=name, topicId=topic_id),
        *(metadata_value("PartitionRecord", partitionId=number, **partition) for number in range(count)),
        *(setting(TOPIC, name, key, value) for key, value in settings.items()),
    ]


def setting(kind: int, name: str, key: str, value: str | None) -> bytes:
    """A setting of a topic or a broker."""
    return metadata_value("ConfigRecord", resourceType=kind, resourceName=name, name=key, value=value)
