"""Connections of a queue to its share partitions: calls of Kafka's protocol, in this process or over sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    from kafkalog.server.client.connection import PeerConnection
    from kafkalog.sharing.local import LocalLink, LocalLinks
    from kafkalog.sharing.workers import RemoteLinks

    Link: TypeAlias = "LocalLink | PeerConnection"
    """A connection to one node."""
    Links: TypeAlias = "LocalLinks | RemoteLinks"
    """The connections of one queue. Only for the event loop's thread."""

SHARE_GROUP_HEARTBEAT, SHARE_FETCH, SHARE_ACKNOWLEDGE = 76, 78, 79
DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 44
LOCAL_NODE: Final = 0


class SharedTopic(NamedTuple):
    """A topic, and the node that leads each partition."""

    name: str
    id: UUID
    leaders: tuple[int, ...]
