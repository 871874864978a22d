"""LeaveGroup: a member leaves, or an admin removes members (KIP-345)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from kafkalog.server.error_codes import ErrorCode
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
    if not node.authorizer.allows(context, Operation.READ, ResourceType.GROUP, request.group_id):
        return refused(node, context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
    has_many_members = context.api_version >= _FIRST_WITH_MANY
    members = [(one.member_id, one.group_instance_id) for one in request.members] if has_many_members else [
        (request.member_id, None)
    ]  # fmt: skip
    code, codes = await node.groups.leave(request.group_id, members)
    if not has_many_members:
        return _answer(context, code or codes[0], (), ())
    return _answer(context, code, members, codes)


def _answer(
    context: RequestContext, code: int, members: Sequence[tuple[str, str | None]], codes: Sequence[int]
) -> dict[str, object]:
    return {
        "throttle_time": context.throttle_ms,
        "error_code": int(code),
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": one}
            for (member_id, instance_id), one in zip(members, codes, strict=False)
        ],
    }


def refused(node: Node, context: RequestContext, request: object, error_code: int, message: str | None) -> Answer:
    """Return one code for all members."""
    return _answer(context, error_code, (), ())
