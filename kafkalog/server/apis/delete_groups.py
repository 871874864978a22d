"""DeleteGroups (KIP-229): delete groups without members, and their committed offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.server.context import RequestContext
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from kafkalog.server.node import Node


async def handle(node: Node, context: RequestContext, request: Any) -> Any:
    """Delete the groups and return an error code for each."""
    codes = {}
    for group_id in request.groups_names:
        if not node.authorizer.allows(context, Operation.DELETE, ResourceType.GROUP, group_id):
            codes[group_id] = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        elif group_id not in codes:
            codes[group_id] = int(await node.groups.delete(group_id))
    return _answer(context, codes)


def _answer(context: RequestContext, codes: dict[str, int]) -> dict[str, Any]:
    rows = [{"group_id": group_id, "error_code": code} for group_id, code in codes.items()]
    return {"throttle_time": context.throttle_ms, "results": rows}


def refused(node: Node, context: RequestContext, request: Any, error_code: int, message: str | None) -> Any:
    """Return the same error code for each group."""
    return _answer(context, dict.fromkeys(request.groups_names, int(error_code)))
