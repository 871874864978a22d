"""ElectLeaders (KIP-183, KIP-460): make the receiving node the leader of all partitions.

A single node, or one that already leads, needs no election. In a replica set the node asks the others for votes; an
unclean election needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.quorum.messages import WHOLE
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.server.security.acls import Operation

if TYPE_CHECKING:
    from kio.schema.elect_leaders.v2.request import ElectLeadersRequest

    from kafkalog.server.node.node import Node

_PREFERRED: Final = 0
_UNCLEAN: Final = 1


async def handle(node: Node, context: RequestContext, request: ElectLeadersRequest) -> Answer:
    """Take the lead if necessary; return an error code for each named partition; for all partitions, only topics."""
    node.authorizer.require_cluster(context, Operation.ALTER, explains=True)
    kind = getattr(request, "election_type", _PREFERRED)
    asks_nothing = request.topic_partitions is not None and not request.topic_partitions
    if kind not in (_PREFERRED, _UNCLEAN) and not asks_nothing:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}")
    was_leader = node.quorum.leads
    if not was_leader:
        await node.quorum.promote(is_forced=kind == _UNCLEAN)
    turns = CooperativeYield()
    rows: list[dict[str, object]] = []
    if request.topic_partitions is None:
        rows = [{"topic": name, "partition_result": ()} for name in node.topics.names()]
    for row in request.topic_partitions or ():
        results = []
        for number in row.partitions:
            await turns.row()
            results.append(_result(node, row.topic, number, was_leader))
        rows.append({"topic": row.topic, "partition_result": results})
    return {"error_code": ErrorCode.NONE, "replica_election_results": rows}


def _result(node: Node, name: str, number: int, was_leader: bool) -> dict[str, object]:
    topic = node.topics.get(name)
    code, message = ErrorCode.NONE, None
    if was_leader:
        code, message = ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    if node.quorum.replica_set is not None and (name, number) == WHOLE:
        pass  # `kafkalog promote` names the metadata partition to get the error
    elif topic is None:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
    elif not 0 <= number < topic.partitions:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}"
    return {"partition_id": number, "error_code": code, "error_message": message}


def refused(node: Node, context: RequestContext, request: ElectLeadersRequest, error: Refused) -> Answer:
    """Return one code for all; version 0 has it at each partition."""
    rows = [
        {
            "topic": row.topic,
            "partition_result": [
                {"partition_id": number, "error_code": error.code, "error_message": error.message}
                for number in row.partitions
            ],
        }
        for row in request.topic_partitions or ()
    ]  # fmt: skip
    return {"error_code": error.code, "replica_election_results": rows}
