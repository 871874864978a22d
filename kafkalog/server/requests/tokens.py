"""Delegation tokens (KIP-48), which this server never issues: the refusals of a broker without a secret for them."""

from __future__ import annotations

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.requests.context import ANONYMOUS, RequestContext


def token_refusal(context: RequestContext) -> ErrorCode:
    """Return the error code: that of the channel if it proves no identity, else that of the missing feature."""
    connection = context.connection
    is_unproven = connection.security_protocol == "PLAINTEXT" or (
        connection.security_protocol == "SSL" and connection.principal == ANONYMOUS
    )
    if is_unproven:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
