"""DeleteRecords: what lies below an offset is given up."""

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
    """The low watermark of each partition (PART-11)."""
    topics = []
    for topic in request.topics:
        allowed = node.authorizer.allows(context, Operation.DELETE, ResourceType.TOPIC, topic.name)
        rows = []
        for one in topic.partitions:
            code, low = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), -1
            if allowed:
                key = TopicPartition(topic.name, one.partition_index)
                try:
                    low = await node.replicas.delete_records(key, one.offset)
                    code = 0
                except KafkalogError as error:
                    code = code_for_reader(error, key)
            rows.append(_row(one.partition_index, code, low))
        topics.append({"name": topic.name, "partitions": rows})
    return {"throttle_time": context.throttle_ms, "topics": topics}


def refused(node: Node, context: RequestContext, request: Any, error_code: int, message: str | None) -> Answer:
    """The error for every partition."""
    topics = [
        {"name": topic.name, "partitions": [_row(one.partition_index, error_code) for one in topic.partitions]}
        for topic in request.topics
    ]
    return {"throttle_time": context.throttle_ms, "topics": topics}


def _row(index: int, code: int, low_watermark: int = -1) -> dict[str, Any]:
    return {"partition_index": index, "error_code": code, "low_watermark": low_watermark}
