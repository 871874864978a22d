"""DescribeQuorum (KIP-595): the replica set's leader, its term, and the number of changes to topics and settings.

A server by itself is a quorum of one node, whose changes are those of its features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.addresses import own_node
from kafkalog.server.quorum.file import QuorumState
from kafkalog.server.quorum.known_nodes import node_rows
from kafkalog.server.quorum.messages import WHOLE, describe_row
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.security.acls import Operation

if TYPE_CHECKING:
    from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest

    from kafkalog.server.node.node import Node
    from kafkalog.server.wire.writer import Tree

_ONLY_TERM: Final = 1
"""Term of a server by itself."""


async def handle(node: Node, context: RequestContext, request: DescribeQuorumRequest) -> Answer:
    """Return a row for `__cluster_metadata`; any other partition is unknown, because it has no quorum."""
    node.authorizer.require_cluster(context, Operation.DESCRIBE)
    turns = CooperativeYield()
    topics: list[Tree] = []
    is_asked = False
    for topic in request.topics:
        rows: list[Tree] = []
        for one in topic.partitions:
            await turns.row()
            if (topic.topic_name, one.partition_index) == WHOLE:
                rows.append(_row(node))
            else:
                rows.append(_unknown(one.partition_index))
        is_asked = is_asked or any(row["error_code"] == 0 for row in rows)
        topics.append({"topic_name": topic.topic_name, "partitions": rows})
    nodes = _nodes(node, context) if is_asked else ()
    return {"error_code": 0, "error_message": "", "topics": topics, "nodes": nodes}


def _row(node: Node) -> Tree:
    quorum = node.quorum
    if quorum.replica_set is not None:
        return describe_row(quorum.state, quorum.metadata.stored_changes, quorum.metadata.ends(quorum.own_set.ids))
    end = node.features.current.epoch
    row = describe_row(QuorumState(_ONLY_TERM, node.node_id), end, {})
    now_ms = node.clock()
    voter = {
        "replica_id": node.node_id, "replica_directory_id": None, "log_end_offset": end,
        "last_fetch_timestamp": now_ms, "last_caught_up_timestamp": now_ms,
    }  # fmt: skip
    return {**row, "current_voters": [voter]}


def _nodes(node: Node, context: RequestContext) -> list[Tree]:
    if node.quorum.replica_set is not None:
        return node_rows(node.quorum.own_set, {**node.quorum.nodes, node.node_id: own_node(node)})
    name = context.connection.listener
    host, port = node.endpoint(name)
    return [{"node_id": node.node_id, "listeners": [{"name": name, "host": host, "port": port}]}]


def _unknown(partition: int) -> dict[str, object]:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {
        "partition_index": partition, "error_code": code, "error_message": code.message, "leader_id": 0,
        "leader_epoch": 0, "high_watermark": 0, "current_voters": (), "observers": (),
    }  # fmt: skip
