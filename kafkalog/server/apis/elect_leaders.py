"""ElectLeaders (KIP-183, KIP-460): the node that is asked is to lead all partitions.

Alone, or where it leads already, there is nothing to elect. In a replica set it asks the others for their votes; an
unclean election needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalog.server.context import Answer, RequestContext
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.quorum.messages import WHOLE
from kafkalog.server.security.acls import Operation
from kafkalog.server.turns import Turns

if TYPE_CHECKING:
    from kafkalog.server.node import Node

_PREFERRED: Final = 0
_UNCLEAN: Final = 1


async def handle(node: Node, context: RequestContext, request: Any) -> Answer:
    """An error code for each partition that was named; none where all were meant."""
    if not node.authorizer.allows_cluster(context, Operation.ALTER):
        return refused(node, context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    if getattr(request, "election_type", _PREFERRED) not in (_PREFERRED, _UNCLEAN):
        return refused(node, context, request, ErrorCode.INVALID_REQUEST, None)
    was_led_here = node.quorum.leads
    if not was_led_here:
        await node.quorum.promote(is_forced=getattr(request, "election_type", _PREFERRED) == _UNCLEAN)
    turns = Turns()
    rows = []
    for row in request.topic_partitions or ():
        results = []
        for number in dict.fromkeys(row.partitions):
            await turns.row()
            results.append(_result(node, row.topic, number, was_led_here))
        rows.append({"topic": row.topic, "partition_result": results})
    return {"throttle_time": context.throttle_ms, "error_code": ErrorCode.NONE, "replica_election_results": rows}


def _result(node: Node, name: str, number: int, was_led_here: bool) -> dict[str, Any]:
    topic = node.topics.get(name)
    code, message = ErrorCode.NONE, None
    if was_led_here:
        code, message = ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    if node.quorum.replica_set is not None and (name, number) == WHOLE:
        pass  # the whole, as `kafkalog promote` names it, to be told why it cannot be
    elif topic is None:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
    elif not 0 <= number < topic.partitions:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}"
    return {"partition_id": number, "error_code": code, "error_message": message}


def refused(node: Node, context: RequestContext, request: Any, error_code: int, message: str | None) -> Answer:
    """One code for all; version 0 has it at each partition."""
    rows = [
        {
            "topic": row.topic,
            "partition_result": [
                {"partition_id": number, "error_code": error_code, "error_message": message}
                for number in row.partitions
            ],
        }
        for row in request.topic_partitions or ()
    ]  # fmt: skip
    return {"throttle_time": context.throttle_ms, "error_code": error_code, "replica_election_results": rows}
