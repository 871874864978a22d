"""A topic and its partitions as Metadata and DescribeTopicPartitions show them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafkalog.errors import KafkalogError
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.security.acls import NOT_ASKED
from kafkalog.server.topics import Topic
from kafkalog.server.turns import Turns

if TYPE_CHECKING:
    from kafkalog.server.node import Node
    from kafkalog.server.wire.writer import Tree


async def topic_row(node: Node, topic: Topic, turns: Turns) -> dict[str, Any]:
    """A topic with all its partitions."""
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.is_internal,
        "partitions": await partition_rows(node, topic, range(topic.partitions), turns),
        "topic_authorized_operations": NOT_ASKED,
    }


def error_row(error_code: int, name: str | None, topic_id: UUID | None = None, *, is_internal: bool = False) -> Tree:
    """A topic that is not shown, and why."""
    return {
        "error_code": error_code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": is_internal,
        "partitions": (),
        "topic_authorized_operations": NOT_ASKED,
    }


async def partition_rows(node: Node, topic: Topic, numbers: Iterable[int], turns: Turns) -> list[Tree]:
    """Some partitions of a topic. One in a directory that is offline has no leader: its only copy is out of reach."""
    me = (node.node_id,)
    rows: list[Tree] = []
    for number in numbers:
        await turns.row()
        epoch, is_there = 0, True
        try:
            epoch = node.replicas.partition(topic.name, number).leader_epoch
        except KafkalogError:
            is_there = False
        rows.append(
            {
                "error_code": ErrorCode.NONE if is_there else ErrorCode.LEADER_NOT_AVAILABLE,
                "partition_index": number,
                "leader_id": node.node_id if is_there else -1,
                "leader_epoch": epoch,
                "replica_nodes": me,
                "isr_nodes": me,
                "eligible_leader_replicas": (),
                "last_known_elr": (),
                "offline_replicas": () if is_there else me,
            }
        )
    return rows
