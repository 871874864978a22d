"""ConsumerGroupDescribe (KIP-848): a group's epochs and members, with their current and target assignments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups.consumer_group import NO_PARTITIONS, ConsumerGroup, ConsumerMember
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.groups import Row, describe_groups
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.settings.features import GROUP

if TYPE_CHECKING:
    from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest

    from kafkalog.server.groups.group_table import Group
    from kafkalog.server.node.node import Node

_CLASSIC, _CONSUMER = 0, 1
DENIED: Final = "The described group uses topics that the client is not authorized to describe."
"""Error message of groups with topics that the client may not see."""


async def handle(node: Node, context: RequestContext, request: ConsumerGroupDescribeRequest) -> Answer:
    """Return a row for each requested group."""
    if not node.features.level(GROUP):
        return refused(node, context, request, ErrorCode.UNSUPPORTED_VERSION, None)
    wants_operations = request.include_authorized_operations

    def row_of(group_id: str, group: Group | None) -> Row:
        return _describe(node, context, group_id, group)

    return await describe_groups(
        node, context, request.group_ids, _row, row_of, lambda row: wants_operations and not row["error_code"]
    )


def _describe(node: Node, context: RequestContext, group_id: str, group: Group | None) -> Row:
    if not isinstance(group, ConsumerGroup):
        reason = "not found" if group is None else "is not a consumer group"
        return _row(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")
    allows = node.authorizer.allows
    if not all(allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in group.subscribed_topics()):
        return _row(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, DENIED)
    return _row(group_id, 0) | {
        "group_state": str(group.state),
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": node.config["group.consumer.assignors"][0],
        "members": [_member(node, group, one) for one in group.members.values()],
    }


def _member(node: Node, group: ConsumerGroup, one: ConsumerMember) -> dict[str, object]:
    return {
        "member_id": one.id,
        "instance_id": one.instance_id,
        "rack_id": one.rack_id,
        "member_epoch": one.epoch,
        "client_id": one.client_id,
        "client_host": one.client_host,
        "subscribed_topic_names": sorted(one.topics),
        "subscribed_topic_regex": one.regex or "",
        "assignment": assignment_tree(node, one.held),  # as in a broker, with what it must still revoke
        "target_assignment": assignment_tree(node, group.targets.get(one.id, NO_PARTITIONS)),
        "member_type": _CLASSIC if one.is_classic else _CONSUMER,
    }


def assignment_tree(node: Node, partitions: Mapping[UUID, frozenset[int]]) -> dict[str, object]:
    """Return an assignment in the form used in responses, without deleted topics."""
    topics = ((node.topics.by_id(topic_id), numbers) for topic_id, numbers in partitions.items())
    return {
        "topic_partitions": [
            {"topic_id": topic.id, "topic_name": topic.name, "partitions": sorted(numbers)}
            for topic, numbers in topics
            if topic is not None
        ]
    }


def _row(group_id: str, code: int, message: str | None = None) -> Row:
    return {
        "error_code": int(code),
        "error_message": message or ErrorCode(code).message,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
    }


def refused(
    node: Node, context: RequestContext, request: ConsumerGroupDescribeRequest, error_code: int, message: str | None
) -> Answer:
    """Return the same error code for each group."""
    rows = [_row(group_id, error_code, message) for group_id in request.group_ids]
    return {"throttle_time": context.throttle_ms, "groups": rows}
