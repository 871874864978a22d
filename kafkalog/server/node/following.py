"""A follower's work in a replica set: take over the leader's topics and fetch their records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from kafkalog.errors import KafkalogError, UnknownTopicOrPartition
from kafkalog.server.client.cluster import read_cluster
from kafkalog.server.client.connection import PeerConnection
from kafkalog.server.client.login import connect
from kafkalog.server.client.settings import PeerSettings
from kafkalog.server.node.leaders_metadata import LeadersMetadata
from kafkalog.server.quorum.cluster_id import OtherCluster
from kafkalog.server.quorum.decisions import METADATA
from kafkalog.server.quorum.file import NO_NODE
from kafkalog.server.replica.following import FetchLimits
from kafkalog.server.replica.leader_source import LeaderSource
from kafkalog.server.replica.replica_fetcher import ReplicaFetcher
from kafkalog.server.replica.throttle import FollowingThrottle
from kafkalog.server.replica.voter_source import LIMITS, VoterSource, copy_ahead
from kafkalog.server.settings.config import ServerConfig
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

_LOG: Final = logging.getLogger(__name__)
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
REFRESH_SECONDS: Final = 5.0
"""Interval of reading the leader's topics without news of a change."""
AFTER_FAILURE_SECONDS: Final = 0.2
LEAVING_SECONDS: Final = 2.0
"""Most time in which a node that stops lets its leader know."""


class Following:
    """Follows the leader of the set between `start` and `stop`. Does nothing on a single node."""

    def __init__(self, node: Node, peers: PeerSettings | None = None) -> None:
        self._node = node
        self._peers = PeerSettings() if peers is None else peers
        self._leader: tuple[int, int] | None = None  # node and term of the followed leader
        self.fetcher: ReplicaFetcher | None = None
        """The current fetcher; None while no leader is followed."""
        self._wakeup: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._stop_lock = asyncio.Lock()
        self._pauses = 0  # active `held` blocks; no leader is followed while there are any
        self.metadata = LeadersMetadata(node, self._leave)
        self._last_error = ""  # the last logged reason why this node cannot follow

    async def start(self) -> None:
        """Start following the quorum's leader."""
        quorum = self._node.quorum
        if quorum.replica_set is None:
            return
        quorum.on_change(self._wake)
        quorum.on_leaders_change = self._wake
        quorum.before_taking_over.append(self.catch_up)
        quorum.copy_ahead = self.copy_from
        self._task = asyncio.get_running_loop().create_task(self._follow_loop())

    async def stop(self) -> None:
        """Stop fetching, wait until nothing is being written, and let the leader know that this node stops."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        followed = self._leader
        await self.let_go()
        if followed is not None and self._node.config["controlled.shutdown.enable"]:
            await self._leave_in_sync(followed[0])

    async def _leave_in_sync(self, leader: int) -> None:
        """Have the leader take this node out of the in-sync replicas: acks=all would wait for it until it is late."""
        try:
            async with asyncio.timeout(LEAVING_SECONDS):
                source = LeaderSource(await self._connected(leader), self._node.node_id, limits_of(self._node.config))
                try:
                    await source.leave()
                finally:
                    await source.close()
        except (KafkalogError, OSError, TimeoutError) as error:
            _LOG.info("node %d does not know that this node stops: %s", leader, error or type(error).__name__)

    async def let_go(self) -> None:
        """Stop following and wait until nothing is being written, except by clients of this node while it leads."""
        async with self._stop_lock:  # a second caller waits as well
            if self.fetcher is not None:
                await self.fetcher.stop()
            self.fetcher, self._leader = None, None
        if not self._node.quorum.leads:
            await self._node.replicas.pool_appends.ended()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Follow no leader inside the block: the logs do not change, and no leader learns that this node has more."""
        self._pauses += 1
        try:
            await self.let_go()
            await self.metadata.settled()
            yield
        finally:
            self._pauses -= 1
            self._wake()

    async def catch_up(self) -> None:
        """Take over the leader's current topics and settings. Raise KafkalogError, OSError."""
        leader_term = self._leader_to_follow()
        if leader_term is not None:
            await self._take_topics(leader_term, needs_all=True)

    async def copy_from(self, voter: int, ahead: Mapping[TopicPartition, int]) -> None:
        """Copy what a voter lends: first topics and settings, then records.

        `ahead` maps each partition to its last epoch at the voter. The caller follows no leader meanwhile. Raises
        KafkalogError, OSError, ValueError.
        """
        node = self._node
        if METADATA in ahead:
            connection = await self._connected(voter)
            try:
                await self.metadata.copy(connection)
            finally:
                await connection.close()
        partitions = []
        for key, last_epoch in ahead.items():
            with suppress(UnknownTopicOrPartition):
                partitions.append((node.replicas.find(key), last_epoch))
        source = VoterSource(await self._connected(voter), node.node_id, LIMITS)
        try:
            await copy_ahead(
                source, partitions, run=node.run, cutting=node.store.cutting, monotonic_ms=node.monotonic_ms,
                on_appended=node.replicas.appended_to,
            )  # fmt: skip
        finally:
            await source.close()

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def _follow_loop(self) -> None:
        while True:
            self._wakeup = asyncio.get_running_loop().create_future()
            wait_s = REFRESH_SECONDS
            try:
                await self._follow()
                self._last_error = ""
            except OtherCluster as error:  # only an operator can resolve this
                if str(error) != self._last_error:
                    self._last_error = str(error)
                    _LOG.error("this node cannot follow the leader: %s", error)
            except Exception as error:
                expected = isinstance(error, KafkalogError | OSError)
                _LOG.log(logging.INFO if expected else logging.ERROR, "cannot take over the leader's topics: %s", error,
                         exc_info=None if expected else error)  # fmt: skip
                wait_s = AFTER_FAILURE_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wakeup

    def _leader_to_follow(self) -> tuple[int, int] | None:
        quorum = self._node.quorum
        leader = quorum.leader
        has_leader = not self._pauses and not quorum.leads and leader not in (NO_NODE, self._node.node_id)
        return (leader, quorum.state.term) if has_leader else None

    async def _follow(self) -> None:
        leader_term = self._leader_to_follow()
        if leader_term != self._leader:
            await self.let_go()
            if leader_term is not None and leader_term == self._leader_to_follow():
                self._leader, self.fetcher = leader_term, self._fetcher_of(leader_term[0])
        if leader_term is None or self._leader != leader_term:
            return
        if self._node.quorum.metadata.versions.complete[0] == leader_term[1]:
            self._follow_partitions(leader_term)
        try:
            # a term's topics are taken before its records, so a node with both is never behind one with neither
            await self._take_topics(leader_term)
        finally:
            self._follow_partitions(leader_term)

    def _fetcher_of(self, leader: int) -> ReplicaFetcher:
        node = self._node
        limits = limits_of(node.config)

        async def to_leader() -> LeaderSource:
            return LeaderSource(await self._connected(leader), node.node_id, limits)

        fetcher = ReplicaFetcher(
            to_leader, run=node.run, cutting=node.store.cutting, monotonic_ms=node.monotonic_ms, limits=limits,
            throttle=FollowingThrottle(int(node.config[FOLLOWER_RATE]), self._is_throttled),
            on_appended=node.replicas.appended_to,
        )  # fmt: skip
        fetcher.start()
        return fetcher

    async def _connected(self, other: int) -> PeerConnection:
        """Connect to another node and check that it is of the same cluster. Raise PeerError, OtherCluster."""
        member = self._node.quorum.own_set[other]
        connection = await connect(member.host, member.port, self._peers)
        try:
            cluster = await read_cluster(connection, ())
            self._node.quorum.cluster.check(cluster.cluster_id, connection.peer)
        except BaseException:
            await connection.close()
            raise
        return connection

    def _is_throttled(self, key: TopicPartition) -> bool:
        from kafkalog.server.replica.throttle import is_throttled

        replicas = self._node.topics.settings(key.topic).follower_replication_throttled_replicas
        return bool(replicas) and is_throttled(replicas, key.partition, self._node.node_id)

    def _follow_partitions(self, leader_term: tuple[int, int]) -> None:
        node, fetcher = self._node, self.fetcher
        if fetcher is None or self._leader_to_follow() != leader_term or not node.cluster_id:
            return
        fetcher.throttle.bytes_per_second = int(node.config[FOLLOWER_RATE])
        for topic in node.topics.each():
            for index in range(topic.partitions):
                try:
                    partition = node.replicas.partition(topic.name, index)
                except KafkalogError as error:
                    _LOG.warning("cannot follow %s-%d: %s", topic.name, index, error)
                    continue
                if partition.role.leader_epoch == leader_term[1] and not partition.is_leader:
                    fetcher.follow(partition, leader_term[1])

    # Topics

    async def _take_topics(self, leader_term: tuple[int, int], *, needs_all: bool = False) -> None:
        connection = await self._connected(leader_term[0])
        try:
            await self.metadata.take(
                connection, leader_term, lambda: self._leader_to_follow() == leader_term, needs_all=needs_all
            )
        finally:
            await connection.close()

    async def _leave(self, name: str) -> None:
        topic = self._node.topics.get(name)
        if self.fetcher is not None and topic is not None:
            await self.fetcher.leave([TopicPartition(name, index) for index in range(topic.partitions)])


def limits_of(config: ServerConfig) -> FetchLimits:
    """Return the fetch limits of a node's settings."""
    return FetchLimits(
        max_wait_ms=max(0, config["replica.fetch.wait.max.ms"]),
        min_bytes=max(0, config["replica.fetch.min.bytes"]),
        max_bytes=config["replica.fetch.response.max.bytes"],
        partition_max_bytes=config["replica.fetch.max.bytes"],
        backoff_ms=max(1, config["replica.fetch.backoff.ms"]),
        timeout_ms=max(1, config["replica.socket.timeout.ms"]),
    )


def make(node: Node) -> Following:
    """Create the part that follows; it is created after `leading` and stopped before it."""
    if node.quorum.replica_set is None:
        return Following(node)
    from kafkalog.server.quorum.links import settings_of

    return Following(node, settings_of(node.config))
