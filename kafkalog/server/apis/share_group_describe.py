"""ShareGroupDescribe (KIP-932): a share group's epochs and members, with their assignments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.server.apis.consumer_group_describe import DENIED, assignment_tree
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups.share_group import ShareGroup, ShareMember
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.groups import Row, describe_groups
from kafkalog.server.security.acls import Operation, ResourceType
from kafkalog.server.settings.features import SHARE

if TYPE_CHECKING:
    from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest

    from kafkalog.server.groups.group_table import Group
    from kafkalog.server.node.node import Node

_ASSIGNOR: Final = "simple"


async def handle(node: Node, context: RequestContext, request: ShareGroupDescribeRequest) -> Answer:
    """Return a row for each requested group."""
    if not node.features.level(SHARE):
        return refused(node, context, request, ErrorCode.UNSUPPORTED_VERSION, node.features.reason_off(SHARE))
    wants_operations = request.include_authorized_operations

    def row_of(group_id: str, group: Group | None) -> Row:
        return _describe(node, context, group_id, group)

    return await describe_groups(
        node, context, request.group_ids, _row, row_of, lambda row: wants_operations and not row["error_code"]
    )


def _describe(node: Node, context: RequestContext, group_id: str, group: Group | None) -> Row:
    if not isinstance(group, ShareGroup):
        reason = "not found" if group is None else "is not a share group"
        return _row(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")
    allows = node.authorizer.allows
    if not all(allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in group.subscribed_topics()):
        return _row(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, DENIED)
    return _row(group_id, 0) | {
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": _ASSIGNOR,
        "members": [_member(node, one) for one in group.members.values()],
    }


def _member(node: Node, one: ShareMember) -> dict[str, object]:
    return {
        "member_id": one.id,
        "rack_id": one.rack_id,
        "member_epoch": one.epoch,
        "client_id": one.client_id,
        "client_host": one.client_host,
        "subscribed_topic_names": sorted(one.topics),
        "assignment": assignment_tree(node, one.assigned),
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
    node: Node, context: RequestContext, request: ShareGroupDescribeRequest, error_code: int, message: str | None
) -> Answer:
    """Return the same error code for each group."""
    rows = [_row(group_id, error_code, message) for group_id in request.group_ids]
    return {"throttle_time": context.throttle_ms, "groups": rows}
