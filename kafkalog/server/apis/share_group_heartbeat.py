"""ShareGroupHeartbeat (KIP-932): join, stay in or leave a share group, and receive an assignment, in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.groups.consumer_group import LEFT
from kafkalog.server.groups.share_heartbeat import ShareHeartbeat
from kafkalog.server.requests.acknowledgements import MOST_MEMBER_CHARS
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.error_answers import explained_answer
from kafkalog.server.requests.groups import is_blank
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.settings.features import SHARE
from kafkalog.server.settings.groups import group_setting

if TYPE_CHECKING:
    from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest

    from kafkalog.server.node.node import Node

refused = explained_answer


async def handle(node: Node, context: RequestContext, request: ShareGroupHeartbeatRequest) -> Answer:
    """Return the member's epoch, and its assignment if that changed or the member joins or sends its subscription."""
    node.features.require(SHARE)
    node.authorizer.require(context, Operation.READ, ResourceType.GROUP, request.group_id)
    if not 0 < len(request.member_id) <= MOST_MEMBER_CHARS:
        raise Refused(ErrorCode.INVALID_REQUEST, "")
    names = request.subscribed_topic_names
    for name in names or ():
        node.authorizer.require(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
    event = ShareHeartbeat(
        request.member_id, request.member_epoch, request.rack_id, context.client_id,
        f"/{context.connection.peer_host}", None if names is None or request.member_epoch == LEFT else tuple(names),
    )  # fmt: skip
    _check(request)
    done = await node.groups.share.heartbeat(request.group_id, event)
    member = done.member
    answer: dict[str, object] = {
        "error_code": 0,
        "error_message": None,
        "member_id": request.member_id,
        "member_epoch": LEFT if member is None else member.epoch,
        "heartbeat_interval": 0,
        "assignment": None,
    }
    if member is not None:
        answer["heartbeat_interval"] = group_setting(node, request.group_id, "share.heartbeat.interval.ms")
        if done.sends_assignment:
            assigned = member.assigned.items()
            rows = [{"topic_id": topic_id, "partitions": sorted(numbers)} for topic_id, numbers in assigned]
            answer["assignment"] = {"topic_partitions": rows}
    return answer


def _check(request: ShareGroupHeartbeatRequest) -> None:
    """Raise Refused if the request is invalid for any group."""
    problem = None
    if is_blank(request.member_id):
        problem = "MemberId can't be empty."
    elif is_blank(request.group_id):
        problem = "GroupId can't be empty."
    elif is_blank(request.rack_id):
        problem = "RackId can't be empty."
    elif request.member_epoch == 0 and not request.subscribed_topic_names:
        problem = "SubscribedTopicNames must be set in first request."
    elif request.member_epoch < LEFT:
        problem = "MemberEpoch is invalid."
    if problem is not None:
        raise Refused(ErrorCode.INVALID_REQUEST, problem)
