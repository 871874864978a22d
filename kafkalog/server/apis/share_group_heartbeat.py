"""ShareGroupHeartbeat (KIP-932): join, stay in or leave a share group, and receive an assignment, in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups.consumer_group import LEFT
from kafkalog.server.groups.consumer_heartbeat import Refused
from kafkalog.server.groups.share_heartbeat import ShareHeartbeat
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.settings.features import SHARE
from kafkalog.server.settings.groups import group_setting

if TYPE_CHECKING:
    from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: ShareGroupHeartbeatRequest) -> Answer:
    """Return the member's epoch, and its assignment if that changed or the member joins or sends its subscription."""
    if not node.features.level(SHARE):
        return refused(node, context, request, ErrorCode.UNSUPPORTED_VERSION, node.features.reason_off(SHARE))
    allows = node.authorizer.allows
    if not allows(context, Operation.READ, ResourceType.GROUP, request.group_id):
        return refused(node, context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
    names = request.subscribed_topic_names
    if not all(allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names or ()):
        return refused(node, context, request, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    event = ShareHeartbeat(
        request.member_id, request.member_epoch, request.rack_id, context.client_id,
        f"/{context.connection.peer_host}", None if names is None or request.member_epoch == LEFT else tuple(names),
    )  # fmt: skip
    try:
        _check(request)
        done = await node.groups.share.heartbeat(request.group_id, event)
    except Refused as error:
        return refused(node, context, request, error.code, error.message) | {"error_message": error.message or None}
    member = done.member
    answer: dict[str, object] = {
        "throttle_time": context.throttle_ms,
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
    if not request.member_id:
        raise Refused(ErrorCode.INVALID_REQUEST, "")
    problem = None
    if not request.group_id:
        problem = "GroupId can't be empty."
    elif request.rack_id == "":
        problem = "RackId can't be empty."
    elif request.member_epoch == 0 and not request.subscribed_topic_names:
        problem = "SubscribedTopicNames must be set in first request."
    elif request.member_epoch < LEFT:
        problem = "MemberEpoch is invalid."
    if problem is not None:
        raise Refused(ErrorCode.INVALID_REQUEST, problem)


def refused(
    node: Node, context: RequestContext, request: object, error_code: int, message: str | None
) -> dict[str, object]:
    """Return the error, without member or assignment."""
    return {
        "throttle_time": context.throttle_ms,
        "error_code": int(error_code),
        "error_message": message or ErrorCode(error_code).message,
        "member_epoch": 0,
        "heartbeat_interval": 0,
    }
