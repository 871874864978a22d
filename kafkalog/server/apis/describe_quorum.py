"""DescribeQuorum (KIP-595): the replica set's leader, its term, and the number of changes to topics and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.addresses import own_node
from kafkalog.server.quorum.known_nodes import node_rows
from kafkalog.server.quorum.messages import WHOLE, describe_row
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.security.acls import Operation

if TYPE_CHECKING:
    from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: DescribeQuorumRequest) -> Answer:
    """Return a row for `__cluster_metadata`; any other partition is unknown, because it has no quorum."""
    if not node.authorizer.allows_cluster(context, Operation.DESCRIBE):
        return refused(node, context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    quorum = node.quorum
    turns = CooperativeYield()
    topics = []
    for topic in request.topics:
        rows = []
        for one in topic.partitions:
            await turns.row()
            if (topic.topic_name, one.partition_index) == WHOLE:
                version = quorum.metadata
                ends = version.ends(quorum.own_set.ids)
                rows.append(describe_row(quorum.state, version.stored_changes, ends))
            else:
                rows.append(_unknown(one.partition_index))
        topics.append({"topic_name": topic.topic_name, "partitions": rows})
    nodes = node_rows(quorum.own_set, {**quorum.nodes, node.node_id: own_node(node)})
    return {"error_code": 0, "error_message": None, "topics": topics, "nodes": nodes}


def _unknown(partition: int) -> dict[str, object]:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {
        "partition_index": partition, "error_code": code, "error_message": code.message, "leader_id": -1,
        "leader_epoch": -1, "high_watermark": -1, "current_voters": (), "observers": (),
    }  # fmt: skip


def refused(node: Node, context: RequestContext, request: object, error_code: int, message: str | None) -> Answer:
    """Return the error at the top level."""
    return {"error_code": error_code, "error_message": message, "topics": (), "nodes": ()}
