"""OffsetForLeaderEpoch: where an epoch of leadership ended, for one who may have records of another leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.errors import KafkalogError
from kafkalog.server.context import Answer, RequestContext
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.append_results import code_for_reader
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node import Node


async def handle(node: Node, context: RequestContext, request: Any) -> Answer:
    """(epoch, end offset) for each partition, -1 for both where none is known."""
    topics = []
    for topic in request.topics:
        allowed = node.authorizer.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        rows = []
        for one in topic.partitions:
            key = TopicPartition(topic.topic, one.partition)
            code, epoch, end = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), -1, -1
            if allowed:
                try:
                    partition = node.replicas.find(key)
                    epoch, end = partition.end_offset_for_epoch(one.leader_epoch, one.current_leader_epoch, True)
                    code = 0
                except KafkalogError as error:
                    code = code_for_reader(error, key)
            rows.append(_row(one.partition, code, epoch, end))
        topics.append({"topic": topic.topic, "partitions": rows})
    return {"throttle_time": context.throttle_ms, "topics": topics}


def refused(node: Node, context: RequestContext, request: Any, error_code: int, message: str | None) -> Answer:
    """The error for every partition."""
    topics = [
        {"topic": topic.topic, "partitions": [_row(one.partition, error_code) for one in topic.partitions]}
        for topic in request.topics
    ]
    return {"throttle_time": context.throttle_ms, "topics": topics}


def _row(index: int, code: int, epoch: int = -1, end: int = -1) -> dict[str, Any]:
    return {"partition": index, "error_code": code, "leader_epoch": epoch, "end_offset": end}
