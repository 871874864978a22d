"""UnregisterBroker (KIP-919): forget a node that is gone. There are none here: a set has the nodes of its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation

if TYPE_CHECKING:
    from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: UnregisterBrokerRequest) -> Answer:
    """Return that the node is not registered; a node of the set stays in it, which its settings decide."""
    node.authorizer.require_cluster(context, Operation.ALTER)
    number = request.broker_id
    known = (node.node_id,) if node.quorum.replica_set is None else node.quorum.own_set.ids
    if number in known:
        message = f"Broker ID {number} cannot be unregistered: its settings make it a part of the cluster"
        raise Refused(ErrorCode.POLICY_VIOLATION, message)
    message = f"Broker ID {number} is not currently registered"
    raise Refused(ErrorCode.BROKER_ID_NOT_REGISTERED, message)
