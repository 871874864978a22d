"""The nodes that clients are told of: this one, and the others of its replica set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from kafkalog.server.node import Node


class NodeAddress(NamedTuple):
    """Where clients reach a node."""

    node_id: int
    host: str
    port: int


def addresses(node: Node, listener: str) -> tuple[NodeAddress, ...]:
    """All nodes, for clients of this listener; the others are where `kafkalog.replicas` says. IllegalArgument."""
    me = NodeAddress(node.node_id, *node.endpoint(listener))
    replicas = node.quorum.replica_set
    if replicas is None:
        return (me,)
    return tuple(me if one.node_id == me.node_id else NodeAddress(*one) for one in replicas.members)


def address_of(node: Node, listener: str, node_id: int) -> NodeAddress | None:
    """Where a node is; None where there is none of this id, as -1. IllegalArgument."""
    return next((one for one in addresses(node, listener) if one.node_id == node_id), None)


def address_of_leader(node: Node, listener: str) -> NodeAddress | None:
    """Where the leader is; None while nobody is known to lead. IllegalArgument."""
    return address_of(node, listener, node.quorum.leader)


def rack_of(node: Node, node_id: int) -> Any:
    """The rack of a node: its own is all that a node knows."""
    return node.config["broker.rack"] if node_id == node.node_id else None
