"""Envelope (KIP-590): another node of the replica set forwards a client's request, which only the leader answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.errors import InvalidRequest, MalformedRequest
from kafkalog.server.apis.dispatch import dispatch
from kafkalog.server.node.leading import CONTROLLERS
from kafkalog.server.quorum.errors import NotController
from kafkalog.server.requests.context import Answer, Close, Connection, RequestContext
from kafkalog.server.security.acls import Operation
from kafkalog.server.wire.header import read_header
from kafkalog.server.wire.versions import APIS

if TYPE_CHECKING:
    from kio.schema.envelope.v0.request import EnvelopeRequest

    from kafkalog.server.node.node import Node

_MOST_NAME_BYTES: Final = 1 << 16


async def handle(node: Node, context: RequestContext, request: EnvelopeRequest) -> Answer:
    """Return the response to the client, or an error that lets the other node answer. It needs CLUSTER_ACTION."""
    node.authorizer.require_cluster(context, Operation.CLUSTER_ACTION)
    if node.leaders_calls:
        raise NotController("this node is not the leader of its replica set")
    frame = bytearray(request.request_data)
    _check_call(frame)
    pieces = await dispatch(node, _client(context, request), frame)
    if pieces is None or isinstance(pieces, Close):
        raise InvalidRequest("the forwarded request has no response")
    return {"response_data": b"".join(piece for piece in pieces if isinstance(piece, bytes)), "error_code": 0}


def _check_call(frame: bytearray) -> None:
    """Raise InvalidRequest unless the request is one that only the leader answers."""
    try:
        api = APIS.get(read_header(frame).api_key)
    except MalformedRequest as error:
        raise InvalidRequest(f"the forwarded request is malformed: {error.message}") from None
    if api is None or api.name not in CONTROLLERS:
        raise InvalidRequest("the forwarded request is not one for the leader only")


def _client(context: RequestContext, request: EnvelopeRequest) -> Connection:
    """Return the client's connection as the other node knows it."""
    principal, host = request.request_principal or b"", request.client_host_address
    if max(len(principal), len(host)) > _MOST_NAME_BYTES:
        raise InvalidRequest("the client's name is too long")
    own = context.connection
    client = Connection(own.id, own.listener, own.security_protocol, (str(host, "utf-8", "replace"), 0))
    client.principal = str(principal, "utf-8", "replace")
    client.is_authenticated = True
    return client
