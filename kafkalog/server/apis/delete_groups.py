"""DeleteGroups (KIP-229): delete groups without members, and their committed offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.cooperative_yield import in_turns
from kafkalog.server.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from kio.schema.delete_groups.v2.request import DeleteGroupsRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: DeleteGroupsRequest) -> Answer:
    """Delete the groups and return an error code for each.

    The message that version 3 has is that of a plug-in's failure (GROUP_DELETION_FAILED): here it is always null.
    """
    codes: dict[str, int] = {}
    async for group_id in in_turns(request.groups_names):
        if not node.authorizer.allows(context, Operation.DELETE, ResourceType.GROUP, group_id):
            codes[group_id] = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        else:
            codes[group_id] = int(await node.groups.delete(group_id))
    return _answer(codes)


def _answer(codes: dict[str, int]) -> dict[str, object]:
    rows = [{"group_id": group_id, "error_code": code} for group_id, code in codes.items()]
    return {"results": rows}


def refused(node: Node, context: RequestContext, request: DeleteGroupsRequest, error: Refused) -> Answer:
    """Return the same error code for each group."""
    return _answer(dict.fromkeys(request.groups_names, error.code))
