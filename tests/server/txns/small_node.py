"""As much of a node as the transaction coordinator asks of it, on real logs, with a clock and timers of its own."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kafkalog.config.broker import BrokerConfig
from kafkalog.errors import UnknownTopicOrPartition
from kafkalog.manager.log_manager import LogManager
from kafkalog.server.settings.features import TRANSACTION
from kafkalog.server.txns.coordinator import TransactionCoordinator
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS, FileSystem

SETTINGS = {
    "transaction.max.timeout.ms": 900_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 10_000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 3_600_000,
    "transactional.id.expiration.ms": 7 * 86_400_000,
}
INTERNAL_PARTITIONS = 3


class SmallNode:
    """`marked` holds the markers sent to the group coordinator; `wait` fires the timers due after so many ms."""

    def __init__(self, manager: LogManager) -> None:
        self.store = manager
        self.config = SETTINGS
        self.is_read_only = False
        self.now_ms = 1_000_000
        self.marked: list[tuple[int, int, list[int], bool]] = []
        self.groups_are_loaded = asyncio.Event()
        self.groups_are_loaded.set()
        self.quorum = SimpleNamespace(replica_set=None)
        self.workers = None
        self.levels = {TRANSACTION: 2}
        self.features = SimpleNamespace(level=lambda name: self.levels.get(name, 0))
        self.topics = SimpleNamespace(get=self._topic, ensure_internal=self._ensure_internal)
        self.replicas = SimpleNamespace(
            partition=self._partition, append_now=self._append_now, settled=self._settled
        )
        commits = SimpleNamespace(on_transaction_ended=self._on_ended)
        self.groups = SimpleNamespace(loaded=self.groups_are_loaded.wait, commits=commits)
        self._timers: list[tuple[int, Callable[[], object]]] = []
        self.transactions = TransactionCoordinator(self)  # type: ignore[arg-type]

    def clock(self) -> int:
        return self.now_ms

    async def run(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        await asyncio.sleep(0)
        return function(*args, **named)

    def later(self, delay_ms: float, callback: Callable[[], object]) -> Any:
        timer = (self.now_ms + int(delay_ms), callback)
        self._timers.append(timer)
        return SimpleNamespace(cancel=lambda: timer in self._timers and self._timers.remove(timer))

    def wait(self, delay_ms: int) -> None:
        end = self.now_ms + delay_ms
        while due := [timer for timer in self._timers if timer[0] <= end]:
            first = min(due, key=lambda timer: timer[0])
            self._timers.remove(first)
            self.now_ms = max(self.now_ms, first[0])
            first[1]()
        self.now_ms = end

    def add_topic(self, name: str, partitions: int) -> None:
        for index in range(partitions):
            self.store.get_or_create(TopicPartition(name, index))

    def log(self, name: str, index: int = 0) -> UnifiedLog:
        found = self.store.logs.get(TopicPartition(name, index))
        if found is None:
            raise UnknownTopicOrPartition(f"there is no partition {index} of {name}")
        return found

    def _topic(self, name: str) -> Any:
        count = sum(key.topic == name for key in self.store.logs)
        return SimpleNamespace(name=name, partitions=count) if count else None

    async def _ensure_internal(self, name: str) -> Any:
        self.add_topic(name, INTERNAL_PARTITIONS)
        return self._topic(name)

    def _partition(self, name: str, index: int) -> Any:
        log = self.log(name, index)
        return SimpleNamespace(log=log, leader_epoch=log.leader_epoch, is_alone=True)

    async def _settled(self, keys: Any) -> int:
        return 0

    def _append_now(self, key: TopicPartition, batch: bytearray, origin: Any, *, epoch_bumps: bool = False) -> int:
        return self.log(*key).append_as_leader(batch, origin=origin, epoch_bumps=epoch_bumps).last_offset

    def _on_ended(self, producer_id: int, epoch: int, partitions: list[int], committed: bool) -> None:
        self.marked.append((producer_id, epoch, partitions, committed))


@contextmanager
def open_node(directory: Path, fs: FileSystem = OS) -> Iterator[SmallNode]:
    """A node on a directory, its coordinator not started; closed well."""
    directory.mkdir(exist_ok=True)
    with LogManager.open([directory], BrokerConfig(), fs=fs) as manager:
        yield SmallNode(manager)
