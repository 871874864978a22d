"""A leader with its sockets and a follower without, in one process: for tests of what is copied."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kafkalog.server.client.login import connect
from kafkalog.server.node.node import Node
from kafkalog.server.replica.following import FetchLimits
from kafkalog.server.replica.leader_source import LeaderSource
from kafkalog.server.replica.partition import Partition
from kafkalog.server.replica.replica_fetcher import ReplicaFetcher
from kafkalog.server.replica.roles import Role
from kafkalog.server.serving import Server
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from tests.builder import R, batch
from tests.server.client.peers import HOST, server_on
from tests.server.nodes import node_for

LEADER, FOLLOWER = 1, 2
QUICK = FetchLimits(max_wait_ms=50, backoff_ms=40, least_backoff_ms=5)
_DEADLINE_S = 60


def make_leader(node: Node, key: TopicPartition, epoch: int) -> Partition:
    """The partition, led by the node in an epoch, with a follower that is not in sync."""
    partition: Partition = node.replicas.find(key)
    members = (node.node_id, FOLLOWER)
    role = Role(node.node_id, epoch, partition.role.partition_epoch + 1, members, (node.node_id,))
    partition.become_leader(role)
    return partition


def make_follower(node: Node, key: TopicPartition, epoch: int, leader: Partition) -> Partition:
    """The partition, which follows another node's, under the topic id that it has there."""
    partition: Partition = node.replicas.find(key)
    partition.topic_id = leader.topic_id
    role = Role(leader.node_id, epoch, partition.role.partition_epoch + 1, (LEADER, node.node_id), (LEADER,))
    partition.become_follower(role)
    return partition


class Pair:
    """A leader and a follower of the topics `t` and `u`, two partitions each; `fetcher` follows once it is started."""

    def __init__(self, server: Server, own: Node, limits: FetchLimits) -> None:
        self.server, self.leader, self.own = server, server.node, own
        self.leader_errors: list[tuple[TopicPartition, int]] = []
        self.connections = 0
        self.fetcher = ReplicaFetcher(
            self._connect, run=own.run, cutting=own.store.cutting, monotonic_ms=own.monotonic_ms, limits=limits,
            on_appended=own.replicas.appended_to,
            on_other_leader=lambda key, code: self.leader_errors.append((key, code)),
        )  # fmt: skip
        self.limits = limits

    async def _connect(self) -> LeaderSource:
        self.connections += 1
        return LeaderSource(await connect(HOST, self.server.ports["PLAINTEXT"]), FOLLOWER, self.limits)

    def begin(self, *keys: TopicPartition, epoch: int = 0) -> None:
        """Both take their roles in an epoch, and the follower follows."""
        for key in keys:
            self.fetcher.follow(make_follower(self.own, key, epoch, make_leader(self.leader, key, epoch)), epoch)

    def logs(self, key: TopicPartition) -> tuple[UnifiedLog, UnifiedLog]:
        """The leader's log and the follower's."""
        return self.leader.replicas.find(key).log, self.own.replicas.find(key).log

    def append(self, key: TopicPartition, *values: bytes) -> int:
        """The last offset of a batch that the leader writes."""
        data = bytearray(batch([R(value) for value in values]))
        return self.leader.replicas.append_now(key, data, required_acks=1)

    async def until_same(self, *keys: TopicPartition) -> None:
        """Until the follower has all that the leader has, and the same bytes."""
        await until(lambda: all(self.is_same(key) for key in keys), lambda: [self.logs(key) for key in keys])
        for key in keys:
            leader, own = self.logs(key)
            start = max(leader.log_start_offset, own.log_start_offset)
            assert bytes_from(own, start) == bytes_from(leader, start)

    def is_same(self, key: TopicPartition) -> bool:
        """Return True if both logs have the same start and end, and the follower's high watermark is the leader's."""
        leader, own = self.logs(key)
        has_begun = own.leader_epochs[-1:] == leader.leader_epochs[-1:] or not own.leader_epochs
        return has_begun and (leader.log_start_offset, leader.log_end_offset, leader.high_watermark) == (
            own.log_start_offset, own.log_end_offset, own.high_watermark
        )


async def until(holds: Callable[[], bool], describe: Callable[[], object] = lambda: None) -> None:
    """Return once it holds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _DEADLINE_S
    while not holds():
        assert loop.time() < end, describe()
        await asyncio.sleep(0.002)


def bytes_from(log: UnifiedLog, start: int) -> bytes:
    """All batches from an offset on, as they lie in the files."""
    found, offset = b"", start
    while offset < log.log_end_offset:
        records = log.read(offset, 1 << 30, "log_end", True).records
        if not records.size:
            break
        data = records.read()
        found += data
        position = 0
        while position < len(data):
            base, size = int.from_bytes(data[position : position + 8], "big"), int.from_bytes(
                data[position + 8 : position + 12], "big"
            )
            offset = base + int.from_bytes(data[position + 23 : position + 27], "big") + 1
            position += 12 + size
    return found


@asynccontextmanager
async def pair_in(path: Path, limits: FetchLimits = QUICK, **settings: Any) -> AsyncIterator[Pair]:
    """A pair, whose fetcher is stopped at the end. The records, which are old, stay however long a test takes."""
    async with server_on(path / "leader", node_id=LEADER, log_retention_ms=-1) as server:
        async with node_for(path / "own", node_id=FOLLOWER, log_retention_ms=-1, **settings) as own:
            for name in ("t", "u"):
                await server.node.topics.create(name, 2)
                await own.topics.create(name, 2)
            pair = Pair(server, own, limits)
            try:
                yield pair
            finally:
                await pair.fetcher.stop()


def partitions_of(*names: str) -> Iterable[TopicPartition]:
    """Both partitions of topics."""
    return [TopicPartition(name, index) for name in names for index in range(2)]
