"""ListPartitionReassignments (KIP-455): no partition ever moves from one node to another here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.server.context import Answer, RequestContext
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.security.acls import Operation

if TYPE_CHECKING:
    from kafkalog.server.node import Node


async def handle(node: Node, context: RequestContext, request: Any) -> Answer:
    """No partition, whichever were asked for."""
    may_ask = node.authorizer.allows_cluster(context, Operation.DESCRIBE)
    code = ErrorCode.NONE if may_ask else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return refused(node, context, request, code, None if may_ask else code.message)


def refused(node: Node, context: RequestContext, request: Any, error_code: int, message: str | None) -> Answer:
    """The error, and no partition."""
    return {"throttle_time": context.throttle_ms, "error_code": error_code, "error_message": message, "topics": ()}
