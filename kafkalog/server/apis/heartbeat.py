"""Heartbeat: keep a classic group's member alive and report a rebalance to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from kio.schema.heartbeat.v4.request import HeartbeatRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: HeartbeatRequest) -> Answer:
    """Record the heartbeat and return an error code."""
    node.authorizer.require(context, Operation.READ, ResourceType.GROUP, request.group_id)
    instance_id = getattr(request, "group_instance_id", None)
    code = await node.groups.heartbeat(request.group_id, request.member_id, instance_id, request.generation_id)
    return {"error_code": code}
