"""DescribeGroups: state and members of classic groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.groups.classic_group import ClassicGroup, State
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.groups import Row, describe_groups

if TYPE_CHECKING:
    from kio.schema.describe_groups.v6.request import DescribeGroupsRequest

    from kafkalog.server.groups.group_table import Group
    from kafkalog.server.node.node import Node

_FIRST_WITH_NOT_FOUND: Final = 6


async def handle(node: Node, context: RequestContext, request: DescribeGroupsRequest) -> Answer:
    """Return a row for each group. Any but a classic group is reported as dead, from version 6 on as not found."""
    wants_operations = getattr(request, "include_authorized_operations", False)

    def row_of(group_id: str, group: Group | None) -> Row:
        return _describe(context, group_id, group)

    return await describe_groups(
        node, context, request.groups, _row, row_of,
        lambda row: wants_operations and not row["error_code"], needs_id=False,
    )  # fmt: skip


def _describe(context: RequestContext, group_id: str, group: Group | None) -> Row:
    if not isinstance(group, ClassicGroup):
        if context.api_version < _FIRST_WITH_NOT_FOUND:
            return _row(group_id, 0, State.DEAD)
        reason = "not found" if group is None else "is not a classic group"
        return _row(group_id, ErrorCode.GROUP_ID_NOT_FOUND, State.DEAD, f"Group {group_id} {reason}.")
    is_stable = group.state is State.STABLE
    return _row(group_id, 0, group.state) | {
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol or "") if is_stable else "",
        "members": [
            {
                "member_id": one.id,
                "group_instance_id": one.instance_id,
                "client_id": one.client_id,
                "client_host": one.client_host,
                "member_metadata": one.metadata(group.protocol) if is_stable else b"",
                "member_assignment": one.assignment,
            }
            for one in group.members.values()
        ],
    }


def _row(group_id: str, code: int, state: str = "", message: str | None = None) -> Row:
    return {
        "error_code": int(code),
        "error_message": message,
        "group_id": group_id,
        "group_state": str(state),
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
    }


def refused(node: Node, context: RequestContext, request: DescribeGroupsRequest, error: Refused) -> Answer:
    """Return the same error code for each group."""
    rows = [_row(group_id, error.code, "", error.message) for group_id in request.groups]
    return {"groups": rows}
