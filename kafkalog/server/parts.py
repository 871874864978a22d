"""The parts of a node: which there are, where each is made, and the order in which they start."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from kafkalog.server.node import Node


class Part(Protocol):
    """What a part has besides its own face."""

    async def start(self) -> None:
        """Called once, after all parts are made and those before it have started."""

    async def stop(self) -> None:
        """Called once, before those that it needs are stopped."""


# attribute of the node -> the module whose `make(node)` gives it; each may use those above it
PARTS: Final = {
    "dynamic": "kafkalog.server.dynamic",
    "authorizer": "kafkalog.server.security.authorizer",
    "credentials": "kafkalog.server.security.credentials",
    "quotas": "kafkalog.server.security.quotas",
    "topics": "kafkalog.server.topics",
    "quorum": "kafkalog.server.quorum.quorum",
    "replicas": "kafkalog.server.replica.replica_manager",
    "groups": "kafkalog.server.groups.coordinator",
    "transactions": "kafkalog.server.txns.coordinator",
    "leading": "kafkalog.server.leading",
    "following": "kafkalog.server.following",
}
OF_THE_LEADER: Final = ("groups", "transactions")
"""Parts that run on the leader of a replica set alone."""


def make_part(node: Node, name: str) -> Any:
    """A new part of that name, set as the attribute of the node."""
    part = import_module(PARTS[name]).make(node)
    setattr(node, name, part)
    return part


def make_parts(node: Node) -> dict[str, Any]:
    """The parts by name, each set as an attribute of the node as soon as it is made."""
    return {name: make_part(node, name) for name in PARTS}
