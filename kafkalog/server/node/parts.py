"""The parts of a node, their modules, and the order in which they start."""

from __future__ import annotations

from pkgutil import resolve_name
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


# attribute of the node -> what creates it, called with the node; a part may use those above it
PARTS: Final = {
    "dynamic": "kafkalog.server.settings.dynamic:make",
    "features": "kafkalog.server.settings.features:make",
    "authorizer": "kafkalog.server.security.authorizer:make",
    "credentials": "kafkalog.server.security.credentials:make",
    "quotas": "kafkalog.server.security.quotas:make",
    "topics": "kafkalog.server.node.topics:make",
    "quorum": "kafkalog.server.quorum.quorum:make",
    "replicas": "kafkalog.server.replica.replica_manager:make",
    "moves": "kafkalog.server.replica.dir_moves:DirMoves",
    "shares": "kafkalog.server.share.shares:Shares",
    "groups": "kafkalog.server.groups.coordinator:GroupCoordinator",
    "transactions": "kafkalog.server.txns.coordinator:TransactionCoordinator",
    "leading": "kafkalog.server.node.leading:Leading",
    "following": "kafkalog.server.node.following:make",
}
OF_THE_LEADER: Final = ("shares", "groups", "transactions")
"""Parts that run only on the leader of a replica set."""
OF_THE_MAIN_PROCESS: Final = ("groups", "transactions")
"""Parts that do not run in a worker."""


def import_parts() -> None:
    """Import the modules of all parts, for a process that forks nodes."""
    for name in PARTS.values():
        resolve_name(name)


def make_part(node: Node, name: str) -> Part:
    """Create a part and set it as the node's attribute of that name."""
    part: Part = resolve_name(PARTS[name])(node)
    setattr(node, name, part)
    return part


def make_parts(node: Node) -> dict[str, Part]:
    """Create all parts in order, set each as an attribute of the node at once, and return them by name."""
    return {name: make_part(node, name) for name in PARTS}
