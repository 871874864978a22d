"""AlterShareGroupOffsets (KIP-932): set where a share group without members begins in partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.requests.error_answers import explained_answer
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.settings.features import SHARE

if TYPE_CHECKING:
    from kio.schema.alter_share_group_offsets.v0.request import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsRequestTopic,
    )

    from kafkalog.server.node.node import Node
    from kafkalog.server.node.topics import Topic

refused = explained_answer


async def handle(node: Node, context: RequestContext, request: AlterShareGroupOffsetsRequest) -> Answer:
    """Set the offsets and return an error code for each partition."""
    node.features.require(SHARE)
    node.authorizer.require(context, Operation.READ, ResourceType.GROUP, request.group_id)
    offsets: dict[tuple[Topic, int], int] = {}
    rows: list[dict[str, object]] = []
    turns = CooperativeYield()
    for asked in request.topics:
        topic = node.topics.get(asked.topic_name)
        may_read = node.authorizer.allows(context, Operation.READ, ResourceType.TOPIC, asked.topic_name)
        rows.append(await _topic_row(asked, topic, may_read, turns))
        if topic is not None and may_read:
            for one in asked.partitions:
                await turns.row()
                if 0 <= one.partition_index < topic.partitions:
                    offsets[topic, one.partition_index] = one.start_offset
    await node.groups.share.alter_offsets(request.group_id, offsets)
    return {"error_code": 0, "error_message": None, "responses": rows}


async def _topic_row(
    asked: AlterShareGroupOffsetsRequestTopic, topic: Topic | None, may_read: bool, turns: CooperativeYield
) -> dict[str, object]:
    partitions = []
    for one in asked.partitions:
        await turns.row()
        code = ErrorCode.NONE
        if not may_read:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None or not 0 <= one.partition_index < topic.partitions:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions.append(
            {"partition_index": one.partition_index, "error_code": int(code), "error_message": code.message}
        )
    topic_id = None if topic is None or not may_read else topic.id
    return {"topic_name": asked.topic_name, "topic_id": topic_id, "partitions": partitions}
