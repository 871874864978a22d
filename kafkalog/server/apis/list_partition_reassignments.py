"""ListPartitionReassignments (KIP-455): always empty, since partitions never move between nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation

if TYPE_CHECKING:
    from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: object) -> Answer:
    """Return no partitions."""
    node.authorizer.require_cluster(context, Operation.DESCRIBE, explains=True)
    return {"error_code": ErrorCode.NONE, "error_message": None, "topics": ()}


def refused(
    node: Node, context: RequestContext, request: ListPartitionReassignmentsRequest, error: Refused
) -> Answer:
    """Return the error, and the partitions that were asked for, without replicas."""
    none: dict[str, object] = dict.fromkeys(("replicas", "adding_replicas", "removing_replicas"), ())
    topics = [
        {"name": one.name, "partitions": [{"partition_index": index, **none} for index in one.partition_indexes]}
        for one in request.topics or ()
    ]
    return {"error_code": error.code, "error_message": error.message, "topics": topics}
