"""OffsetForLeaderEpoch: the end offset of a leader epoch, for clients that may have another leader's records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.partitions import PartitionCall
from kafkalog.server.security.acls import Operation
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderEpochRequest, OffsetForLeaderPartition

    from kafkalog.server.node.node import Node

_CALL: Final = PartitionCall(
    Operation.DESCRIBE, {"leader_epoch": -1, "end_offset": -1}, "topic", "partition", for_nodes=True
)
refused = _CALL.refused


async def handle(node: Node, context: RequestContext, request: OffsetForLeaderEpochRequest) -> Answer:
    """Return (epoch, end offset) for each partition, -1 for both if unknown."""

    async def end_of(key: TopicPartition, one: OffsetForLeaderPartition) -> dict[str, object]:
        partition = node.replicas.find(key)
        epoch, end = partition.end_offset_for_epoch(one.leader_epoch, one.current_leader_epoch, True)
        return {"leader_epoch": epoch, "end_offset": end}

    return await _CALL.answer(node, context, request, end_of)
