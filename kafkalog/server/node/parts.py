"""The parts of a node, their modules, and the order in which they start."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node


class Part(Protocol):
    """The interface that all parts share. A part that inherits from it need not define both methods."""

    async def start(self) -> None:
        """Start the part. Called once, after all parts are created and those before it have started."""
        return

    async def stop(self) -> None:
        """Stop the part. Called once, before the parts that it needs are stopped."""
        return


# attribute of the node -> the module whose `make(node)` creates it; a part may use those above it
PARTS: Final = {
    "dynamic": "kafkalog.server.settings.dynamic",
    "features": "kafkalog.server.settings.features",
    "authorizer": "kafkalog.server.security.authorizer",
    "credentials": "kafkalog.server.security.credentials",
    "quotas": "kafkalog.server.security.quotas",
    "topics": "kafkalog.server.node.topics",
    "quorum": "kafkalog.server.quorum.quorum",
    "replicas": "kafkalog.server.replica.replica_manager",
    "moves": "kafkalog.server.replica.dir_moves",
    "shares": "kafkalog.server.share.shares",
    "groups": "kafkalog.server.groups.coordinator",
    "transactions": "kafkalog.server.txns.coordinator",
    "leading": "kafkalog.server.node.leading",
    "following": "kafkalog.server.node.following",
}
OF_THE_LEADER: Final = ("shares", "groups", "transactions")
"""Parts that run only on the leader of a replica set."""


def make_part(node: Node, name: str) -> Part:
    """Create a part and set it as the node's attribute of that name."""
    part: Part = import_module(PARTS[name]).make(node)
    setattr(node, name, part)
    return part


def make_parts(node: Node) -> dict[str, Part]:
    """Create all parts in order, set each as an attribute of the node at once, and return them by name."""
    return {name: make_part(node, name) for name in PARTS}
