"""BeginQuorumEpoch (KIP-595): a node of the replica set announces that it leads or has new data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.quorum.messages import read_begin, term_answer
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation

if TYPE_CHECKING:
    from kio.schema.begin_quorum_epoch.v1.request import BeginQuorumEpochRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: BeginQuorumEpochRequest) -> Answer:
    """Record the announced leader and return the term and leader that this node now knows."""
    node.authorizer.require_cluster(context, Operation.CLUSTER_ACTION)
    term, leader = read_begin(request)
    node.quorum.cluster.check(request.cluster_id, f"node {leader}")
    state = await node.quorum.learn_leader(term, leader)
    node.quorum.news.set()
    return term_answer(0, state)
