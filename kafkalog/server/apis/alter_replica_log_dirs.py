"""AlterReplicaLogDirs (KIP-113): move partitions to other data directories of the node that receives the request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import Refused
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.security.acls import Operation
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDirsRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: AlterReplicaLogDirsRequest) -> Answer:
    """Begin the moves and return an error code for each partition; DescribeLogDirs shows how far they are."""
    node.authorizer.require_cluster(context, Operation.ALTER)
    turns = CooperativeYield()
    codes: dict[TopicPartition, int] = {}
    for key, path in _targets(request).items():
        await turns.row()
        codes[key] = int(await node.moves.move(key, path))
    return _answer(codes)


def refused(node: Node, context: RequestContext, request: AlterReplicaLogDirsRequest, error: Refused) -> Answer:
    """Return the same error code for each partition."""
    return _answer(dict.fromkeys(_targets(request), error.code))


def _targets(request: AlterReplicaLogDirsRequest) -> dict[TopicPartition, str]:
    """Return the path for each partition; of several the last."""
    return {
        TopicPartition(topic.name, number): one.path
        for one in request.dirs
        for topic in one.topics
        for number in topic.partitions
    }


def _answer(codes: dict[TopicPartition, int]) -> Answer:
    by_topic: dict[str, list[dict[str, object]]] = {}
    for key, code in codes.items():
        by_topic.setdefault(key.topic, []).append({"partition_index": key.partition, "error_code": code})
    results = [{"topic_name": name, "partitions": rows} for name, rows in by_topic.items()]
    return {"results": results}
