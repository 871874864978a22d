"""Vote (KIP-595, KIP-996): another node of the replica set wants to lead. Its vote is on disk before it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.server.context import Answer, RequestContext
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.quorum.messages import read_ballot, vote_answer
from kafkalog.server.security.acls import Operation

if TYPE_CHECKING:
    from kafkalog.server.node import Node


async def handle(node: Node, context: RequestContext, request: Any) -> Answer:
    """One vote for all partitions, in the row of `__cluster_metadata`; other rows are of what the candidate may copy
    from here."""
    if not node.authorizer.allows_cluster(context, Operation.CLUSTER_ACTION):
        return refused(node, context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    ballot, is_pre_vote = read_ballot(request)
    cluster = node.quorum.cluster
    cluster.check_candidate(request.cluster_id)
    vote = await node.quorum.vote(ballot, is_pre_vote=is_pre_vote)
    if vote.is_granted and not is_pre_vote:
        await cluster.take(request.cluster_id, f"node {ballot.candidate}")
    return vote_answer(vote.is_granted, vote.state, vote.ahead)


def refused(node: Node, context: RequestContext, request: Any, error_code: int, message: str | None) -> Answer:
    """The error for the whole."""
    return {"error_code": error_code, "topics": ()}
