"""EndQuorumEpoch (KIP-595): a node of the replica set asks the leader to hand over to it.

In the reference, a resigning leader sends this to its voters. Here the node that an operator chose sends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import KafkalogError
from kafkalog.server.quorum.messages import read_end, term_answer
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation

if TYPE_CHECKING:
    from kio.schema.end_quorum_epoch.v1.request import EndQuorumEpochRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: EndQuorumEpochRequest) -> Answer:
    """Return no error once the sender has all records and the leader awaits its vote request."""
    node.authorizer.require_cluster(context, Operation.CLUSTER_ACTION)
    requested = read_end(request)
    node.quorum.cluster.check(request.cluster_id, f"node {requested[2]}")
    code = 0
    try:
        await node.quorum.handover.hand_over(*requested)
    except KafkalogError as error:
        code = error.code
    return term_answer(code, node.quorum.state)
