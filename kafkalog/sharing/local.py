"""The share partitions of open data directories: those of the server, in a thread of this process without sockets.

They run while a queue of the directories is open. Groups, states and settings are kept where a server keeps them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkalog.copy.cluster_client import RetryLater
from kafkalog.errors import LogClosed, UnknownTopicOrPartition, from_code
from kafkalog.server.apis.dispatch import dispatch
from kafkalog.server.client.errors import PeerMisbehaved
from kafkalog.server.client.messages import read_answer, request_frame
from kafkalog.server.node.node import Node
from kafkalog.server.node.store import borrowed_store
from kafkalog.server.node.stored_topics import check_whole
from kafkalog.server.node.topic import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from kafkalog.server.requests.context import Close, Connection
from kafkalog.server.settings.config import ServerConfig
from kafkalog.server.wire.versions import APIS
from kafkalog.sharing.links import LOCAL_NODE, SharedTopic
from kafkalog.sharing.loop import LoopThread
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.manager.log_manager import LogManager
    from kafkalog.server.wire.pieces import Pieces
    from kafkalog.sharing.links import Link
    from kafkalog.storage.log import UnifiedLog

T = TypeVar("T")
PEER: Final = "the queues of this process"
_BEFORE_TOPICS: Final = frozenset({"dynamic", "features", "authorizer", "quotas"})
_AFTER_TOPICS: Final = frozenset({"quorum", "replicas", "shares", "groups"})
"""The parts of a server that share groups need; topics are those of the directories, which others change."""
_SETTINGS: Final[Mapping[str, object]] = {
    # committed offsets of other groups are left alone
    "offsets.retention.check.interval.ms": 2**31 - 1, "num.io.threads": 2,
    # few groups: no directory for each of 50 partitions
    "offsets.topic.num.partitions": 1, "share.coordinator.state.topic.num.partitions": 1,
}  # fmt: skip
_LENGTH_BYTES: Final = 4
_nodes: dict[int, LocalNode] = {}  # by the manager's id; guarded by _lock
_lock = threading.Lock()
_connection_ids = count(1)


class LocalNode:
    """A node without sockets on the logs of a manager, for the queues that have it. Use `acquire_node`."""

    def __init__(self, manager: LogManager) -> None:
        self.manager = manager
        self.users = 0
        self._store = borrowed_store(manager)
        self.loop = LoopThread("kafkalog-queues")
        try:
            self.node: Node = self.loop.call(self._started())
        except BaseException:
            self.loop.stop()
            raise

    async def _started(self) -> Node:
        config = ServerConfig({**self.manager.config.overrides(), **_SETTINGS})
        node = Node(config, self._store)
        try:
            await node.start(_BEFORE_TOPICS)
            await node.topics.refresh()
            for name in (CONSUMER_OFFSETS, SHARE_GROUP_STATE):  # else they are created a second time
                await node.run(check_whole, self.manager, name)
            await node.start(_AFTER_TOPICS)
        except BaseException:
            await node.stop()
            raise
        return node

    def stop(self) -> None:
        """Stop the parts and the thread; the logs stay open. Errors as in `Node.stop`."""
        try:
            self.loop.call(self.node.stop())
        finally:
            self.loop.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]


def acquire_node(manager: LogManager) -> LocalNode:
    """Return the node on these logs, started if no queue has it yet; `release_node` ends its use."""
    with _lock:
        found = _nodes.get(id(manager))
        if found is None:
            found = _nodes[id(manager)] = LocalNode(manager)
        found.users += 1
        return found


def release_node(one: LocalNode) -> None:
    """End a use of a node; the last one stops it."""
    with _lock:
        one.users -= 1
        if one.users:
            return
        del _nodes[id(one.manager)]
        one.stop()


class LocalLink:
    """Requests to a node of this process."""

    peer: Final = PEER

    def __init__(self, local: LocalNode) -> None:
        self._local = local
        self._connection = Connection(next(_connection_ids), "QUEUE")

    @property
    def is_open(self) -> bool:
        """True until the directories are closed."""
        return not self._local.manager.closed

    def check_open(self) -> None:
        """Raise LogClosed once the directories are closed."""
        if not self.is_open:
            raise LogClosed("the data directories of the queue are closed")

    def version_of(self, api_key: int) -> int:
        """Return the newest version of a call."""
        return APIS[api_key].newest

    async def request(self, api_key: int, tree: Mapping[str, object], *, timeout_ms: int | None = None) -> Any:
        """Return the response of the node. LogClosed once the directories are closed."""
        self.check_open()
        version = self.version_of(api_key)
        frame = bytearray(request_frame(api_key, version, 0, "kafkalog", dict(tree))[_LENGTH_BYTES:])
        pieces = await dispatch(self._local.node, self._connection, frame)
        if pieces is None or isinstance(pieces, Close):
            raise PeerMisbehaved(f"no answer to {APIS[api_key].name}", peer=PEER)
        return read_answer(api_key, version, await self._local.node.run(_joined, pieces))

    def close(self) -> None:
        """End the sessions of this link, as those of a closed connection."""
        self._connection.is_open = False
        self._local.node.shares.disconnected(self._connection.id)


def _joined(pieces: Pieces) -> bytes:
    """Return the bytes of a response, with the records that are still in files."""
    return b"".join(one if isinstance(one, bytes) else _bytes_of(one) for one in pieces)


def _bytes_of(records: Any) -> bytes:
    data: bytes = records.read()
    return data


class LocalLinks:
    """One node of this process, as a queue reaches it."""

    def __init__(self, local: LocalNode) -> None:
        self._local = local
        self._link = LocalLink(local)
        self._topic: SharedTopic | None = None
        self._log: UnifiedLog | None = None

    async def topic(self, name: str) -> SharedTopic:
        """Return the topic as the node has it. UnknownTopicOrPartition."""
        self._link.check_open()
        topics = self._local.node.topics
        await topics.refresh()
        found = topics.get(name)
        if found is None:
            await self._local.node.run(check_whole, self._local.manager, name)
            raise UnknownTopicOrPartition(f"there is no topic {name}", hint="open the queue after creating the topic")
        before = self._topic
        if before is not None and before.id != found.id:
            raise UnknownTopicOrPartition(f"topic {name} was deleted and created again", hint="open the queue again")
        self._log = self._local.manager.get(TopicPartition(name, 0))
        self._topic = SharedTopic(name, found.id, (LOCAL_NODE,) * found.partitions)
        return self._topic

    async def ask_coordinator(self, group: str, call: Callable[[Link], Awaitable[T]]) -> T:
        """Return the result of `call` once the groups are loaded, with the topics as they are now."""
        self._link.check_open()
        await self._local.node.groups.loaded()
        await self._local.node.topics.refresh()
        try:
            return await call(self._link)
        except RetryLater as error:
            raise from_code(error.code, error.message) from None

    async def ask_any(self, call: Callable[[Link], Awaitable[T]]) -> T:
        """Return the result of `call`."""
        return await call(self._link)

    async def to_node(self, node_id: int) -> Link:
        """Return the only link. UnknownTopicOrPartition if the topic was deleted meanwhile."""
        topic = self._topic
        if topic is not None and self._local.manager.get(TopicPartition(topic.name, 0)) is not self._log:
            await self.topic(topic.name)
        return self._link

    async def close(self) -> None:
        """End the sessions of the link."""
        self._link.close()
