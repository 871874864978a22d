"""ListOffsets: find offsets by timestamp, and the log's start and end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kafkalog.errors import OffsetNotAvailable
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.pool import read_with
from kafkalog.server.replica.results import CONSUMER, DEBUGGER
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.partitions import PartitionCall
from kafkalog.server.security.acls import Operation
from kafkalog.types import MAX_TIMESTAMP, Isolation, TopicPartition

if TYPE_CHECKING:
    from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest

    from kafkalog.server.node.node import Node

FIRST_VERSIONS: Final = {-1: 1, -2: 1, MAX_TIMESTAMP: 7, -4: 8, -5: 9, -6: 11}
"""Special timestamps -> the first version that supports them (FLOW-26)."""
_FIRST_WITH_NOT_AVAILABLE: Final = 5
_CALL: Final = PartitionCall(Operation.DESCRIBE, {"timestamp": -1, "offset": -1, "leader_epoch": -1})
refused = _CALL.refused


async def handle(node: Node, context: RequestContext, request: ListOffsetsRequest) -> Answer:
    """Return the offset or an error for each partition independently."""
    counts: Counter[tuple[str, int]] = Counter(
        (topic.name, one.partition_index) for topic in request.topics for one in topic.partitions
    )

    async def offset_of(key: TopicPartition, one: ListOffsetsPartition) -> dict[str, object]:
        if counts[key] > 1:
            return {"error_code": int(ErrorCode.INVALID_REQUEST)}
        return await _offset(node, context, request, key, one)

    return await _CALL.answer(node, context, request, offset_of)


async def _offset(
    node: Node, context: RequestContext, request: ListOffsetsRequest, key: TopicPartition, row: ListOffsetsPartition
) -> dict[str, object]:
    version, timestamp = context.api_version, row.timestamp
    if timestamp < 0 and version < FIRST_VERSIONS.get(timestamp, version + 1):
        return {"error_code": int(ErrorCode.UNSUPPORTED_VERSION)}
    isolation: Isolation | None = None
    if request.replica_id == CONSUMER:
        isolation = "committed" if version >= 2 and request.isolation_level == 1 else "high_watermark"
    epoch = row.current_leader_epoch if version >= 4 else -1
    only_leader = request.replica_id != DEBUGGER
    try:
        partition = node.replicas.find(key)
        if timestamp >= 0 or timestamp == MAX_TIMESTAMP:  # may read and decompress many batches
            found = await node.run(partition.offset_for_time, timestamp, isolation, epoch, only_leader)
        else:
            found = await read_with(node.run, partition.offset_for_time, timestamp, isolation, epoch, only_leader)
    except OffsetNotAvailable:
        if version < _FIRST_WITH_NOT_AVAILABLE:
            return {"error_code": int(ErrorCode.LEADER_NOT_AVAILABLE)}
        raise
    if found is None:
        return {}
    return {"timestamp": found.timestamp, "offset": found.offset, "leader_epoch": found.leader_epoch}
