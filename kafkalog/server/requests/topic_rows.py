"""Rows of topics and partitions for Metadata and DescribeTopicPartitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.topics import Topic
from kafkalog.server.replica.roles import Role
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.server.wire.writer import Tree


async def topic_row(node: Node, topic: Topic, turns: CooperativeYield) -> dict[str, object]:
    """Return the row of a topic with all its partitions."""
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.is_internal,
        "partitions": await partition_rows(node, topic, range(topic.partitions), turns),
    }


def error_row(error_code: int, name: str | None, topic_id: UUID | None = None, *, is_internal: bool = False) -> Tree:
    """Return the row of a topic with an error code instead of partitions."""
    return {
        "error_code": error_code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": is_internal,
        "partitions": (),
    }


async def partition_rows(node: Node, topic: Topic, numbers: Iterable[int], turns: CooperativeYield) -> list[Tree]:
    """Return the rows of some partitions. One in an offline directory has no leader: its copy is not available."""
    own = (node.node_id,)
    rows: list[Tree] = []
    for number in numbers:
        await turns.row()
        is_available = True
        elsewhere = None if node.workers is None else node.workers.leader_of(TopicPartition(topic.name, number))
        if elsewhere is not None:
            rows.append(_row_elsewhere(number, *elsewhere))
            continue
        try:
            role = node.replicas.partition(topic.name, number).role
        except KafkalogError:
            is_available, role = False, Role(-1, 0, 0, own, own)
        rows.append(_row(number, role, () if is_available else own))
    return rows


def _row_elsewhere(number: int, worker: int, epoch: int, is_available: bool) -> Tree:
    """Return the row of a partition of another worker, which leads it while it runs."""
    role = Role(worker if is_available else -1, epoch, 0, (worker,), (worker,))
    return _row(number, role, () if is_available else (worker,))


def _row(number: int, role: Role, offline: tuple[int, ...]) -> Tree:
    # the leader first: clients take the first replica for the preferred leader, and any node may be one here
    replicas = sorted(role.replicas, key=lambda node_id: node_id != role.leader)
    return {
        "error_code": ErrorCode.NONE if role.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
        "partition_index": number,
        "leader_id": role.leader,
        "leader_epoch": role.leader_epoch,
        "replica_nodes": replicas,
        "isr_nodes": role.isr,
        "eligible_leader_replicas": (),
        "last_known_elr": (),
        "offline_replicas": offline,
    }
