"""The partitions of a node: appends and reads over several of them, and the requests that wait for one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkalog._core.scan import BatchTable, scan
from kafkalog.errors import InvalidTopic, KafkalogError, NotLeaderOrFollower, StorageError, UnknownTopicOrPartition
from kafkalog.server.error_codes import ErrorCode, code_of
from kafkalog.server.replica.append_results import appended, refused
from kafkalog.server.replica.delayed_delete import DelayedDelete, Deletion
from kafkalog.server.replica.delayed_fetch import DelayedFetch
from kafkalog.server.replica.delayed_produce import DelayedProduce
from kafkalog.server.replica.fetch_session import FetchSessions
from kafkalog.server.replica.partition import Partition
from kafkalog.server.replica.reading import held_back_by, must_wait, read_partitions
from kafkalog.server.replica.results import AppendParams, AppendResult, FetchParams, FetchPartition, FetchResult
from kafkalog.server.replica.roles import ALL, Role, majority_of
from kafkalog.server.replica.throttle import LEADER_RATE, ReplicationRate
from kafkalog.server.replica.verification import Verified, Verifier, transactional_batches, verified
from kafkalog.server.replica.waiting import Later, WaitingRequests
from kafkalog.server.turns import Turns
from kafkalog.storage.append import Origin
from kafkalog.storage.producer_state import VerificationGuard
from kafkalog.types import LogAppendInfo, TopicPartition

if TYPE_CHECKING:
    from kafkalog.manager.log_manager import LogManager

_LOG: Final = logging.getLogger(__name__)
ACKS: Final = frozenset({-1, 0, 1})
PLAIN_BYTES: Final = 1 << 20
COMPRESSED_BYTES: Final = 2 << 10
"""An append of more than this goes to the pool. What is compressed may be ten thousand times as large inside."""
_LEFT_PLAIN: Final = frozenset({"producer", "uncompressed"})
"""Settings of a topic with which a batch that comes plain is written plain: with others it is packed."""
UNPACKED_AT_ONCE: Final = 2
"""As many appends are decompressed side by side: each may take the 256 MiB that one batch may have."""
_LAG_MAX_MS: Final = 30_000
SETTLED_MS: Final = 5_000
"""What a coordinator wrote has so long to be replicated, as `offsets.commit.timeout.ms` has it."""
Batches = Mapping[TopicPartition, tuple[Any, BatchTable]]


class Topics(Protocol):
    """What is asked about topics here."""

    def get(self, name: str, /) -> Any: ...

    def on_change(self, callback: Callable[[Any, Any], object], /) -> None: ...


class ReplicaManager:
    """All of it belongs to the loop; what takes long goes to the pool by `run`.

    `verify` asks the coordinator of a transaction; without it transactions are not verified. `set_role` tells what a
    replica set says of all partitions; without it the node is alone, and leads. `settle` waits until what is known of a
    transaction is replicated. `throttle` counts what followers fetch.
    """

    def __init__(
        self,
        store: LogManager,
        topics: Topics,
        *,
        node_id: int,
        monotonic_ms: Callable[[], int],
        run: Callable[..., Awaitable[Any]],
        later: Later,
        lag_max_ms: int = _LAG_MAX_MS,
        verify: Verifier | None = None,
        fetch_sessions: int = 1000,
        set_role: Callable[[], Role] | None = None,
        settle: Callable[[str], Awaitable[int]] | None = None,
        throttle: ReplicationRate | None = None,
        **purge_intervals: int,
    ) -> None:
        self.sessions = FetchSessions(fetch_sessions, monotonic_ms)
        self.waiting = WaitingRequests(monotonic_ms, later, **purge_intervals)
        self._store = store
        self._topics = topics
        self._node_id = node_id
        self._monotonic_ms = monotonic_ms
        self._run = run
        self._later = later
        self._lag_max_ms = lag_max_ms
        self._verify = verify
        self._set_role = set_role
        self._settle = settle
        self._throttle = throttle
        self._lag_timer: Any = None
        self._partitions: dict[TopicPartition, Partition] = {}
        self._unpacking = asyncio.Semaphore(UNPACKED_AT_ONCE)
        self._appending = 0
        self._may_append = asyncio.Event()
        self._may_append.set()
        topics.on_change(self._topic_changed)

    async def start(self) -> None:
        """In a replica set: followers that are late leave the replicas in sync from now on. Partitions are looked up
        when they are first asked for."""
        if self._set_role is not None:
            self._lag_timer = self._later(self._lag_max_ms / 2, self._drop_late)

    async def stop(self) -> None:
        """Answer all requests that wait, with what there is."""
        if self._lag_timer is not None:
            self._lag_timer.cancel()
        self.waiting.stop()

    # Partitions

    def partition(self, topic: str, index: int) -> Partition:
        """The partition; UnknownTopicOrPartition, or StorageError where its disk is offline."""
        return self.find(TopicPartition(topic, index))

    def find(self, key: TopicPartition) -> Partition:
        """As `partition`."""
        partition = self._partitions.get(key)
        if partition is not None and not partition.log.closed:
            return partition
        return self._looked_up(key, partition)

    def _looked_up(self, key: TopicPartition, before: Partition | None) -> Partition:
        topic = self._topics.get(key.topic)
        if topic is None or not 0 <= key.partition < topic.partitions:
            raise UnknownTopicOrPartition(f"there is no partition {key}")
        log = self._store.get(key)
        if log is None or log.closed:
            if before is not None:
                before.failed()
            problem = self._store.problems.get(key)
            if problem is not None:
                raise StorageError(f"{key} is offline: {problem.message}", path=problem.path, hint=problem.hint)
            if any(True for _ in self._store.offline):
                raise StorageError(f"the disk of {key} is offline", hint="the server's log has the disk's error")
            raise UnknownTopicOrPartition(f"there is no partition {key}")
        if before is not None:  # its log was moved to another directory
            before.log = log
            partition = before
        else:
            partition = Partition(
                key, log, self._node_id, self._monotonic_ms, topic_id=topic.id, lag_max_ms=self._lag_max_ms,
                least_isr=1 if self._set_role is None else majority_of(len(self._set_role().replicas)),
            )  # fmt: skip
        log.verifies_transactions = self._verify is not None
        if self._set_role is None:
            epochs = log.leader_epochs
            alone = (self._node_id,)
            partition.become_leader(Role(self._node_id, epochs[-1][0] if epochs else 0, 0, alone, alone))
        else:
            self._give(partition, self._set_role())
        self._partitions[key] = partition
        return partition

    def _give(self, partition: Partition, role: Role) -> None:
        """A role of the whole set, for one partition, later than the one that it has."""
        role = role._replace(partition_epoch=partition.role.partition_epoch + 1)
        if role.leader == self._node_id:
            partition.become_leader(role)
        else:
            partition.become_follower(role)

    def take_roles(self) -> None:
        """Give all partitions the role that the replica set has now, and answer who waits for what is over (FLOW-4)."""
        if self._set_role is None:
            return
        role = self._set_role()
        for key, partition in tuple(self._partitions.items()):
            try:
                self._give(partition, role)
            except KafkalogError as error:  # its disk: it keeps the role that it had, in which nobody writes
                _LOG.error("%s cannot be led: %s", key, error)
            self.waiting.wake(key)

    def hold_writes(self) -> None:
        """Append nothing until `release_writes`: requests wait, coordinators are told that this node does not lead."""
        self._may_append.clear()

    def release_writes(self) -> None:
        """Let those who wait go on, as the roles of their partitions say then."""
        self._may_append.set()

    @property
    def is_appending(self) -> bool:
        """Whether appends that began are not done."""
        return self._appending > 0

    def _drop_late(self) -> None:
        self._lag_timer = self._later(self._lag_max_ms / 2, self._drop_late)
        for key, partition in tuple(self._partitions.items()):
            if partition.drop_late():
                self.waiting.wake(key)

    def _topic_changed(self, before: Any, after: Any) -> None:
        if before is None or after is not None:
            return
        for index in range(before.partitions):
            key = TopicPartition(before.name, index)
            partition = self._partitions.pop(key, None)
            if partition is not None:
                partition.deleted()
                self.waiting.wake(key)

    def on_high_watermark(self, key: TopicPartition, callback: Callable[[TopicPartition, int], object]) -> bool:
        """Call back with each move of a partition's high watermark; False for one that is gone."""
        return self.find(key).add_listener(_HighWatermarkListener(callback))

    # Appends

    async def append(
        self, entries: Mapping[TopicPartition, Any], params: AppendParams
    ) -> dict[TopicPartition, AppendResult]:
        """What came of an append of one batch to each partition, in the order given; it waits as `params` says.

        Batches are writable buffers and are edited in place. A partition that fails harms no other (FLOW-6).
        """
        return await self.append_scanned({key: (data, scan(data)) for key, data in entries.items()}, params)

    async def append_scanned(self, batches: Batches, params: AppendParams) -> dict[TopicPartition, AppendResult]:
        """As `append`, of batches that were scanned already."""
        if params.required_acks not in ACKS:
            return dict.fromkeys(batches, AppendResult(ErrorCode.INVALID_REQUIRED_ACKS))
        checked = self._verified(batches, params) if params.origin == "client" else _NOT_ASKED
        if checked.guards and self._settle is not None and await self._settle(params.transactional_id or ""):
            # no record before it is certain that the transaction has its partition: nobody would end it there
            too_few = AppendResult(ErrorCode.NOT_ENOUGH_REPLICAS)
            checked = Verified({**dict.fromkeys(checked.guards, too_few), **checked.refused}, {})
        results = {}
        must_wait = False
        turns = Turns()
        for key, (data, table) in batches.items():
            await turns.row()
            refusal = checked.refused.get(key)
            if refusal is not None:
                results[key] = refusal
                continue
            partition = None
            while not self._may_append.is_set():
                await self._may_append.wait()
            try:
                partition = self._writable(key, params.internal_allowed)
                info = await self._appended(partition, data, table, params, checked.guards.get(key))
            except Exception as error:
                results[key] = refused(key, error, partition)
            else:
                results[key] = appended(info)
                must_wait = must_wait or not partition.is_alone
        if params.required_acks != ALL or not must_wait:  # alone, a leader's append is replicated as soon as it is done
            return results
        return await self._replicated(results, params)

    def append_now(
        self,
        key: TopicPartition,
        batch: Any,
        origin: Origin = "coordinator",
        *,
        required_acks: int = ALL,
        guard: VerificationGuard | None = None,
        epoch_bumps: bool = False,
    ) -> int:
        """The last offset of a small batch of a coordinator, written on the loop. Errors as `Partition.append`."""
        if not self._may_append.is_set():
            raise NotLeaderOrFollower(f"the leader of {key} hands over")
        data = bytearray(batch) if isinstance(batch, bytes) else batch
        partition = self.find(key)
        info = partition.append(data, required_acks, origin=origin, guard=guard, epoch_bumps=epoch_bumps)
        self.appended_to(partition)
        return info.last_offset

    def appended_to(self, partition: Partition) -> None:
        """Let those know who wait for a partition: something was appended, or its high watermark moved."""
        partition.after_append()
        self.waiting.wake(partition.topic_partition)

    def _writable(self, key: TopicPartition, internal_allowed: bool) -> Partition:
        partition = self.find(key)
        topic = None if internal_allowed else self._topics.get(key.topic)
        if topic is not None and topic.is_internal:
            raise InvalidTopic(f"Cannot append to internal topic {key.topic}")
        return partition

    async def _appended(
        self, partition: Partition, data: Any, table: BatchTable, params: AppendParams, guard: VerificationGuard | None
    ) -> LogAppendInfo:
        append = partial(partition.append, data, params.required_acks, origin=params.origin, table=table, guard=guard)
        if not (partition.append_syncs or _takes_long(table, partition.log.config.compression_type)):
            info: LogAppendInfo = append()
            self.appended_to(partition)
            return info

        async def in_pool() -> LogAppendInfo:
            try:
                if table.codec:
                    async with self._unpacking:
                        info: LogAppendInfo = await self._run(append)
                else:
                    info = await self._run(append)
                self.appended_to(partition)
            finally:
                self._appending -= 1
            return info

        self._appending += 1

        # a client that goes away does not undo what is being written, and readers are told of it all the same
        return await asyncio.shield(asyncio.ensure_future(in_pool()))

    def _verified(self, batches: Batches, params: AppendParams) -> Verified:
        found = transactional_batches((key, table) for key, (_, table) in batches.items())
        if not found:
            return _NOT_ASKED
        result = Verified({}, {})
        for key in tuple(found):
            try:
                self.find(key)
            except KafkalogError as error:
                result.refused[key] = refused(key, error, None)
                del found[key]
        asked = verified(found, params.transactional_id, params.produce_version, self.find, self._verify)
        return Verified(result.refused | asked.refused, asked.guards)

    async def _replicated(
        self, results: dict[TopicPartition, AppendResult], params: AppendParams
    ) -> dict[TopicPartition, AppendResult]:
        future: asyncio.Future[dict[TopicPartition, AppendResult]] = asyncio.get_running_loop().create_future()
        operation = DelayedProduce(params.timeout_ms, results, self.find, _answer(future))
        if not self.waiting.watch(self.waiting.produce, operation, results) and params.on_wait is not None:
            params.on_wait()
        try:
            return await future
        finally:
            self.waiting.produce.cancel(operation)

    async def settled(self, keys: Iterable[TopicPartition], timeout_ms: int = SETTLED_MS) -> int:
        """0 once all that lies in these partitions now is replicated, at once where nobody else has a copy; else the
        error code: of a partition that is not led here (any more), or REQUEST_TIMED_OUT."""
        written: dict[TopicPartition, AppendResult] = {}
        for key in keys:
            try:
                partition = self.find(key)
            except KafkalogError as error:
                return code_of(error)
            if not partition.is_alone:
                written[key] = AppendResult(last_offset=partition.log.log_end_offset - 1)
        if not written:
            return 0
        results = await self._replicated(written, AppendParams(ALL, timeout_ms))
        return next((result.error_code for result in results.values() if result.error_code), 0)

    # Reads

    async def fetch(self, params: FetchParams, asked: Sequence[FetchPartition]) -> list[FetchResult]:
        """What the partitions give, in the order asked; it waits until there is enough, or as long as `params` says."""
        results = await self.read(params, asked)
        if not must_wait(params, results):
            return results
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = [(one, result.place) for one, result in zip(asked, results, strict=True)]
        operation = DelayedFetch(params, waiting, self.find, _wake(future))
        self.waiting.watch(self.waiting.fetch, operation, [one.topic_partition for one in asked])
        try:
            await future
        finally:
            self.waiting.fetch.cancel(operation)
        return await self.read(params, asked, results)

    async def read(
        self, params: FetchParams, asked: Sequence[FetchPartition], before: Sequence[FetchResult] = ()
    ) -> list[FetchResult]:
        """As `fetch`, of what there is now; `before` as in `read_partitions`."""
        follows = params.is_from_follower and not params.is_from_candidate
        held_back = None
        if self._throttle is not None and follows:
            held_back = held_back_by(self._throttle, self._node_id, params.replica_id)
        results = await read_partitions(params, asked, self.find, self._run, held_back, before)
        if follows:
            kept = {id(one) for one in before}
            self._follower_read(
                params, [(one, found) for one, found in zip(asked, results, strict=True) if id(found) not in kept]
            )
        return results

    def _follower_read(self, params: FetchParams, read: Iterable[tuple[FetchPartition, FetchResult]]) -> None:
        for one, result in read:
            if result.error_code:
                continue
            try:
                partition = self.find(one.topic_partition)
                moved = partition.follower_fetched(
                    params.replica_id, result, one.log_start_offset, one.last_fetched_epoch
                )
            except KafkalogError as error:
                result.error_code, result.records = error.code, None
                continue
            if moved:
                self.waiting.wake(one.topic_partition)
            elif self.waiting.deletion.delayed:
                self.waiting.deletion.check_and_complete(one.topic_partition)

    # Deleting

    async def delete_records(self, key: TopicPartition, offset: int) -> int:
        """The low watermark of a partition of which what lies below `offset` was given up (PART-11).

        InvalidTopic for a topic of the node's own; errors as `Partition.delete_records`.
        """
        partition = self.find(key)
        topic = self._topics.get(key.topic)
        if topic is None:  # it is being deleted, and its partitions are not all gone yet
            raise UnknownTopicOrPartition(f"there is no topic {key.topic}")
        if topic.is_internal:
            raise InvalidTopic(f"Cannot delete records of internal topic {key.topic}")
        low: int = await self._run(partition.delete_records, offset)
        return low

    async def deleted_everywhere(
        self, wanted: Mapping[TopicPartition, int], timeout_ms: int
    ) -> dict[TopicPartition, Deletion]:
        """What came of it that all replicas give up what lies below these offsets; it waits until they have."""
        future: asyncio.Future[dict[TopicPartition, Deletion]] = asyncio.get_running_loop().create_future()
        operation = DelayedDelete(timeout_ms, wanted, self.find, _answer(future))
        self.waiting.watch(self.waiting.deletion, operation, wanted)
        try:
            return await future
        finally:
            self.waiting.deletion.cancel(operation)


class _HighWatermarkListener:
    """A listener that is one function."""

    def __init__(self, callback: Callable[[TopicPartition, int], object]) -> None:
        self.on_high_watermark = callback

    def on_failed(self, topic_partition: TopicPartition) -> None:
        """Its next append says so."""

    def on_deleted(self, topic_partition: TopicPartition) -> None:
        """There is nothing more to follow."""


_NOT_ASKED: Final = Verified({}, {})


def _takes_long(table: BatchTable, compression_type: str) -> bool:
    is_plain = not table.codec and compression_type in _LEFT_PLAIN
    return table.valid_bytes > (PLAIN_BYTES if is_plain else COMPRESSED_BYTES)


def _answer(future: asyncio.Future[Any]) -> Callable[[Any], object]:
    return lambda result: None if future.done() else future.set_result(result)


def _wake(future: asyncio.Future[Any]) -> Callable[[], object]:
    return lambda: None if future.done() else future.set_result(None)


def _throttle(node: Any) -> ReplicationRate:
    return ReplicationRate(lambda: int(node.config[LEADER_RATE]), node.monotonic_ms)


def make(node: Any) -> ReplicaManager:
    """The replicas of a node that has its `store` and `topics`; its transactions are asked once there are any."""
    config = node.config

    def verify(*who: Any, **more: Any) -> Mapping[TopicPartition, int]:
        codes: Mapping[TopicPartition, int] = node.transactions.verify(*who, **more)
        return codes

    async def settle(transactional_id: str) -> int:
        return int(await node.transactions.settled(transactional_id))

    return ReplicaManager(
        node.store,
        node.topics,
        node_id=node.node_id,
        monotonic_ms=node.monotonic_ms,
        run=node.run,
        later=node.later,
        lag_max_ms=config["replica.lag.time.max.ms"],
        verify=verify if config["transaction.partition.verification.enable"] else None,
        set_role=None if node.quorum.replica_set is None else node.quorum.role,
        settle=None if node.quorum.replica_set is None else settle,
        throttle=None if node.quorum.replica_set is None else _throttle(node),
        fetch_sessions=config["max.incremental.fetch.session.cache.slots"],
        produce_purge_interval=config["producer.purgatory.purge.interval.requests"],
        fetch_purge_interval=config["fetch.purgatory.purge.interval.requests"],
    )
