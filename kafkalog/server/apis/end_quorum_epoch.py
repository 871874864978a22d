"""EndQuorumEpoch (KIP-595): a node of the replica set asks the leader to hand over to it.

With the reference a leader that resigns tells its voters; here the one that an operator chose asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.errors import KafkalogError
from kafkalog.server.context import Answer, RequestContext
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.quorum.messages import end_answer, read_end
from kafkalog.server.security.acls import Operation

if TYPE_CHECKING:
    from kafkalog.server.node import Node


async def handle(node: Node, context: RequestContext, request: Any) -> Answer:
    """No error once the one who asks has all records, and the leader waits for its vote."""
    if not node.authorizer.allows_cluster(context, Operation.CLUSTER_ACTION):
        return refused(node, context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    asked = read_end(request)
    node.quorum.cluster.check(request.cluster_id, f"node {asked[2]}")
    code = 0
    try:
        await node.quorum.handover.give(*asked)
    except KafkalogError as error:
        code = error.code
    return end_answer(code, node.quorum.state)


def refused(node: Node, context: RequestContext, request: Any, error_code: int, message: str | None) -> Answer:
    """The error for the whole."""
    return {"error_code": error_code, "topics": ()}
