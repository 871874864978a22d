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
    node.authorizer.require_cluster(context, Operation.DESCRIBE, explains=True)
    return {"error_code": ErrorCode.NONE, "error_message": None, "topics": ()}
