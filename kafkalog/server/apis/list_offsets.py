"""ListOffsets: the offset of a time, of the log's begin and end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import KafkalogError, OffsetNotAvailable
from kafkalog.server.context import Answer, RequestContext
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.append_results import code_for_reader
from kafkalog.server.replica.results import CONSUMER, DEBUGGER
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.types import MAX_TIMESTAMP, Isolation, TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node import Node

FIRST_VERSIONS: Final = {-1: 1, -2: 1, MAX_TIMESTAMP: 7, -4: 8, -5: 9, -6: 11}
"""Times that stand for something -> the version that begins to know them (FLOW-26)."""
_FIRST_WITH_NOT_AVAILABLE: Final = 5


async def handle(node: Node, context: RequestContext, request: Any) -> Answer:
    """The offsets; a partition that fails harms no other."""
    named = Counter((topic.name, one.partition_index) for topic in request.topics for one in topic.partitions)
    topics = []
    for topic in request.topics:
        allowed = node.authorizer.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        rows = []
        for one in topic.partitions:
            if not allowed:
                row = _row(one.partition_index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif named[topic.name, one.partition_index] > 1:
                row = _row(one.partition_index, ErrorCode.INVALID_REQUEST)
            else:
                row = await _offset(node, context, request, TopicPartition(topic.name, one.partition_index), one)
            rows.append(row)
        topics.append({"name": topic.name, "partitions": rows})
    return {"throttle_time": context.throttle_ms, "topics": topics}


def refused(node: Node, context: RequestContext, request: Any, error_code: int, message: str | None) -> Answer:
    """The error for every partition."""
    topics = [
        {"name": topic.name, "partitions": [_row(one.partition_index, error_code) for one in topic.partitions]}
        for topic in request.topics
    ]
    return {"throttle_time": context.throttle_ms, "topics": topics}


async def _offset(
    node: Node, context: RequestContext, request: Any, key: TopicPartition, asked: Any
) -> dict[str, Any]:
    version, timestamp = context.api_version, asked.timestamp
    if timestamp < 0 and version < FIRST_VERSIONS.get(timestamp, version + 1):
        return _row(key.partition, ErrorCode.UNSUPPORTED_VERSION)
    isolation: Isolation | None = None
    if request.replica_id == CONSUMER:
        isolation = "committed" if version >= 2 and request.isolation_level == 1 else "high_watermark"
    epoch = asked.current_leader_epoch if version >= 4 else -1
    only_leader = request.replica_id != DEBUGGER
    try:
        partition = node.replicas.find(key)
        if timestamp >= 0 or timestamp == MAX_TIMESTAMP:  # it reads
            found = await node.run(partition.offset_for_time, timestamp, isolation, epoch, only_leader)
        else:
            found = partition.offset_for_time(timestamp, isolation, epoch, only_leader)
    except OffsetNotAvailable as error:
        known = version >= _FIRST_WITH_NOT_AVAILABLE
        return _row(key.partition, error.code if known else ErrorCode.LEADER_NOT_AVAILABLE)
    except KafkalogError as error:
        return _row(key.partition, code_for_reader(error, key))
    if found is None:
        return _row(key.partition, 0)
    return _row(key.partition, 0, found.timestamp, found.offset, found.leader_epoch)


def _row(index: int, code: int, timestamp: int = -1, offset: int = -1, leader_epoch: int = -1) -> dict[str, Any]:
    return {
        "partition_index": index,
        "error_code": code,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": leader_epoch,
    }
