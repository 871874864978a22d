"""Takes over topics, settings, users, ACLs and quotas from the leader of a replica set or a voter that lends them.

All of it is read first, with its version (`quorum/metadata_version.py`), and then applied here, one change after the
other. Only a complete read that is completely applied raises the version of this node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import KafkalogError
from kafkalog.manager.topics import MAX_PARTITIONS_AT_ONCE
from kafkalog.server.client.cluster import Cluster, read_cluster, read_topic_settings
from kafkalog.server.client.connection import PeerConnection
from kafkalog.server.client.errors import PeerRefused
from kafkalog.server.node.topics import Topic
from kafkalog.server.quorum import messages, metadata
from kafkalog.server.quorum.decisions import Position, may_copy_metadata
from kafkalog.server.quorum.version_file import Version, Versions
from kafkalog.server.replica.topic_changes import (
    AddPartitions,
    AlterSettings,
    Change,
    CreateTopic,
    DeleteTopic,
    TopicState,
    topic_changes,
)
from kafkalog.util.shielded import shielded

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

_LOG: Final = logging.getLogger(__name__)


class Read(NamedTuple):
    """Metadata read from another node; `common` is None if the node does not disclose users.

    `versions.complete` is valid only if `is_whole`.
    """

    versions: Versions
    cluster: Cluster
    common: metadata.SharedMetadata | None
    settings: dict[str, dict[str, str]]

    @property
    def is_whole(self) -> bool:
        """True if nothing is missing."""
        return self.common is not None and self.settings.keys() >= self.cluster.topics.keys()


class LeadersMetadata:
    """Applies another node's metadata to this node. `leave` is awaited before a topic is deleted."""

    def __init__(self, node: Node, leave: Callable[[str], Awaitable[object]]) -> None:
        self._node = node
        self._leave = leave
        self._read_lock = asyncio.Lock()
        self._apply_lock = asyncio.Lock()
        self._lacks_users = False  # the lack of users has been logged

    async def settled(self) -> None:
        """Wait until nothing is being applied. A read that was stopped before does not apply anything later."""
        async with self._apply_lock:
            pass

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Apply nothing in the block."""
        async with self._apply_lock:
            yield

    async def take(
        self, connection: PeerConnection, now: tuple[int, int], is_now: Callable[[], bool], *, needs_all: bool = False
    ) -> None:
        """Take over the metadata of the leader and term `now`, as long as `is_now` returns True.

        Raises NeedsTls if `needs_all` and the leader does not disclose users; otherwise topics are taken without them.
        Also raises KafkalogError, OSError, ValueError.
        """
        async with self._read_lock:
            found = await self._read(connection, now, needs_all)
            async with self._apply_lock:
                if found is None or not is_now():
                    return
                await self._node.quorum.metadata.begin(found.versions.begun)
                if not await self._apply(found, is_now) or not is_now():
                    return
                self._learn_in_sync(found.cluster, now[1])
                if found.is_whole:
                    await self._node.quorum.metadata.finish(found.versions)

    def _learn_in_sync(self, cluster: Cluster, term: int) -> None:
        for name, topic in cluster.topics.items():
            for index, in_sync in enumerate(topic.in_sync):
                with suppress(KafkalogError):
                    self._node.replicas.partition(name, index).learn_in_sync(term, in_sync)

    async def copy(self, connection: PeerConnection) -> None:
        """Replace the metadata of this node with that of a voter that lends it; no leader is followed meanwhile.

        Raises PeerRefused if this node may have newer metadata; also KafkalogError, OSError, ValueError.
        """
        common = await metadata.ask(connection, self._node.node_id, -1)
        cluster = await read_cluster(connection)
        settings = await read_topic_settings(connection, sorted(cluster.topics))
        found = Read(common.versions, cluster, common, settings)
        if await metadata.ask(connection, self._node.node_id, -1) != common or not found.is_whole:
            raise PeerRefused("it no longer lends its topics and settings", peer=connection.peer)
        copying = asyncio.ensure_future(self._replace(found, connection.peer))
        try:
            await shielded(copying)
        except asyncio.CancelledError:  # wait for the change in progress
            await asyncio.gather(copying, return_exceptions=True)
            raise

    async def _replace(self, found: Read, peer: str) -> None:
        async with self._apply_lock:
            own = self._node.quorum.metadata
            if not may_copy_metadata(own.versions, found.versions, self._positions_to_drop(found.cluster)):
                raise PeerRefused("its topics and settings are not newer than those here", peer=peer)
            await own.begin(found.versions.begun)
            await self._apply(found, lambda: True)
            await own.finish(found.versions)

    async def _read(self, connection: PeerConnection, now: tuple[int, int], needs_all: bool) -> Read | None:
        """Read the leader's metadata; return None if it hides some of its topics."""
        common = await self._read_common(connection, now[1], needs_all)
        cluster = await read_cluster(connection)
        await self._node.quorum.cluster.take(cluster.cluster_id, f"the leader {connection.peer}", cluster.topics)
        settings = await read_topic_settings(connection, sorted(cluster.topics))
        surplus = [name for name in self._node.topics.names() if name not in cluster.topics]
        # a full list omits topics that we may not see; a request by name is an error for them
        hidden = await read_cluster(connection, surplus) if surplus else None
        last = await _last_version(connection, now)
        complete = last if common is None else common.versions.complete
        if hidden is not None and hidden.topics:
            return None
        return Read(Versions(last, complete), cluster, common, settings)

    def _positions_to_drop(self, cluster: Cluster) -> list[Position]:
        """Return the end positions of logs whose topics the other node does not have."""
        topics, theirs = self._node.topics, cluster.topics
        return [
            position for key, position in self._node.quorum.positions().items()
            if (topic := topics.get(key.topic)) is not None
            and (key.topic not in theirs or theirs[key.topic].id != topic.id)
        ]  # fmt: skip

    async def _read_common(
        self, connection: PeerConnection, term: int, is_required: bool
    ) -> metadata.SharedMetadata | None:
        try:
            return await metadata.ask(connection, self._node.node_id, term)
        except metadata.NeedsTls as error:
            if is_required:
                raise
            if not self._lacks_users:
                _LOG.error("this node has only the leader's topics: %s", error)
            self._lacks_users = True
            return None

    async def _apply(self, found: Read, is_now: Callable[[], bool]) -> bool:
        """Apply the metadata; return False if `is_now` ends before that is complete."""
        if found.common is not None:
            await metadata.take(self._node, found.common)
        for change in topic_changes(_states(found.cluster, found.settings), self._own()):
            if not is_now():
                return False
            await self._apply_change(change)
        return True

    def _own(self) -> dict[str, TopicState]:
        topics = self._node.topics
        return {
            topic.name: TopicState(topic.id, topic.partitions, topics.own_settings(topic.name))
            for topic in topics.each()
        }

    async def _apply_change(self, change: Change) -> None:
        topics = self._node.topics
        match change:
            case CreateTopic(name, topic_id, partitions, settings):
                first = min(partitions, MAX_PARTITIONS_AT_ONCE)
                await self._grow(await topics.create(name, first, settings, topic_id=topic_id), partitions)
            case AddPartitions(name, partitions):
                found = topics.get(name)
                assert found is not None
                await self._grow(found, partitions)
            case AlterSettings(name, changes):
                await topics.alter(name, changes)
            case DeleteTopic(name):
                await self._leave(name)
                await topics.delete(name)

    async def _grow(self, topic: Topic, partitions: int) -> None:
        """Add partitions up to this number, in as many calls as needed."""
        while topic.partitions < partitions:
            count = min(partitions, topic.partitions + MAX_PARTITIONS_AT_ONCE)
            topic = await self._node.topics.add_partitions(topic.name, count)


async def _last_version(connection: PeerConnection, now: tuple[int, int]) -> Version:
    """Return the leader's last version, on disk or not. Raise KafkalogError if it no longer leads."""
    answer = await connection.request(messages.DESCRIBE_QUORUM, messages.describe_request())
    leader, term = now
    if messages.read_described(answer) != (term, leader):
        raise PeerRefused("it is no longer the leader", peer=connection.peer)
    return messages.read_end_of(answer, leader)


def _states(cluster: Cluster, settings: dict[str, dict[str, str]]) -> dict[str, TopicState]:
    return {
        name: TopicState(topic.id, len(topic.leaders), settings.get(name)) for name, topic in cluster.topics.items()
    }
