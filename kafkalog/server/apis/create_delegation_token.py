"""CreateDelegationToken (KIP-48): refused, since there are no delegation tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.requests.tokens import token_refusal

if TYPE_CHECKING:
    from kio.schema.create_delegation_token.v3.request import CreateDelegationTokenRequest

    from kafkalog.server.node.node import Node

_USER: Final = "User"
_NONE: Final = -1


async def handle(node: Node, context: RequestContext, request: CreateDelegationTokenRequest) -> Answer:
    """Return the error for the channel, for renewers that are no users, or for the missing feature."""
    code = token_refusal(context)
    are_users = all(one.principal_type == _USER for one in request.renewers)
    if code != ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED and not are_users:
        code = ErrorCode.INVALID_PRINCIPAL_TYPE
    raise Refused(code)


def refused(node: Node, context: RequestContext, request: CreateDelegationTokenRequest, error: Refused) -> Answer:
    """Return the error with the owner that was asked for."""
    kind, _, name = context.principal.partition(":")
    owner = getattr(request, "owner_principal_name", None)
    return {
        "error_code": error.code,
        "principal_type": getattr(request, "owner_principal_type", None) or "" if owner else kind,
        "principal_name": owner or name,
        "token_requester_principal_type": kind, "token_requester_principal_name": name,
        "issue_timestamp": _NONE, "expiry_timestamp": _NONE, "max_timestamp": _NONE, "token_id": "", "hmac": b"",
    }  # fmt: skip
