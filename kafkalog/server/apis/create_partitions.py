"""CreatePartitions: add partitions to existing topics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kafkalog.errors import InvalidReplicaAssignment, KafkalogError
from kafkalog.server.error_codes import ErrorCode, Refused, code_of
from kafkalog.server.requests.assignments import check_may_assign, check_replica_list, nodes_of
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic

    from kafkalog.server.node.node import Node
    from kafkalog.server.wire.writer import Tree

_STRICT_FROM: Final = 3
"""First version that rejects a client over its quota; in earlier versions the client is throttled."""


async def handle(node: Node, context: RequestContext, request: CreatePartitionsRequest) -> Answer:
    """Add the partitions, one topic after the other, and return a result for each topic."""
    counts = Counter(topic.name for topic in request.topics)
    rows: list[Tree] = []
    turns = CooperativeYield()
    for topic in {topic.name: topic for topic in request.topics}.values():
        await turns.row()
        if counts[topic.name] > 1:
            rows.append(_row(topic.name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        elif not node.authorizer.allows(context, Operation.ALTER, ResourceType.TOPIC, topic.name):
            rows.append(_row(topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None))
        else:
            rows.append(await _add_partitions(node, context, topic, request.validate_only))
    return {"results": rows}


def refused(node: Node, context: RequestContext, request: CreatePartitionsRequest, error: Refused) -> Answer:
    """Return the error for each topic."""
    names = dict.fromkeys(topic.name for topic in request.topics)
    return {"results": [_row(name, error.code, error.message) for name in names]}


async def _add_partitions(
    node: Node, context: RequestContext, requested: CreatePartitionsTopic, validate_only: bool
) -> Tree:
    try:
        added = requested.count - node.topics.check_growth(requested.name, requested.count).partitions
        if requested.assignments is not None:
            check_may_assign(node)
            if len(requested.assignments) != added:
                raise InvalidReplicaAssignment(
                    f"Attempted to add {added} additional partition(s), but only {len(requested.assignments)} "
                    "assignment(s) were specified."
                )
            for assignment in requested.assignments:
                check_replica_list(nodes_of(node), assignment.broker_ids)
        if not validate_only:
            node.quotas.record_mutations(context, added, is_strict=context.api_version >= _STRICT_FROM)
            await node.topics.add_partitions(requested.name, requested.count)
    except KafkalogError as error:
        return _row(requested.name, code_of(error), error.message or None)
    return _row(requested.name, ErrorCode.NONE, None)


def _row(name: str, error_code: int, message: str | None) -> Tree:
    return {"name": name, "error_code": error_code, "error_message": message}
