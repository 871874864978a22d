"""SyncGroup: a member asks for its assignment; the group's leader sends the assignments of all members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups.values import Synced, Syncing
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
        return refused(node, context, request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, None)
    if not node.authorizer.allows(context, Operation.READ, ResourceType.GROUP, request.group_id):
        return refused(node, context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
    event = Syncing(
        request.member_id,
        getattr(request, "group_instance_id", None),
        request.generation_id,
        protocol_type,
        protocol,
        {one.member_id: bytes(one.assignment) for one in request.assignments},
    )
    return _answer(context, await node.groups.sync(request.group_id, event))


def _answer(context: RequestContext, synced: Synced) -> dict[str, object]:
    return {
        "throttle_time": context.throttle_ms,
        "error_code": int(synced.error_code),
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
        "assignment": synced.assignment,
    }


def refused(node: Node, context: RequestContext, request: object, error_code: int, message: str | None) -> Answer:
    """Return the error without an assignment."""
    return _answer(context, Synced(error_code))
