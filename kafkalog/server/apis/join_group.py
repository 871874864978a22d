"""JoinGroup: join the next generation of a classic group (KIP-62, KIP-345, KIP-394, KIP-814)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol
from uuid import uuid4

from kafkalog.server.error_codes import Refused
from kafkalog.server.groups.values import Joined, Joining
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from kio.schema.join_group.v9.request import JoinGroupRequestProtocol

    from kafkalog.server.node.node import Node

    class _Request(Protocol):
        """The fields of every version; times are in ms."""

        group_id: str
        session_timeout: int
        member_id: str
        protocol_type: str
        protocols: tuple[JoinGroupRequestProtocol, ...]


_FIRST_WITH_ID_REQUIRED: Final = 4
_FIRST_WITH_NULL_PROTOCOL: Final = 7
_FIRST_THAT_SKIPS: Final = 9
_MAX_PREFIX: Final = 128
"""Maximum length of what a new member's id repeats, since a client that never joins with the id holds memory for it."""


async def handle(node: Node, context: RequestContext, request: _Request) -> Answer:
    """Return the member's generation, once that has begun."""
    node.authorizer.require(context, Operation.READ, ResourceType.GROUP, request.group_id)
    return _answer(context, await node.groups.join(request.group_id, _event(context, request)))


def _event(context: RequestContext, request: _Request) -> Joining:
    version = context.api_version
    instance_id = getattr(request, "group_instance_id", None)
    return Joining(
        request.member_id,
        f"{(context.client_id if instance_id is None else instance_id)[:_MAX_PREFIX]}-{uuid4()}",
        instance_id,
        context.client_id,
        f"/{context.connection.peer_host}",
        request.session_timeout,
        getattr(request, "rebalance_timeout", request.session_timeout),
        request.protocol_type,
        tuple((one.name, bytes(one.metadata)) for one in request.protocols),
        is_id_required=version >= _FIRST_WITH_ID_REQUIRED,
        skips_assignment=version >= _FIRST_THAT_SKIPS,
    )


def _answer(context: RequestContext, joined: Joined) -> dict[str, object]:
    has_null = context.api_version >= _FIRST_WITH_NULL_PROTOCOL
    return {
        "error_code": int(joined.error_code),
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        "protocol_name": joined.protocol if has_null else joined.protocol or "",
        "leader": joined.leader,
        "skip_assignment": joined.skips_assignment,
        "member_id": joined.member_id,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "metadata": metadata}
            for member_id, instance_id, metadata in joined.members
        ],
    }


def refused(node: Node, context: RequestContext, request: _Request, error: Refused) -> Answer:
    """Return the error without a generation."""
    return _answer(context, Joined(error.code, request.member_id))
