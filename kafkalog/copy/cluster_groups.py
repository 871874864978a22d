"""Offsets of consumer groups in a cluster: read and committed through their coordinators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafkalog.copy.cluster_client import LIST_GROUPS, OFFSET_COMMIT, OFFSET_FETCH, ClusterClient, check
from kafkalog.server.client.connection import PeerConnection
from kafkalog.server.error_codes import ErrorCode
from kafkalog.types import TopicPartition

_GROUP_TYPES: Final = frozenset({"", "classic", "consumer"})
_FIRST_WITH_GROUPS: Final = 8
_LAST_WITH_NAMES: Final = 9
_IN_USE: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})


class Committed(NamedTuple):
    """An offset committed for a partition, with its metadata text."""

    offset: int
    metadata: str = ""


async def list_groups(client: ClusterClient) -> list[str]:
    """Return the consumer groups of all brokers."""

    async def once() -> set[str]:
        await client.try_read([])  # a retry asks the remaining brokers
        found: set[str] = set()
        for address in client.nodes.values():
            found |= set(await _groups_of(client, address))
        return found

    return sorted(await client.retried(once))


async def _groups_of(client: ClusterClient, address: tuple[str, int]) -> list[str]:
    answer = await (await client.connection(address)).request(LIST_GROUPS, {})
    check(answer.error_code, f"{client.name} does not list its groups")
    return [
        one.group_id for one in answer.groups
        if one.protocol_type in ("", "consumer") and getattr(one, "group_type", "").lower() in _GROUP_TYPES
    ]  # fmt: skip


async def read_offsets(
    client: ClusterClient, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Committed]:
    """Return the offsets that a group committed for these partitions, if any."""
    wanted = list(partitions)
    by_topic: dict[str, list[int]] = {}
    for key in wanted:
        by_topic.setdefault(key.topic, []).append(key.partition)
    topics = [{"name": name, "partition_indexes": numbers} for name, numbers in by_topic.items()]

    async def call(connection: PeerConnection) -> dict[TopicPartition, Committed]:
        version = connection.version_of(OFFSET_FETCH, _LAST_WITH_NAMES)
        tree = {
            "group_id": group, "topics": topics, "require_stable": True,
            "groups": [{"group_id": group, "topics": topics}],
        }  # fmt: skip
        answer = await connection.request(OFFSET_FETCH, tree, version=version)
        own: Any = answer.groups[0] if version >= _FIRST_WITH_GROUPS else answer
        check(getattr(own, "error_code", 0), f"{client.name} does not give the offsets of group {ascii(group)}")
        found = {}
        for topic in own.topics:
            for one in topic.partitions:
                key = TopicPartition(topic.name, one.partition_index)
                check(one.error_code, f"{client.name} does not give the offset of group {ascii(group)} for {key}")
                if one.committed_offset >= 0:
                    found[key] = Committed(one.committed_offset, one.metadata or "")
        return found

    return await client.ask_coordinator(group, call)


async def commit_offsets(client: ClusterClient, group: str, offsets: Mapping[TopicPartition, Committed]) -> bool:
    """Commit offsets of a group that has no members; return False if it has some, and nothing was committed.

    Unauthorized and other typed errors of the coordinator; PeerError.
    """
    by_topic: dict[str, list[dict[str, object]]] = {}
    for key, one in offsets.items():
        row = {"partition_index": key.partition, "committed_offset": one.offset, "committed_metadata": one.metadata}
        by_topic.setdefault(key.topic, []).append(row)
    tree = {
        "group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "retention_time": -1,
        "topics": [{"name": name, "partitions": rows} for name, rows in by_topic.items()],
    }  # fmt: skip

    async def call(connection: PeerConnection) -> bool:
        version = connection.version_of(OFFSET_COMMIT, _LAST_WITH_NAMES)
        answer = await connection.request(OFFSET_COMMIT, tree, version=version)
        codes = [(topic.name, one) for topic in answer.topics for one in topic.partitions]
        if any(one.error_code in _IN_USE for _, one in codes):
            return False
        for topic, one in codes:
            where = f"{topic}-{one.partition_index}"
            check(one.error_code, f"{client.name} refuses the offset of group {ascii(group)} for {where}")
        return True

    return await client.ask_coordinator(group, call)


def keys_of(topics: Mapping[str, int] | Sequence[tuple[str, int]]) -> list[TopicPartition]:
    """Return all partitions of topics with these numbers of partitions."""
    pairs = topics.items() if isinstance(topics, Mapping) else topics
    return [TopicPartition(name, number) for name, count in pairs for number in range(count)]
