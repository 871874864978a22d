"""Addresses of the nodes: this one, and the others of its replica set."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node


class NodeAddress(NamedTuple):
    """Address of a node for clients."""

    node_id: int
    host: str
    port: int


def addresses(node: Node, listener: str) -> tuple[NodeAddress, ...]:
    """Return all nodes for clients of a listener; the others' addresses are those of `kafkalog.replicas`.

    Raises IllegalArgument for an unknown listener.
    """
    me = NodeAddress(node.node_id, *node.endpoint(listener))
    replicas = node.quorum.replica_set
    if replicas is None:
        return (me,)
    return tuple(me if one.node_id == me.node_id else NodeAddress(*one) for one in replicas.members)


def address_of(node: Node, listener: str, node_id: int) -> NodeAddress | None:
    """Return a node's address, or None for an unknown id such as -1. Raise IllegalArgument for an unknown listener."""
    return next((one for one in addresses(node, listener) if one.node_id == node_id), None)


def rack_of(node: Node, node_id: int) -> str | None:
    """Return a node's rack, or None for another node, whose rack is unknown."""
    rack: str | None = node.config["broker.rack"] if node_id == node.node_id else None
    return rack
