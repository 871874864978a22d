"""ListPartitionReassignments (KIP-455): always empty, since partitions never move between nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: object) -> Answer:
    """Return no partitions."""
    may_ask = node.authorizer.allows_cluster(context, Operation.DESCRIBE)
    code = ErrorCode.NONE if may_ask else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return refused(node, context, request, code, None if may_ask else code.message)


def refused(node: Node, context: RequestContext, request: object, error_code: int, message: str | None) -> Answer:
    """Return the error and no partition."""
    return {"throttle_time": context.throttle_ms, "error_code": error_code, "error_message": message, "topics": ()}
