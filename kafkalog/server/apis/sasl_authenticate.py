"""SaslAuthenticate: exchange messages of the mechanism chosen by SaslHandshake (KIP-152, KIP-368)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.requests.context import CLOSE, Answer, RequestContext
from kafkalog.server.security.sasl import authenticate, log_failure
from kafkalog.server.security.scram import LoginFailed

if TYPE_CHECKING:
    from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: SaslAuthenticateRequest) -> Answer:
    """Return the server's next message or an error; CLOSE if the connection is rejected."""
    try:
        outcome = await authenticate(node, context.connection, bytes(request.auth_bytes))
    except LoginFailed as error:
        log_failure(node, context.connection, error)
        return CLOSE
    return {
        "error_code": outcome.error_code,
        "error_message": outcome.message,
        "auth_bytes": outcome.token,
        "session_lifetime": outcome.lifetime_ms,
    }
