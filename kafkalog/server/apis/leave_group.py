"""LeaveGroup: a member leaves, or an admin removes members (KIP-345)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from kio.schema.leave_group.v5.request import MemberIdentity

    from kafkalog.server.node.node import Node

    class _Request(Protocol):
        """The fields of all versions: `member_id` up to version 2, `members` from version 3 on."""

        group_id: str
        member_id: str
        members: tuple[MemberIdentity, ...]


_FIRST_WITH_MANY: Final = 3


async def handle(node: Node, context: RequestContext, request: _Request) -> Answer:
    """Return an error code for each member, or the only member's code in versions that allow one."""
    node.authorizer.require(context, Operation.READ, ResourceType.GROUP, request.group_id)
    has_many_members = context.api_version >= _FIRST_WITH_MANY
    members = [(one.member_id, one.group_instance_id) for one in request.members] if has_many_members else [
        (request.member_id, None)
    ]  # fmt: skip
    code, codes = await node.groups.leave(request.group_id, members)
    if not has_many_members:
        return {"error_code": code or codes[0], "members": ()}
    return {
        "error_code": code,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": one}
            for (member_id, instance_id), one in zip(members, codes, strict=False)
        ],
    }
