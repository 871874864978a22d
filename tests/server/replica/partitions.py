"""Partitions and their manager without a server: topics in a dictionary, a clock that is set."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog.config.broker import BrokerConfig
from kafkalog.control import ControlType, marker_batch
from kafkalog.manager.log_manager import LogManager
from kafkalog.server.replica.partition import Partition
from kafkalog.server.replica.replica_manager import ReplicaManager
from kafkalog.server.replica.results import AppendParams, FetchParams, FetchPartition, FetchResult
from kafkalog.server.replica.roles import Role
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS, FileSystem
from tests.builder import R, batch

NODE = 1
T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
OFFSETS = TopicPartition("__consumer_offsets", 0)


class Topic(NamedTuple):
    name: str
    id: UUID
    partitions: int
    is_internal: bool


class Topics:
    """Topics as the manager asks about them."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.listeners: list[Callable[[Any, Any], object]] = []

    def get(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def on_change(self, callback: Callable[[Any, Any], object]) -> None:
        self.listeners.append(callback)


class Timer:
    def __init__(self, due_ms: float, callback: Callable[[], object]) -> None:
        self.due_ms = due_ms
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Time:
    """A clock that advances only on request."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.timers: list[Timer] = []

    def later(self, delay_ms: float, callback: Callable[[], object]) -> Timer:
        self.timers.append(Timer(self.now_ms + delay_ms, callback))
        return self.timers[-1]

    async def passes(self, ms: int) -> None:
        self.now_ms += ms
        for timer in [timer for timer in self.timers if timer.due_ms <= self.now_ms]:
            self.timers.remove(timer)
            if timer.callback is not None:
                timer.callback()
        await settle()


async def settle() -> None:
    """Let all that can run on the loop run."""
    for _ in range(5):
        await asyncio.sleep(0)


class Replicas(ReplicaManager):
    """A manager with what it was made of."""

    store: LogManager
    topics: Topics
    time: Time

    def add_topic(self, name: str, partitions: int = 2, **settings: Any) -> None:
        number = len(self.topics.topics) + 1
        for index in range(partitions):
            self.store.get_or_create(
                TopicPartition(name, index), settings={key.replace("_", "."): value for key, value in settings.items()}
            )
        self.topics.topics[name] = Topic(name, UUID(int=number), partitions, name.startswith("__"))

    async def delete_topic(self, name: str) -> None:
        topic = self.topics.topics.pop(name)
        for index in range(topic.partitions):
            self.store.delete(TopicPartition(name, index))
        for listener in self.topics.listeners:
            listener(topic, None)
        await settle()

    def with_followers(self, key: TopicPartition, *others: int, isr: Iterable[int] = (), epoch: int = 0) -> Partition:
        """The partition, led here with followers; in sync are those of `isr` and the leader."""
        partition = self.find(key)
        role = Role(NODE, epoch, partition.role.partition_epoch + 1, (NODE, *others), (NODE, *isr))
        partition.become_leader(role)
        return partition

    async def produce(self, *keys: TopicPartition, acks: int = 1, data: bytes | None = None, **more: Any) -> Any:
        batches = {key: bytearray(make_batch() if data is None else data) for key in keys}
        return await self.append(batches, AppendParams(acks, **{"timeout_ms": 1_000, **more}))


@asynccontextmanager
async def replicas_in(
    path: Path, *, other: Path | None = None, verify: Any = None, fs: FileSystem = OS, **settings: Any
) -> AsyncIterator[Replicas]:
    """A manager of an open store with a topic `t` of two partitions; `other` is a second data directory."""
    config = BrokerConfig(log_cleaner_enable=False, **settings)
    store = LogManager.open([str(path), *([str(other)] if other else [])], config, fs=fs)
    topics, time = Topics(), Time()

    async def run(function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, function, *args)

    manager = Replicas(
        store, topics, node_id=NODE, monotonic_ms=lambda: time.now_ms, run=run, later=time.later, verify=verify
    )
    manager.store, manager.topics, manager.time = store, topics, time
    try:
        manager.add_topic("t")
        yield manager
    finally:
        await manager.stop()
        store.close()


def make_batch(records: int = 1, *, timestamp: int = 5_000, **fields: int) -> bytes:
    """A batch of that many records."""
    return batch([R(b"value %d" % number, timestamp=timestamp) for number in range(records)], **fields)


def make_producer_batch(
    producer_id: int, sequence: int, *, epoch: int = 0, count: int = 1, transactional: bool = False
) -> bytes:
    """A batch of an idempotent or transactional producer."""
    attributes = 0x10 if transactional else 0
    fields = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return make_batch(count, attributes=attributes, **fields)


def make_marker(producer_id: int, kind: ControlType, *, epoch: int = 0, coordinator_epoch: int = 0) -> bytes:
    """The marker that a coordinator writes."""
    return bytes(marker_batch(kind, producer_id, epoch, coordinator_epoch, timestamp=1_000))


def consumer_params(max_wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = 1 << 20, **more: Any) -> FetchParams:
    return FetchParams(max_wait_ms, min_bytes, max_bytes, **more)


def request_at(key: TopicPartition, offset: int, max_bytes: int = 1 << 20, **more: Any) -> FetchPartition:
    return FetchPartition(key, offset, max_bytes, **more)


def offsets_in(result: FetchResult) -> list[int]:
    """The base offsets of the batches of an answer."""
    data = b"" if result.records is None else result.records.read()
    found = []
    while data:
        base, size = struct.unpack_from(">qi", data)
        found.append(base)
        data = data[size + 12 :]
    return found


GONE = TopicPartition("gone", 0)


def run(tmp_path: Path, body: Callable[[Replicas], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        async with replicas_in(tmp_path, **settings) as replicas:
            await body(replicas)

    asyncio.run(main())


def error_codes(results: dict[TopicPartition, Any]) -> list[int]:
    return [result.error_code for result in results.values()]


async def fetch_as_follower(replicas: Replicas, key: TopicPartition, node: int, offset: int) -> None:
    """A follower's fetch from this offset."""
    epoch = replicas.find(key).leader_epoch
    asked = request_at(key, offset, max_bytes=0, last_fetched_epoch=epoch, log_start_offset=0)
    await replicas.read(consumer_params(replica_id=node, isolation="log_end"), [asked])
