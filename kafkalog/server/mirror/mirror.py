"""Mirror of topics of a live Kafka cluster, with the same offsets and batch bytes.

It reads like a consumer, up to the high watermark, with the same fetcher as a follower: one for each broker that leads
a partition. Topics have the ids and the settings of the source. The mirror compacts nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.config.topic import TOPIC_TABLE, LogConfig
from kafkalog.errors import InconsistentTopicId, KafkalogError, UnknownTopicOrPartition
from kafkalog.manager.log_manager import LogManager
from kafkalog.server.client.cluster import Cluster, PeerTopic, read_cluster, read_topic_settings
from kafkalog.server.client.errors import PeerError, PeerUnreachable
from kafkalog.server.client.login import connect
from kafkalog.server.client.settings import PeerSettings
from kafkalog.server.node.topics import id_text
from kafkalog.server.replica.following import FetchLimits
from kafkalog.server.replica.leader_source import CONSUMER, LeaderSource
from kafkalog.server.replica.partition import Partition
from kafkalog.server.replica.replica_fetcher import ReplicaFetcher
from kafkalog.server.replica.roles import Role
from kafkalog.server.replica.topic_changes import setting_changes
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.client.connection import PeerConnection
    from kafkalog.server.node.pool import Run

_LOG: Final = logging.getLogger(__name__)
_MIRROR_ID: Final = -2
"""Node id of the mirror: it leads nothing, and no broker has this id."""
REFRESH_MS: Final = 5_000
"""Interval for reading leaders, new partitions and settings from the cluster, if nothing is urgent."""
SOON_MS: Final = 200


class _Followed(NamedTuple):
    partition: Partition
    node_id: int
    epoch: int


class Mirror:
    """Copies of topics in a store that no one else writes to, kept up to date from `start` to `stop`.

    The event loop owns it. `bootstrap` are (host, port) of brokers; `topics` are names. `run` runs a function in a
    thread.
    """

    def __init__(
        self,
        store: LogManager,
        bootstrap: Sequence[tuple[str, int]],
        topics: Iterable[str],
        *,
        run: Run,
        monotonic_ms: Callable[[], int],
        peers: PeerSettings | None = None,
        limits: FetchLimits | None = None,
    ) -> None:
        self._store = store
        self._bootstrap = tuple(bootstrap)
        self._topics = sorted(set(topics))
        self._run = run
        self._now_ms = monotonic_ms
        self._peers = PeerSettings() if peers is None else peers
        self._limits = FetchLimits() if limits is None else limits
        self._nodes: Mapping[int, tuple[str, int]] = {}
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._followed: dict[TopicPartition, _Followed] = {}
        self._partition_count = 0  # number of partitions, including those without a leader
        self._refresh_now: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_in_sync(self) -> bool:
        """True if every partition had all of its leader's records at the last fetch."""
        return 0 < self._partition_count == len(self._followed) and all(
            key in fetcher.states and fetcher.states[key].is_in_sync
            for key, one in self._followed.items() if (fetcher := self._fetchers.get(one.node_id)) is not None
        )  # fmt: skip

    @property
    def failures(self) -> list[PeerError]:
        """Errors of the brokers that cannot be followed now."""
        return [one.peer_error for one in self._fetchers.values() if one.peer_error is not None]

    async def start(self) -> None:
        """Create missing topics and start following.

        PeerError if no broker answers; UnknownTopicOrPartition; InconsistentTopicId if a topic here has another id than
        the cluster's; errors as in `LogManager.get_or_create`.
        """
        await self.refresh()
        self._task = asyncio.get_running_loop().create_task(self._refresh_loop())

    async def stop(self) -> None:
        """Stop following. On return nothing is being written."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        for fetcher in self._fetchers.values():
            await fetcher.stop()
        self._fetchers = {}

    # The cluster

    async def _refresh_loop(self) -> None:
        while True:
            self._refresh_now = asyncio.get_running_loop().create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout(REFRESH_MS / 1000):
                    await self._refresh_now
                await asyncio.sleep(SOON_MS / 1000)
            try:
                await self.refresh()
            except Exception as error:
                _LOG.warning("cannot read the cluster's topics: %s", error)

    async def refresh(self) -> None:
        """Read the cluster's current state and follow its partitions. Errors as in `start`.

        Once the mirror has started, an error of one topic is raised after the others are followed: their leaders move,
        and get partitions, whatever becomes of that one.
        """
        connection = await self._any_broker()
        try:
            cluster = await read_cluster(connection, self._topics)
            settings = await read_topic_settings(connection, [one for one in self._topics if one in cluster.topics])
        finally:
            await connection.close()
        self._nodes = cluster.nodes
        found, failure = list[str](), None
        for name in self._topics:
            try:
                if name not in cluster.topics:
                    raise UnknownTopicOrPartition(f"{connection.peer} has no topic {name}")
                await self._run(self._create_topic, cluster.topics[name], settings.get(name))
            except KafkalogError as error:
                if self._task is None:
                    raise
                failure = failure or error
            else:
                found.append(name)
        others = sum(key.topic not in found for key in self._followed)
        self._partition_count = others + sum(len(cluster.topics[name].leaders) for name in found)
        await self._follow(cluster, found)
        if failure is not None:
            raise failure

    async def _any_broker(self) -> PeerConnection:
        failure: PeerError = PeerUnreachable("no broker is given")
        for host, port in dict.fromkeys((*self._nodes.values(), *self._bootstrap)):
            try:
                return await connect(host, port, self._peers)
            except PeerError as error:
                failure = error
        raise failure

    def _create_topic(self, topic: PeerTopic, settings: Mapping[str, str] | None) -> None:
        """Create the topic's partitions with its id and settings; runs in a thread."""
        own = None if settings is None else _supported(settings)
        topic_id = None if topic.id is None else id_text(topic.id)
        for index in range(len(topic.leaders)):
            log = self._store.get_or_create(TopicPartition(topic.name, index), topic_id=topic_id, settings=own or {})
            known = read_partition_metadata(self._store.fs, log.path)
            if topic_id is not None and known != topic_id:
                raise InconsistentTopicId(
                    f"topic {topic.name} has the id {topic_id} in the source cluster, but {known} here",
                    path=log.path,
                    hint="it was deleted and recreated: use an empty directory, or delete the topic here",
                )
        changes = setting_changes(own, LogConfig.from_stored(self._store.topics.settings_of(topic.name)).overrides())
        if changes:
            self._store.alter_topic(topic.name, changes)

    async def _follow(self, cluster: Cluster, topics: Iterable[str]) -> None:
        for name in topics:
            topic = cluster.topics[name]
            for index, leader in enumerate(topic.leaders):
                key = TopicPartition(name, index)
                known = self._followed.get(key)
                if leader.node_id not in cluster.nodes or (known and known[1:] == leader):
                    continue
                partition = self._partition(key, topic, known)
                if known is not None:
                    await self._fetchers[known.node_id].leave([key])
                role = Role(leader.node_id, leader.epoch, partition.role.partition_epoch + 1, (leader.node_id,), ())
                partition.become_follower(role)
                self._followed[key] = _Followed(partition, *leader)
                self._fetcher_of(leader.node_id).follow(partition, leader.epoch)
        for node_id in self._fetchers.keys() - {one.node_id for one in self._followed.values()}:
            await self._fetchers[node_id].stop()
            del self._fetchers[node_id]

    def _partition(self, key: TopicPartition, topic: PeerTopic, known: _Followed | None) -> Partition:
        if known is not None:
            return known.partition
        log = self._store.get(key)
        assert log is not None
        return Partition(key, log, _MIRROR_ID, self._now_ms, topic_id=topic.id)

    def _fetcher_of(self, node_id: int) -> ReplicaFetcher:
        fetcher = self._fetchers.get(node_id)
        if fetcher is None:
            fetcher = self._fetchers[node_id] = ReplicaFetcher(
                partial(self._connect_to, node_id), run=self._run, cutting=self._store.cutting,
                monotonic_ms=self._now_ms, limits=self._limits, on_other_leader=lambda key, code: self._refresh_soon(),
            )  # fmt: skip
            fetcher.start()
        return fetcher

    async def _connect_to(self, node_id: int) -> LeaderSource:
        try:
            if node_id not in self._nodes:
                raise PeerUnreachable(f"the cluster has no broker {node_id} now")
            return LeaderSource(await connect(*self._nodes[node_id], self._peers), CONSUMER, self._limits)
        except PeerError:
            self._refresh_soon()  # another broker may lead by now
            raise

    def _refresh_soon(self) -> None:
        if self._refresh_now is not None and not self._refresh_now.done():
            self._refresh_now.set_result(None)


def _supported(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that exist here, in their stored form; a cluster has more."""
    names = {key.name for key in TOPIC_TABLE.keys}
    return dict(LogConfig.from_stored({name: text for name, text in settings.items() if name in names}).overrides())
