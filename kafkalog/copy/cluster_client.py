"""Requests to a cluster: to the leader of a partition, the coordinator of a group, or any broker, with retries.

A request that may succeed later is repeated for `delivery.timeout.ms`, longer than a broker's failover takes. For a
cluster that has never answered, and for a missing topic, there are only a few attempts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from kafkalog.errors import KafkalogError, UnknownTopicOrPartition, from_code
from kafkalog.server.client.cluster import Cluster, read_cluster
from kafkalog.server.client.connection import PeerConnection
from kafkalog.server.client.errors import PeerError, PeerUnreachable
from kafkalog.server.client.login import connect
from kafkalog.server.client.settings import PeerSettings
from kafkalog.server.error_codes import ErrorCode
from kafkalog.types import TopicPartition

T = TypeVar("T")
PRODUCE, FETCH, LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH = 0, 1, 2, 8, 9
FIND_COORDINATOR, LIST_GROUPS, CREATE_TOPICS, INIT_PRODUCER_ID, CREATE_PARTITIONS = 10, 16, 19, 22, 37
ATTEMPTS: Final = 8
"""Attempts to first reach a cluster, and to find a missing topic: about 5 s."""
_FIRST_PAUSE_MS: Final = 50
_MAX_PAUSE_MS: Final = 1600
_MISSING: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_RETRIABLE: Final = frozenset({
    ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_CONTROLLER, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LISTENER_NOT_FOUND, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID,
})  # fmt: skip
"""Errors after which Kafka's clients repeat a request: a broker, a leader, a disk or a coordinator is not ready."""


class RetryLater(KafkalogError):
    """A request that may succeed when it is repeated; `code` is the broker's error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise RetryLater or the typed error for an error code; do nothing for 0."""
    if code == 0:
        return
    text = f"{what}: {message}" if message else what
    if code in _RETRIABLE:
        raise RetryLater(code, text)
    raise from_code(code, text)


class ClusterClient:
    """Connections to a cluster, opened when they are needed. Threads: one event loop owns it.

    After `is_stopped()`, which may be called from the loop at any time, a request is not repeated.
    """

    def __init__(
        self,
        name: str,
        bootstrap: Sequence[tuple[str, int]],
        settings: PeerSettings,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.name = name
        self.settings = settings
        self._is_stopped = is_stopped
        self._was_reached = False
        self._bootstrap = tuple(bootstrap)
        self._cluster = Cluster(None, {}, {})
        self._open: dict[tuple[str, int], PeerConnection] = {}
        self._connecting = asyncio.Lock()
        self._coordinators: dict[str, tuple[str, int]] = {}

    async def close(self) -> None:
        """Close all connections."""
        opened, self._open = self._open, {}
        for connection in opened.values():
            await connection.close()

    async def read(self, names: Sequence[str] | None = None) -> Cluster:
        """Read the cluster's nodes, and these topics, or all; PeerError if no broker answers."""
        return await self.retried(lambda: self.try_read(names))

    async def try_read(self, names: Sequence[str] | None) -> Cluster:
        """Read as `read` does, without retries."""
        cluster = await self._try_brokers(lambda connection: read_cluster(connection, names))
        self._cluster = cluster._replace(topics={**self._cluster.topics, **cluster.topics})
        return cluster

    @property
    def nodes(self) -> Mapping[int, tuple[str, int]]:
        """Addresses of the nodes, as of the last `read`."""
        return self._cluster.nodes

    async def any_broker(self, call: Callable[[PeerConnection], Awaitable[T]]) -> T:
        """Return the result of `call` with a connection to any broker that answers."""
        return await self.retried(lambda: self._try_brokers(call))

    async def _try_brokers(self, call: Callable[[PeerConnection], Awaitable[T]]) -> T:
        failure: PeerError = PeerUnreachable("no broker is given")
        for address in dict.fromkeys((*self._open, *self._cluster.nodes.values(), *self._bootstrap)):
            try:
                return await call(await self.connection(address))
            except PeerError as error:
                failure = error
        raise failure

    async def connection(self, address: tuple[str, int]) -> PeerConnection:
        """Return the open connection to a broker, or a new one."""
        known = self._open.get(address)
        if known is not None and known.is_open:
            return known
        async with self._connecting:
            known = self._open.get(address)
            if known is None or not known.is_open:
                known = self._open[address] = await connect(*address, self.settings)
                self._was_reached = True
            return known

    async def leader(self, key: TopicPartition, *, is_new: bool = False) -> PeerConnection:
        """Return the connection to a partition's leader; `is_new` reads the leader from the cluster again.

        RetryLater if it has none now; the caller repeats this, so that each step is tried once.
        """
        if is_new or key.topic not in self._cluster.topics:
            await self.try_read([key.topic])
        topic = self._cluster.topics.get(key.topic)
        if topic is None or key.partition >= len(topic.leaders):
            raise RetryLater(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.name} has no partition {key}")
        address = self._cluster.nodes.get(topic.leaders[key.partition].node_id)
        if address is None:
            raise RetryLater(ErrorCode.LEADER_NOT_AVAILABLE, f"{key} has no leader in {self.name}")
        return await self.connection(address)

    async def ask_leader(self, key: TopicPartition, call: Callable[[PeerConnection], Awaitable[T]]) -> T:
        """Return the result of `call` with the leader of a partition, retried after transient errors."""
        tries = 0

        async def once() -> T:
            nonlocal tries
            tries += 1
            return await call(await self.leader(key, is_new=tries > 1))

        return await self.retried(once)

    async def ask_coordinator(self, group: str, call: Callable[[PeerConnection], Awaitable[T]]) -> T:
        """Return the result of `call` with the coordinator of a group, retried after transient errors."""

        async def once() -> T:
            try:
                if group not in self._coordinators:
                    self._coordinators[group] = await self._try_brokers(lambda one: _find_coordinator(one, group))
                return await call(await self.connection(self._coordinators[group]))
            except (PeerError, RetryLater):
                self._coordinators.pop(group, None)
                raise

        return await self.retried(once)

    async def retried(self, once: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `once`; retry it, for a limited time, after lost connections and transient errors."""
        clock, attempt = asyncio.get_running_loop(), 0
        deadline_s = clock.time() + self.settings.delivery_ms / 1000
        while True:
            attempt += 1
            is_over = self._is_stopped() or clock.time() >= deadline_s
            is_often = is_over or attempt >= ATTEMPTS
            try:
                return await once()
            except PeerError as error:
                if not error.retriable or (is_over if self._was_reached else is_often):
                    raise
            except RetryLater as error:
                if is_often if error.code in _MISSING else is_over:
                    raise _final(error) from None
            await asyncio.sleep(min(_MAX_PAUSE_MS, _FIRST_PAUSE_MS << min(attempt - 1, 10)) / 1000)


def _final(error: RetryLater) -> KafkalogError:
    """Return the typed error of a request that is no longer repeated."""
    if error.code == ErrorCode.LEADER_NOT_AVAILABLE:
        return PeerUnreachable(error.message)
    if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UnknownTopicOrPartition(error.message)
    return from_code(error.code or 0, error.message)


async def _find_coordinator(connection: PeerConnection, group: str) -> tuple[str, int]:
    tree = {"key": group, "key_type": 0, "coordinator_keys": [group]}
    answer = await connection.request(FIND_COORDINATOR, tree)
    found: Any = answer.coordinators[0] if hasattr(answer, "coordinators") else answer
    check(found.error_code, f"{connection.peer} cannot name the coordinator of group {ascii(group)}")
    return found.host, found.port
