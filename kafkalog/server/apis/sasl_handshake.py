"""SaslHandshake: the client chooses its authentication mechanism (KIP-43)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server import error_codes
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.requests.context import CLOSE, Answer, RequestContext
from kafkalog.server.security.sasl import begin, log_failure, mechanisms_of
from kafkalog.server.security.scram import LoginFailed

if TYPE_CHECKING:
    from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: SaslHandshakeRequest) -> Answer:
    """Return the listener's mechanisms. An unsupported mechanism closes the connection after the response.

    After a version 0 handshake, the exchange continues with bare messages of the mechanism, as in 0.10 clients.
    """
    connection = context.connection
    try:
        code = begin(node, connection, request.mechanism, is_bare=context.api_version == 0)
    except LoginFailed as error:
        log_failure(node, connection, error)
        return CLOSE
    if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        connection.closes_after_answer = True
    return _answer(node, context, code)


def refused(node: Node, context: RequestContext, request: object, error: error_codes.Refused) -> Answer:
    """Return the error and the listener's mechanisms."""
    return _answer(node, context, error.code)


def _answer(node: Node, context: RequestContext, code: int) -> Answer:
    lists_mechanisms = code != ErrorCode.ILLEGAL_SASL_STATE
    return {"error_code": code, "mechanisms": mechanisms_of(node, context.connection) if lists_mechanisms else ()}
