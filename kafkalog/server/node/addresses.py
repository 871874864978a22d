"""Addresses and racks of the nodes: this one, and the others of its replica set."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalog.server.quorum.known_nodes import KnownNode

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.server.quorum.replica_set import Member


class NodeAddress(NamedTuple):
    """Address of a node for clients."""

    node_id: int
    host: str
    port: int


def addresses(node: Node, listener: str) -> tuple[NodeAddress, ...]:
    """Return all nodes for clients of a listener.

    Another node's address is the one that it advertises for that listener, or the one of `kafkalog.replicas` as long as
    it has not reported one. Raises IllegalArgument for an unknown listener.
    """
    me = NodeAddress(node.node_id, *node.endpoint(listener))
    replicas = node.quorum.replica_set
    if replicas is None:
        others = () if node.workers is None else node.workers.addresses(listener)
        return (me, *(NodeAddress(*one) for one in others))
    return tuple(me if one.node_id == me.node_id else _address(node, one, listener) for one in replicas.members)


def _address(node: Node, member: Member, listener: str) -> NodeAddress:
    known = node.quorum.nodes.get(member.node_id)
    own = None if known is None else known.endpoints.get(listener)
    return NodeAddress(*member) if own is None else NodeAddress(member.node_id, *own)


def address_of(node: Node, listener: str, node_id: int) -> NodeAddress | None:
    """Return a node's address, or None for an unknown id such as -1. Raise IllegalArgument for an unknown listener."""
    return next((one for one in addresses(node, listener) if one.node_id == node_id), None)


def rack_of(node: Node, node_id: int) -> str | None:
    """Return a node's rack, or None if it has none or has not reported it."""
    if node_id == node.node_id or node.workers is not None:
        return own_node(node).rack
    known = node.quorum.nodes.get(node_id)
    return None if known is None else known.rack


def own_node(node: Node) -> KnownNode:
    """Return the addresses and the rack of this node."""
    return KnownNode(node.endpoints, node.config["broker.rack"])
