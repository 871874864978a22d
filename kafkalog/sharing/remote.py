"""The nodes of a cluster, as a queue reaches them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from kafkalog.copy.cluster_client import ClusterClient
from kafkalog.errors import UnknownTopicOrPartition
from kafkalog.server.client.errors import PeerRefused, PeerUnreachable
from kafkalog.sharing.links import Link, SharedTopic

T = TypeVar("T")


class RemoteLinks:
    """Connections to the nodes of a cluster, opened when they are needed."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    async def topic(self, name: str) -> SharedTopic:
        """Return the topic as its cluster describes it. UnknownTopicOrPartition, PeerError."""
        found = (await self._client.read([name])).topics.get(name)
        if found is None:
            raise UnknownTopicOrPartition(f"{self._client.name} has no topic {name}", hint="create the topic first")
        if found.id is None:
            raise PeerRefused(f"{self._client.name} has no topic ids", hint="share groups need a newer broker")
        return SharedTopic(name, found.id, tuple(one.node_id for one in found.leaders))

    async def ask_coordinator(self, group: str, call: Callable[[Link], Awaitable[T]]) -> T:
        """Return the result of `call` with the group's coordinator, repeated while that can help."""
        return await self._client.ask_coordinator(group, call)

    async def ask_any(self, call: Callable[[Link], Awaitable[T]]) -> T:
        """Return the result of `call` with any node that answers."""
        return await self._client.any_broker(call)

    async def to_node(self, node_id: int) -> Link:
        """Return the connection to a node. PeerError."""
        address = self._client.nodes.get(node_id)
        if address is None:
            raise PeerUnreachable(f"{self._client.name} has no node {node_id} now")
        return await self._client.connection(address)

    async def close(self) -> None:
        """Close the connections: the nodes release what their sessions have acquired."""
        await self._client.close()
