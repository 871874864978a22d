"""DescribeGroups: state and members of classic groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalog.server.context import RequestContext
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups.classic_group import ClassicGroup, State
from kafkalog.server.security.acls import NOT_ASKED, Operation, ResourceType
from kafkalog.server.turns import in_turns

if TYPE_CHECKING:
    from kafkalog.server.node import Node

_FIRST_WITH_NOT_FOUND: Final = 6


async def handle(node: Node, context: RequestContext, request: Any) -> Any:
    """Each group that was asked for; one that is none is dead, and from version 6 on not found."""
    is_asked = getattr(request, "include_authorized_operations", False)
    rows = []
    async for group_id in in_turns(request.groups):
        if not node.authorizer.allows(context, Operation.DESCRIBE, ResourceType.GROUP, group_id):
            rows.append(_row(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        row = await _described(node, context, group_id)
        if is_asked:
            row["authorized_operations"] = node.authorizer.allowed_operations(context, ResourceType.GROUP, group_id)
        rows.append(row)
    return {"throttle_time": context.throttle_ms, "groups": rows}


async def _described(node: Node, context: RequestContext, group_id: str) -> dict[str, Any]:
    error = await node.groups.ready(group_id, is_written=False)
    if error:
        return _row(group_id, error)
    group = node.groups.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        if context.api_version < _FIRST_WITH_NOT_FOUND:
            return _row(group_id, 0, State.DEAD)
        what = "not found" if group is None else "is not a classic group"
        return _row(group_id, ErrorCode.GROUP_ID_NOT_FOUND, State.DEAD, f"Group {group_id} {what}.")
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
                "member_assignment": one.assignment if is_stable else b"",
            }
            for one in group.members.values()
        ],
    }


def _row(group_id: str, code: int, state: str = "", message: str | None = None) -> dict[str, Any]:
    return {
        "error_code": int(code),
        "error_message": message,
        "group_id": group_id,
        "group_state": str(state),
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
        "authorized_operations": NOT_ASKED,
    }


def refused(node: Node, context: RequestContext, request: Any, error_code: int, message: str | None) -> Any:
    """The same code for each group."""
    rows = [_row(group_id, error_code, "", message) for group_id in request.groups]
    return {"throttle_time": context.throttle_ms, "groups": rows}
