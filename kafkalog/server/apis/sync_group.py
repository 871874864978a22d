"""SyncGroup: a member asks for its assignment; the group's leader sends the assignments of all members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.groups.values import Syncing
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from kio.schema.sync_group.v5.request import SyncGroupRequest

    from kafkalog.server.node.node import Node

_FIRST_WITH_PROTOCOL: Final = 5


async def handle(node: Node, context: RequestContext, request: SyncGroupRequest) -> Answer:
    """Return the assignment, once the leader has sent it."""
    protocol_type = getattr(request, "protocol_type", None)
    protocol = getattr(request, "protocol_name", None)
    if context.api_version >= _FIRST_WITH_PROTOCOL and (protocol_type is None or protocol is None):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    node.authorizer.require(context, Operation.READ, ResourceType.GROUP, request.group_id)
    event = Syncing(
        request.member_id,
        getattr(request, "group_instance_id", None),
        request.generation_id,
        protocol_type,
        protocol,
        {one.member_id: bytes(one.assignment) for one in request.assignments},
    )
    synced = await node.groups.sync(request.group_id, event)
    return {
        "error_code": synced.error_code,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
        "assignment": synced.assignment,
    }
