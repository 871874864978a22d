"""DescribeTopicPartitions: topics in order of name, in pages (KIP-966)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import InvalidRequest, InvalidTopic
from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.node.topics import INTERNAL, check_name
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.requests.topic_rows import error_row, partition_rows
from kafkalog.server.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest

    from kafkalog.server.node.node import Node
    from kafkalog.server.wire.writer import Tree


async def handle(node: Node, context: RequestContext, request: DescribeTopicPartitionsRequest) -> Answer:
    """Return up to one page of partitions and the cursor of the next page."""
    cursor = request.cursor
    is_all = not request.topics
    if cursor is not None and not is_all and all(topic.name != cursor.topic_name for topic in request.topics):
        text = f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {cursor.topic_name}"
        raise InvalidRequest(text)
    if cursor is not None and cursor.partition_index < 0:
        raise InvalidRequest(f"DescribeTopicPartitionsRequest cursor partition must be valid: {cursor}")
    names = node.topics.names() if is_all else sorted({topic.name for topic in request.topics})
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    denied: list[Tree] = []
    allowed = []
    turns = CooperativeYield()
    for name in names:
        await turns.row()
        if node.authorizer.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
            allowed.append(name)
        elif not is_all:
            denied.append(error_row(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
    remaining = max(min(node.config["max.request.partition.size.limit"], request.response_partition_limit), 1)
    rows: list[Tree] = []
    next_cursor = None
    for name in allowed:
        if remaining <= 0:
            next_cursor = {"topic_name": name, "partition_index": 0}
            break
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        row, count, end = await _row(node, context, name, first, remaining, turns)
        rows.append(row)
        remaining -= count
        if end is not None:
            next_cursor = {"topic_name": name, "partition_index": end}
            break
    return {"topics": [*rows, *denied], "next_cursor": next_cursor}


def refused(node: Node, context: RequestContext, request: DescribeTopicPartitionsRequest, error: Refused) -> Answer:
    """Return the error for each topic."""
    rows = [error_row(error.code, topic.name) for topic in request.topics]
    return {"topics": rows, "next_cursor": None}


async def _row(
    node: Node, context: RequestContext, name: str, first: int, max_partitions: int, turns: CooperativeYield
) -> tuple[Tree, int, int | None]:
    """Return a topic's row, its number of partitions, and the first partition left out, or None if the row has all."""
    await turns.row()
    topic = node.topics.get(name)
    operations = node.authorizer.allowed_operations(context, ResourceType.TOPIC, name)
    if topic is None:
        return {**_unknown_row(name), "topic_authorized_operations": operations}, 0, None
    end = min(first + max_partitions, topic.partitions)
    row = {
        "error_code": ErrorCode.NONE,
        "name": name,
        "topic_id": topic.id,
        "is_internal": topic.is_internal,
        "partitions": await partition_rows(node, topic, range(first, end), turns),
        "topic_authorized_operations": operations,
    }
    return row, max(end - first, 0), end if end < topic.partitions else None


def _unknown_row(name: str) -> Tree:
    try:
        check_name(name)
    except InvalidTopic:
        return error_row(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    return error_row(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, is_internal=name in INTERNAL)
