"""Connections of a queue to its share partitions: calls of Kafka's protocol, in this process or over sockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

T = TypeVar("T")
SHARE_GROUP_HEARTBEAT, SHARE_FETCH, SHARE_ACKNOWLEDGE = 76, 78, 79
DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 44
LOCAL_NODE: Final = 0


class Link(Protocol):
    """A connection to one node."""

    @property
    def peer(self) -> str:
        """Name of the other end for errors."""

    @property
    def is_open(self) -> bool:
        """True if requests can be sent."""

    def version_of(self, api_key: int) -> int:
        """Return the newest version of a call that both ends know. PeerRefused without one."""

    async def request(self, api_key: int, tree: Mapping[str, object], *, timeout_ms: int | None = None) -> Any:
        """Send a request and return the response. PeerError."""


class SharedTopic(NamedTuple):
    """A topic, and the node that leads each partition."""

    name: str
    id: UUID
    leaders: tuple[int, ...]


class Links(Protocol):
    """The connections of one queue. Only for the event loop's thread."""

    async def topic(self, name: str) -> SharedTopic:
        """Return the topic as it is now. UnknownTopicOrPartition, PeerError."""

    async def ask_coordinator(self, group: str, call: Callable[[Link], Awaitable[T]]) -> T:
        """Return the result of `call` with the group's coordinator, repeated while that can help."""

    async def ask_any(self, call: Callable[[Link], Awaitable[T]]) -> T:
        """Return the result of `call` with any node."""

    async def to_node(self, node_id: int) -> Link:
        """Return the connection to a node. PeerError."""

    async def close(self) -> None:
        """Close the connections."""
