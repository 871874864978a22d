"""ConsumerGroupHeartbeat (KIP-848): join, stay in or leave a group, and receive an assignment, in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.groups.consumer_group import LEFT, LEFT_FOR_A_WHILE, ConsumerMember
from kafkalog.server.groups.consumer_heartbeat import Heartbeat
from kafkalog.server.groups.values import new_member_id
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.error_answers import explained_answer
from kafkalog.server.requests.groups import is_blank
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.settings.features import GROUP
from kafkalog.server.settings.groups import group_setting

if TYPE_CHECKING:
    from kio.schema.consumer_group_heartbeat.v1.request import TopicPartitions

    from kafkalog.server.node.node import Node

    class _Request(Protocol):
        """The fields of every version; times are in ms."""

        group_id: str
        member_id: str
        member_epoch: int
        instance_id: str | None
        rack_id: str | None
        rebalance_timeout: int
        subscribed_topic_names: tuple[str, ...] | None
        server_assignor: str | None
        topic_partitions: tuple[TopicPartitions, ...] | None


_FIRST_WITH_OWN_ID: Final = 1
refused = explained_answer


async def handle(node: Node, context: RequestContext, request: _Request) -> Answer:
    """Return the member's epoch, and its assignment if that changed or the member joins or sends its full state."""
    if "consumer" not in node.config["group.coordinator.rebalance.protocols"] or not node.features.level(GROUP):
        raise Refused(ErrorCode.UNSUPPORTED_VERSION)
    node.authorizer.require(context, Operation.READ, ResourceType.GROUP, request.group_id)

    def may_see(topic: str) -> bool:
        return node.authorizer.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, topic)

    if not all(map(may_see, request.subscribed_topic_names or ())):
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    _check(node, context, request)
    result = await node.groups.consumer.heartbeat(request.group_id, _event(context, request), may_see)
    is_member = result.member is not None and result.epoch >= 0
    interval_ms = group_setting(node, request.group_id, "consumer.heartbeat.interval.ms")
    return {
        "error_code": 0,
        "error_message": None,
        "member_id": result.member.id if result.member is not None else request.member_id,
        "member_epoch": result.epoch,
        "heartbeat_interval": interval_ms if is_member else 0,
        "assignment": _assignment(result.member) if result.sends_assignment and result.member is not None else None,
    }


def _check(node: Node, context: RequestContext, request: _Request) -> None:
    """Raise Refused if the request is invalid for any group."""
    epoch = request.member_epoch
    problem = None
    if is_blank(request.group_id):
        problem = "GroupId can't be empty."
    elif is_blank(request.member_id) and (context.api_version >= _FIRST_WITH_OWN_ID or epoch > 0 or epoch == LEFT):
        problem = "MemberId can't be empty."
    elif is_blank(request.instance_id):
        problem = "InstanceId can't be empty."
    elif is_blank(request.rack_id):
        problem = "RackId can't be empty."
    elif epoch == 0:
        problem = _join_problem(request)
    elif epoch == LEFT_FOR_A_WHILE and request.instance_id is None:
        problem = "InstanceId can't be null."
    elif epoch < LEFT_FOR_A_WHILE:
        problem = "MemberEpoch is invalid."
    if problem is not None:
        raise Refused(ErrorCode.INVALID_REQUEST, problem)
    known = node.config["group.consumer.assignors"]
    if request.server_assignor is not None and request.server_assignor not in known:
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(known)}.",
        )


def _join_problem(request: _Request) -> str | None:
    if request.rebalance_timeout < 0:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    # an empty list is valid: nothing matches the pattern of a client that looks for topics by itself
    if request.subscribed_topic_names is None and getattr(request, "subscribed_topic_regex", None) is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


def _event(context: RequestContext, request: _Request) -> Heartbeat:
    names = request.subscribed_topic_names
    owned: dict[Any, frozenset[int]] | None = None  # an id of zeros is None, which no member is assigned
    if request.topic_partitions is not None:
        owned = {row.topic_id: frozenset(row.partitions) for row in request.topic_partitions}
    return Heartbeat(
        request.member_id or new_member_id(),
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        context.client_id,
        f"/{context.connection.peer_host}",
        request.rebalance_timeout,
        None if names is None or request.member_epoch == LEFT else tuple(names),
        getattr(request, "subscribed_topic_regex", None),
        request.server_assignor,
        owned,
    )


def _assignment(member: ConsumerMember) -> dict[str, object]:
    rows = [{"topic_id": topic_id, "partitions": sorted(numbers)} for topic_id, numbers in member.assigned.items()]
    return {"topic_partitions": rows}
