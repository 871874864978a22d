"""Shared code of calls that describe groups: one row or error for each named group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.requests.context import RequestContext
from kafkalog.server.requests.cooperative_yield import in_turns
from kafkalog.server.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from kafkalog.server.groups.group_table import Group
    from kafkalog.server.node.node import Node

Row = dict[str, object]


async def describe_groups(
    node: Node,
    context: RequestContext,
    group_ids: Iterable[str],
    error_row: Callable[[str, int], Row],
    row_of: Callable[[str, Group | None], Row],
    wants_operations: Callable[[Row], bool],
) -> Row:
    """Return the response: a row from `row_of` for each group, with the client's allowed operations if wanted."""
    rows = []
    async for group_id in in_turns(group_ids):
        if not node.authorizer.allows(context, Operation.DESCRIBE, ResourceType.GROUP, group_id):
            rows.append(error_row(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        error = await node.groups.table.ready(group_id, is_written=False)
        row = error_row(group_id, error) if error else row_of(group_id, node.groups.groups.get(group_id))
        if wants_operations(row):
            row["authorized_operations"] = node.authorizer.allowed_operations(context, ResourceType.GROUP, group_id)
        rows.append(row)
    return {"throttle_time": context.throttle_ms, "groups": rows}
