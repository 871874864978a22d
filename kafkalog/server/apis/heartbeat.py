"""Heartbeat: keep a classic group's member alive and report a rebalance to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from kio.schema.heartbeat.v4.request import HeartbeatRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: HeartbeatRequest) -> Answer:
    """Record the heartbeat and return an error code."""
    group_id = request.group_id
    if not node.authorizer.allows(context, Operation.READ, ResourceType.GROUP, group_id):
        return refused(node, context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
    instance_id = getattr(request, "group_instance_id", None)
    code = await node.groups.heartbeat(group_id, request.member_id, instance_id, request.generation_id)
    return refused(node, context, request, code, None)


def refused(node: Node, context: RequestContext, request: object, error_code: int, message: str | None) -> Answer:
    """Return the error code."""
    return {"throttle_time": context.throttle_ms, "error_code": int(error_code)}
