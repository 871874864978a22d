"""Requests that a node forwards to its leader for a client: administrators' calls, and creation of topics on first use.

A client may keep asking a node that does not lead. The node that receives the forwarded request may have another leader
by then and asks that one. The term of that leader is always later, so requests never go in circles.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kafkalog.errors import KafkalogError
from kafkalog.server.client.cluster import METADATA, metadata_request
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.quorum.file import NO_NODE
from kafkalog.server.quorum.watch import ANSWER_SECONDS
from kafkalog.server.wire.versions import ALTER_USER_SCRAM_CREDENTIALS, APIS, ENVELOPE

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.server.requests.context import RequestContext
    from kafkalog.server.wire.pieces import Pieces

_LOG: Final = logging.getLogger(__name__)


async def create_on_leader(node: Node, names: Sequence[str]) -> None:
    """Ask the leader to create missing topics, according to its own settings.

    If the leader is not available nothing is created, and the client, which gets an unknown-topic error, asks again.
    """
    leader = _leader_of(node)
    if names and leader is not None:
        # a task, since a request may run outside of one, where `asyncio.timeout` does not work
        await asyncio.get_running_loop().create_task(_ask_to_create(node, leader, names))


def _leader_of(node: Node) -> int | None:
    """Return the other node that leads the set, if there is one."""
    quorum = node.quorum
    is_other = quorum.replica_set is not None and quorum.leader not in (NO_NODE, node.node_id)
    return quorum.leader if is_other else None


async def _ask_to_create(node: Node, leader: int, names: Sequence[str]) -> None:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await node.quorum.peers.ask(leader, METADATA, metadata_request(names, may_create=True))
    except (KafkalogError, OSError, TimeoutError) as error:
        _LOG.debug("cannot ask node %d to create %s: %s", leader, ", ".join(names), error)


async def forward(node: Node, context: RequestContext, frame: bytearray) -> Pieces | None:
    """Return the leader's response to a client's request (Envelope, KIP-590); None if it has not answered.

    The leader checks what the client may do, by the principal and address that it has here. It also says how long the
    client is throttled, and this node reads nothing from it for that time.
    """
    leader = _leader_of(node)
    if leader is None or not _may_send(node, context, leader):
        return None
    data = await asyncio.get_running_loop().create_task(_forward(node, leader, context, frame))
    if data is None:
        return None
    context.throttle_ms = _throttle_ms(context, data)
    if context.throttle_ms > 0:
        context.connection.mute_until_ms = node.monotonic_ms() + context.throttle_ms
    return [data]


def _throttle_ms(context: RequestContext, data: bytes) -> int:
    """Return the throttle time of a response, which is the first field of all that are forwarded."""
    head = 5 if APIS[context.api_key].is_flexible(context.api_version) else 4  # correlation id, tags
    return int.from_bytes(data[head : head + 4], "big", signed=True)


def _may_send(node: Node, context: RequestContext, leader: int) -> bool:
    """Return False for password keys that came over a private connection and would leave over one that is not."""
    if context.api_key != ALTER_USER_SCRAM_CREDENTIALS:
        return True
    return node.quorum.forwards.is_private(leader) or not context.connection.is_private


async def _forward(node: Node, leader: int, context: RequestContext, frame: bytearray) -> bytes | None:
    envelope = {
        "request_data": bytes(frame),
        "request_principal": context.principal.encode(),
        "client_host_address": context.connection.peer_host.encode(),
    }
    try:
        answer = await node.quorum.forwards.ask(leader, ENVELOPE, envelope)
    except (KafkalogError, OSError) as error:
        _LOG.info("node %d did not answer a request for a client: %s", leader, error)
        return None
    if answer.error_code != ErrorCode.NONE or answer.response_data is None:
        _LOG.info("node %d did not take a request for a client: error %d", leader, answer.error_code)
        return None
    return bytes(answer.response_data)
