"""AlterPartitionReassignments (KIP-455): success where nothing moves. Every node has a copy of every partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.requests.assignments import GIVEN, nodes_of, replica_problem
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.security.acls import Operation
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kio.schema.alter_partition_reassignments.v1.request import AlterPartitionReassignmentsRequest

    from kafkalog.server.node.node import Node
    from kafkalog.server.node.topics import Topic

Outcome = tuple[ErrorCode, str | None]


async def handle(node: Node, context: RequestContext, request: AlterPartitionReassignmentsRequest) -> Answer:
    """Return an error code and message for each partition."""
    node.authorizer.require_cluster(context, Operation.ALTER, explains=True)
    turns = CooperativeYield()
    rows: list[dict[str, object]] = []
    for one in request.topics:
        topic = node.topics.get(one.name)
        partitions = []
        for row in one.partitions:
            await turns.row()
            nodes = nodes_of_partition(node, one.name, row.partition_index)
            code, message = _outcome(one.name, topic, row.partition_index, row.replicas, nodes)
            partitions.append(
                {"partition_index": row.partition_index, "error_code": code, "error_message": message}
            )
        rows.append({"name": one.name, "partitions": partitions})
    if not rows:
        return _answer(object(), Refused(ErrorCode.NONE, ""), rows)  # a request for nothing gets the defaults
    return _answer(request, Refused(ErrorCode.NONE), rows)


def nodes_of_partition(node: Node, topic: str, index: int) -> Sequence[int]:
    """Return the nodes that have a copy of a partition: all of the replica set, or the worker that has it."""
    return nodes_of(node) if node.workers is None else [node.workers.node_of(TopicPartition(topic, index))]


def _outcome(
    name: str, topic: Topic | None, partition: int, replicas: Sequence[int] | None, nodes: Sequence[int]
) -> Outcome:
    """Return the result of a request for one partition; replicas of None end a move that is in progress."""
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
    if not 0 <= partition < topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{partition}."
    if replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    problem = refusal_of(replicas, nodes)
    return (ErrorCode.NONE, None) if problem is None else (ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def refusal_of(replicas: Sequence[int], nodes: Sequence[int]) -> str | None:
    """Return why the replicas cannot be those of a partition; None if they are all nodes, in any order."""
    problem = replica_problem(nodes, replicas)
    if problem is None and len(replicas) < len(nodes):
        missing = ", ".join(str(one) for one in nodes if one not in replicas)
        return f"{GIVEN} only {len(replicas)} of the {len(nodes)} brokers: every broker has a copy, also {missing}."
    return problem


def refused(
    node: Node, context: RequestContext, request: AlterPartitionReassignmentsRequest, error: Refused
) -> Answer:
    """Return the error at the top level and for each partition."""
    given = {"error_code": error.code, "error_message": error.message}
    rows: list[dict[str, object]] = [
        {"name": one.name, "partitions": [{"partition_index": row.partition_index, **given} for row in one.partitions]}
        for one in request.topics
    ]
    return _answer(object(), error, rows)


def _answer(request: object, error: Refused, rows: list[dict[str, object]]) -> Answer:
    return {
        "error_code": error.code, "error_message": error.message, "responses": rows,
        "allow_replication_factor_change": getattr(request, "allow_replication_factor_change", True),
    }  # fmt: skip
