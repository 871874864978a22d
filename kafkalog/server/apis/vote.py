"""Vote (KIP-595, KIP-996): a candidate of the replica set asks for a vote, which is on disk before it is returned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.quorum.messages import read_ballot, vote_answer
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation

if TYPE_CHECKING:
    from kio.schema.vote.v2.request import VoteRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: VoteRequest) -> Answer:
    """Return one vote for all partitions, in the row of `__cluster_metadata`.

    Other rows list the partitions that the candidate may copy from this node."""
    node.authorizer.require_cluster(context, Operation.CLUSTER_ACTION)
    ballot, is_pre_vote = read_ballot(request)
    cluster = node.quorum.cluster
    cluster.check_candidate(request.cluster_id)
    vote = await node.quorum.vote(ballot, is_pre_vote=is_pre_vote)
    if vote.is_granted and not is_pre_vote:
        await cluster.take(request.cluster_id, f"node {ballot.candidate}")
    return vote_answer(vote.is_granted, vote.state, vote.ahead)
