"""OffsetDelete (KIP-496): delete committed offsets of topics the group no longer reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from kio.schema.offset_delete.v0.request import OffsetDeleteRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: OffsetDeleteRequest) -> Answer:
    """Delete the offsets and return an error code for each partition, or one for all."""
    allows = node.authorizer.allows
    node.authorizer.require(context, Operation.DELETE, ResourceType.GROUP, request.group_id)
    refusals: dict[tuple[str, int], int] = {}
    places: list[tuple[str, int]] = []
    turns = CooperativeYield()
    for row in request.topics:
        topic = node.topics.get(row.name)
        may_read = allows(context, Operation.READ, ResourceType.TOPIC, row.name)
        for one in row.partitions:
            await turns.row()
            place = (row.name, one.partition_index)
            if not may_read:
                refusals[place] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif topic is None or not 0 <= one.partition_index < topic.partitions:
                refusals[place] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                places.append(place)
    code, codes = await node.groups.commits.delete_offsets(request.group_id, places)
    if code:
        raise Refused(code)
    codes |= refusals
    rows = [
        {
            "name": row.name,
            "partitions": [
                {"partition_index": one.partition_index, "error_code": codes[row.name, one.partition_index]}
                for one in row.partitions
            ],
        }
        for row in request.topics
    ]
    return {"error_code": 0, "topics": rows}
