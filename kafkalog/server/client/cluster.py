"""A peer's view of its cluster: nodes, topics, partition leaders and topic settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import UUID

from kafkalog.errors import from_code
from kafkalog.server.client.connection import PeerConnection
from kafkalog.server.client.errors import PeerMisbehaved
from kafkalog.server.error_codes import ErrorCode

if TYPE_CHECKING:
    from kio.schema.metadata.v13.response import MetadataResponsePartition

    class _Topic(Protocol):
        """The fields of every version."""

        name: str
        partitions: tuple[MetadataResponsePartition, ...]

METADATA: Final = 3
DESCRIBE_CONFIGS: Final = 32
_TOPIC: Final = 2
_OF_TOPIC: Final = 1
"""Source of a setting: the topic itself."""
_AT_ONCE: Final = 200
_MOST_PARTITIONS: Final = 1 << 20


class Leader(NamedTuple):
    """A partition's leader, -1 for none, and its epoch, -1 if unknown."""

    node_id: int
    epoch: int


class PeerTopic(NamedTuple):
    """A topic: its id, None if the peer has no ids, and the leader and in-sync replicas of each partition."""

    name: str
    id: UUID | None
    leaders: tuple[Leader, ...]
    is_internal: bool = False
    in_sync: tuple[tuple[int, ...], ...] = ()


class Cluster(NamedTuple):
    """Addresses of nodes by id, and topics by name."""

    cluster_id: str | None
    nodes: Mapping[int, tuple[str, int]]
    topics: Mapping[str, PeerTopic]


def metadata_request(names: Iterable[str] | None, *, may_create: bool = False) -> dict[str, object]:
    """Return a Metadata request for these topics, or all if None; `may_create` lets the peer create missing ones."""
    return {
        "topics": None if names is None else [{"topic_id": None, "name": name} for name in names],
        "allow_auto_topic_creation": may_create, "include_topic_authorized_operations": False,
        "include_cluster_authorized_operations": False,
    }  # fmt: skip


async def read_cluster(connection: PeerConnection, names: Iterable[str] | None = None) -> Cluster:
    """Read the peer's nodes and these topics, or all if None; a topic missing there is left out.

    Raises as `PeerConnection.request`, and the errors of `kafkalog.errors.from_code` for a topic with an error code.
    """
    answer = await connection.request(METADATA, metadata_request(names))
    topics = {}
    for topic in answer.topics:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or topic.name is None:
            continue
        if topic.error_code and topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
            raise from_code(topic.error_code, f"{connection.peer} returned an error for topic {topic.name}")
        topics[topic.name] = _topic(topic, connection.peer)
    nodes = {node.node_id: (node.host, node.port) for node in answer.brokers}
    return Cluster(getattr(answer, "cluster_id", None), nodes, topics)


def _topic(topic: _Topic, peer: str) -> PeerTopic:
    leaders: dict[int, Leader] = {
        one.partition_index: Leader(one.leader_id, getattr(one, "leader_epoch", -1)) for one in topic.partitions
    }
    if sorted(leaders) != list(range(len(leaders))) or len(leaders) > _MOST_PARTITIONS:
        raise PeerMisbehaved(f"the partitions of topic {topic.name!r} are not numbered from 0", peer=peer)
    in_order = tuple(leaders[index] for index in range(len(leaders)))
    in_sync: dict[int, tuple[int, ...]] = {one.partition_index: tuple(one.isr_nodes) for one in topic.partitions}
    return PeerTopic(
        topic.name, getattr(topic, "topic_id", None), in_order, getattr(topic, "is_internal", False),
        tuple(in_sync[index] for index in range(len(leaders))),
    )  # fmt: skip


async def read_topic_settings(connection: PeerConnection, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Read the settings of each topic itself, name to text; a topic that the peer does not describe is left out."""
    found: dict[str, dict[str, str]] = {}
    for start in range(0, len(names), _AT_ONCE):
        chunk = names[start : start + _AT_ONCE]
        resources = [{"resource_type": _TOPIC, "resource_name": name, "configuration_keys": None} for name in chunk]
        tree = {"resources": resources, "include_synonyms": False, "include_documentation": False}
        answer = await connection.request(DESCRIBE_CONFIGS, tree)
        for one in answer.results:
            if one.error_code or one.resource_type != _TOPIC or one.resource_name not in chunk:
                continue
            found[one.resource_name] = {
                config.name: config.value for config in one.configs
                if config.config_source == _OF_TOPIC and config.value is not None
            }  # fmt: skip
    return found
