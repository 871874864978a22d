"""Addresses that the nodes of a set advertise to clients, and their racks, as the nodes report them to each other.

Each answer to DescribeQuorum has them, as listeners. A leader learns from each node about that node, and the others
learn about all nodes from the leader, so that a client gets the same addresses from every node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from kafkalog.server.quorum.replica_set import ReplicaSet
    from kafkalog.server.wire.writer import Tree

Endpoints = Mapping[str, tuple[str, int]]
"""Listener -> (host, port)."""
OF_THE_SET: Final = "REPLICAS"
"""Listener of a node's address in `kafkalog.replicas`."""
RACK: Final = "RACK"
"""Listener whose host is the node's rack, with port 0, which no listener of clients has."""
_MOST_LISTENERS: Final = 100


class Listener(Protocol):
    """A listener of a node in an answer to DescribeQuorum."""

    @property
    def name(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class NodeListeners(Protocol):
    """A node in an answer to DescribeQuorum."""

    @property
    def node_id(self) -> int: ...
    @property
    def listeners(self) -> Iterable[Listener]: ...


class KnownNode(NamedTuple):
    """Addresses and rack that a node advertises to clients."""

    endpoints: Endpoints
    rack: str | None = None


class KnownNodes(dict[int, KnownNode]):
    """The other nodes of the set that have described themselves, by id."""

    def learn(self, nodes: Iterable[NodeListeners], about: Iterable[int]) -> None:
        """Take over an answer's description of these nodes; a node that it does not describe stays as it was."""
        wanted = set(about)
        for one in nodes:
            found = [*one.listeners][:_MOST_LISTENERS]
            endpoints = {each.name: (each.host, each.port) for each in found if each.port and each.name != OF_THE_SET}
            if one.node_id in wanted and endpoints:
                rack = next((each.host for each in found if each.name == RACK and not each.port), None)
                self[one.node_id] = KnownNode(endpoints, rack)


def node_rows(replicas: ReplicaSet, known: Mapping[int, KnownNode]) -> list[Tree]:
    """Return the nodes of the set as DescribeQuorum describes them."""
    rows: list[Tree] = []
    for member in replicas.members:
        node = known.get(member.node_id, KnownNode({}))
        listeners = [{"name": OF_THE_SET, "host": member.host, "port": member.port}]
        listeners += [{"name": name, "host": host, "port": port} for name, (host, port) in node.endpoints.items()]
        if node.rack is not None:
            listeners.append({"name": RACK, "host": node.rack, "port": 0})
        rows.append({"node_id": member.node_id, "listeners": listeners})
    return rows
