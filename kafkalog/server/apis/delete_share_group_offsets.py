"""DeleteShareGroupOffsets (KIP-932): delete the states of topics of a share group without members."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.error_answers import explained_answer
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.settings.features import SHARE

if TYPE_CHECKING:
    from kio.schema.delete_share_group_offsets.v0.request import DeleteShareGroupOffsetsRequest

    from kafkalog.server.node.node import Node

refused = explained_answer


async def handle(node: Node, context: RequestContext, request: DeleteShareGroupOffsetsRequest) -> Answer:
    """Delete the states and return an error code for each topic."""
    node.features.require(SHARE)
    node.authorizer.require(context, Operation.DELETE, ResourceType.GROUP, request.group_id)
    group = await node.groups.share.empty_group(request.group_id)
    deleted: set[UUID] = set()
    rows = []
    for asked in request.topics:
        topic = node.topics.get(asked.topic_name)
        code = ErrorCode.NONE
        if not node.authorizer.allows(context, Operation.READ, ResourceType.TOPIC, asked.topic_name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None or topic.id not in group.topics:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            deleted.add(topic.id)
        rows.append({
            "topic_name": asked.topic_name, "topic_id": None if topic is None or code else topic.id,
            "error_code": int(code), "error_message": code.message,
        })  # fmt: skip
    if deleted:
        await node.groups.share.delete_offsets(request.group_id, frozenset(deleted))
    return {"error_code": 0, "error_message": None, "responses": rows}
