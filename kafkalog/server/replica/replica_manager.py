"""The partitions of a node: appends and reads over several of them, and requests that wait for a partition."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafkalog._core.batch.scan import BatchTable, scan
from kafkalog.errors import (
    InvalidTopic,
    KafkalogError,
    LogClosed,
    NotLeaderOrFollower,
    StorageError,
    UnknownTopicOrPartition,
)
from kafkalog.server.error_codes import ErrorCode, Refused, code_of
from kafkalog.server.replica.append_results import appended, refused
from kafkalog.server.replica.append_sizes import most_at_once
from kafkalog.server.replica.delayed_delete import DelayedDelete, Deletion
from kafkalog.server.replica.delayed_fetch import DelayedFetch
from kafkalog.server.replica.delayed_produce import DelayedProduce
from kafkalog.server.replica.fetch_session import FetchSessions
from kafkalog.server.replica.partition import Partition
from kafkalog.server.replica.pool_appends import PoolAppends
from kafkalog.server.replica.purgatory import Later, WaitingRequests
from kafkalog.server.replica.reading import HeldBack, held_back_by, must_wait, read_partitions
from kafkalog.server.replica.results import AppendParams, AppendResult, FetchParams, FetchPartition, FetchResult
from kafkalog.server.replica.roles import ALL, Role, majority_of, role_in_set, without_places
from kafkalog.server.replica.throttle import ReplicationRate, leaders_rate
from kafkalog.server.replica.verification import NOTHING_TO_VERIFY, Verified, transactional_batches, verified
from kafkalog.server.requests.cooperative_yield import CooperativeYield
from kafkalog.storage.append import Origin
from kafkalog.storage.producer_state import VerificationGuard
from kafkalog.types import LogAppendInfo, TopicPartition

if TYPE_CHECKING:
    from kafkalog._core.batch.ready_batch import ReadyBatch
    from kafkalog.manager.log_manager import LogManager
    from kafkalog.server.node.node import Node
    from kafkalog.server.node.pool import Run
    from kafkalog.server.node.topics import Topic, Topics
    from kafkalog.server.replica.verification import Asker, Verifier
    from kafkalog.util.buffers import Data

_LOG: Final = logging.getLogger(__name__)
ACKS: Final = frozenset({-1, 0, 1})
_LAG_MAX_MS: Final = 30_000
SETTLED_MS: Final = 5_000
"""Time limit for replicating a coordinator's write, as `offsets.commit.timeout.ms` has it."""
UNPACKED_AT_ONCE: Final = 2
"""Number of appends decompressed at the same time: each may take the 256 MiB that one batch may have."""
Batches = Mapping[TopicPartition, tuple["Data", BatchTable]]


class ReplicaManager:
    """All partitions of a node. The event loop owns it; long operations run in the pool through `run`.

    `verify` asks the coordinator of a transaction; without it, transactions are not verified. `set_role` returns the
    role that a replica set gives all partitions; without it, the node is alone and leads. `settle` waits until the
    known state of a transaction is replicated. `throttle` counts the bytes that followers fetch. In a worker, `ask`
    asks the coordinator instead of `verify`; `is_elsewhere` returns True for a partition of another process.
    """

    def __init__(
        self,
        store: LogManager,
        topics: Topics,
        *,
        node_id: int,
        monotonic_ms: Callable[[], int],
        run: Run,
        later: Later,
        lag_max_ms: int = _LAG_MAX_MS,
        verify: Verifier | None = None,
        fetch_sessions: int = 1000,
        set_role: Callable[[], Role] | None = None,
        settle: Callable[[str], Awaitable[int]] | None = None,
        throttle: ReplicationRate | None = None,
        ask: Asker | None = None,
        is_elsewhere: Callable[[TopicPartition], bool] = lambda _: False,
        **purge_intervals: int,
    ) -> None:
        self.sessions = FetchSessions(fetch_sessions, monotonic_ms)
        self.waiting = WaitingRequests(later, **purge_intervals)
        self.pool_appends = PoolAppends()
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
        self._ask = ask
        self._is_elsewhere = is_elsewhere
        self._lag_timer: asyncio.TimerHandle | None = None
        self._partitions: dict[TopicPartition, Partition] = {}
        self._unpacking = asyncio.Semaphore(UNPACKED_AT_ONCE)
        self._may_append = asyncio.Event()
        self._may_append.set()
        self._holds_writes = False
        topics.on_change(self._topic_changed)

    async def start(self) -> None:
        """Start removing late followers from the ISR, in a replica set. Partitions are looked up on first use."""
        if self._set_role is not None:
            self._lag_timer = self._later(self._lag_max_ms / 2, self._drop_late)

    async def stop(self) -> None:
        """Answer all waiting requests with the results available now."""
        if self._lag_timer is not None:
            self._lag_timer.cancel()
        self.waiting.stop()

    # Partitions

    def partition(self, topic: str, index: int) -> Partition:
        """Return the partition. UnknownTopicOrPartition; StorageError if its disk is offline."""
        return self.find(TopicPartition(topic, index))

    def find(self, key: TopicPartition) -> Partition:
        """Return the partition for `key`. Errors as in `partition`."""
        partition = self._partitions.get(key)
        if partition is not None and not partition.log.closed:
            return partition
        return self._look_up(key, partition)

    def _look_up(self, key: TopicPartition, before: Partition | None) -> Partition:
        topic = self._topics.get(key.topic)
        if topic is None or not 0 <= key.partition < topic.partitions:
            raise UnknownTopicOrPartition(f"there is no partition {key}")
        log = self._store.get(key)
        if log is None or log.closed:
            if self._is_elsewhere(key):
                raise NotLeaderOrFollower(f"{key} lies with another worker")
            if before is not None:
                before.failed()
            problem = self._store.problems.get(key)
            if problem is not None:
                raise StorageError(f"{key} is offline: {problem.message}", path=problem.path, hint=problem.hint)
            if any(True for _ in self._store.offline):
                raise StorageError(f"the disk of {key} is offline", hint="see the server's log for the disk's error")
            raise UnknownTopicOrPartition(f"there is no partition {key}")
        if before is not None:  # the log was moved to another directory
            before.log, before.followers = log, without_places(before.followers)
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
            self._assign_role(partition, self._set_role())
        self._partitions[key] = partition
        return partition

    def moved(self, key: TopicPartition) -> None:
        """Use the log that a partition has in another directory now."""
        partition = self._partitions.get(key)
        if partition is not None:
            self._look_up(key, partition)
            self.waiting.wake(key)

    def _assign_role(self, partition: Partition, role: Role) -> None:
        """Give one partition the role of the whole set, with a partition epoch above its current one."""
        role = role_in_set(partition.role, role)
        if role.leader == self._node_id:
            partition.become_leader(role)
        else:
            partition.become_follower(role)

    def take_roles(self, *, is_retry: bool = False) -> None:
        """Give all partitions the set's current role, and answer requests that can no longer succeed (FLOW-4).

        With `is_retry` only those that do not have it, after a disk error.
        """
        if self._set_role is None:
            return
        role = self._set_role()
        for key, partition in tuple(self._partitions.items()):
            if is_retry and partition.role[:2] == role[:2]:
                continue
            try:
                self._assign_role(partition, role)
            except KafkalogError as error:  # a disk error: the partition keeps its old role, which takes no writes
                _LOG.error("cannot change the role of %s: %s", key, error)
            self.waiting.wake(key)

    def hold_writes(self) -> None:
        """Append nothing until `release_writes`: requests wait, and coordinators get NotLeaderOrFollower."""
        self._may_append.clear()
        self._holds_writes = True

    def release_writes(self) -> None:
        """Resume the waiting appends, under the roles that their partitions have by then."""
        self._holds_writes = False
        self._may_append.set()

    def _drop_late(self) -> None:
        self._lag_timer = self._later(self._lag_max_ms / 2, self._drop_late)
        self.take_roles(is_retry=True)
        self.drop_followers()

    def drop_followers(self, left: int | None = None) -> None:
        """Remove late followers, and one that has `left`, from the in-sync replicas (the controller does in Kafka)."""
        for key, partition in tuple(self._partitions.items()):
            try:
                if not partition.drop_late(left):
                    continue
            except KafkalogError as error:  # a disk error: the role has changed, the high watermark has not
                _LOG.error("cannot move the high watermark of %s: %s", key, error)
            self.waiting.wake(key)

    def _topic_changed(self, before: Topic | None, after: Topic | None) -> None:
        if before is None or after is not None:
            return
        for index in range(before.partitions):
            key = TopicPartition(before.name, index)
            partition = self._partitions.pop(key, None)
            if partition is not None:
                partition.deleted()
                self.waiting.wake(key)

    # Appends

    def append_at_once(self, key: tuple[str, int], data: Data, table: BatchTable, acks: int) -> AppendResult | None:
        """Append a client's batch on the loop and return the result, or return None with nothing done. It takes small,
        non-transactional batches that stay unchanged, without other replicas or a wait; `append_scanned` takes all."""
        partition = self._partitions.get(key)  # type: ignore[call-overload]  # equal to its TopicPartition
        if partition is None or self._holds_writes or acks not in ACKS:
            return None
        log, role = partition.log, partition.role
        config = log.config
        most_bytes = most_at_once(config.flush_messages, config.compression_type, table.codec)
        if partition.followers or role.leader != self._node_id or table.valid_bytes > most_bytes:
            return None
        if log.append_waits(role.leader_epoch):
            return None
        try:
            info = log.append_ready(data, leader_epoch=role.leader_epoch, table=table)
        except LogClosed:
            return None  # the log may be reopened elsewhere
        except Exception as error:
            return refused(partition.topic_partition, error, partition)
        if info is None:
            return None
        if partition.listeners:
            partition.after_append()
        waiting = self.waiting
        if waiting.produce.delayed or waiting.fetch.delayed or waiting.deletion.delayed:
            waiting.wake(partition.topic_partition)
        return appended(info)

    async def append(
        self, entries: Mapping[TopicPartition, Data], params: AppendParams
    ) -> dict[TopicPartition, AppendResult]:
        """Append one batch to each partition and return the results in the same order. Wait as `params` says.

        Batches are writable buffers and are edited in place. A failed partition does not affect the others (FLOW-6).
        """
        return await self.append_scanned({key: (data, scan(data)) for key, data in entries.items()}, params)

    async def append_scanned(self, batches: Batches, params: AppendParams) -> dict[TopicPartition, AppendResult]:
        """Append batches that are already scanned; otherwise like `append`."""
        if params.required_acks not in ACKS:
            return dict.fromkeys(batches, AppendResult(ErrorCode.INVALID_REQUIRED_ACKS))
        checked = NOTHING_TO_VERIFY
        if params.origin == "client":
            begun = transactional_batches((key, table) for key, (_, table) in batches.items())
            if begun:
                checked = await verified(begun, params, self.find, self._verify, self._ask)
        if checked.guards and self._settle is not None and await self._settle(params.transactional_id or ""):
            # append only once the transaction is certain to have the partition: otherwise no one would end it there
            too_few = AppendResult(ErrorCode.NOT_ENOUGH_REPLICAS)
            checked = Verified({**dict.fromkeys(checked.guards, too_few), **checked.refused}, {})
        results = {}
        must_wait = False
        turns = CooperativeYield()
        for key, (data, table) in batches.items():
            await turns.row()
            refusal = checked.refused.get(key)
            if refusal is not None:
                results[key] = refusal
                continue
            partition = None
            while self._holds_writes:
                await self._may_append.wait()
            try:
                partition = self._writable(key, params.internal_allowed)
                if params.topic_ids and partition.topic_id != params.topic_ids.get(key.topic):
                    raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)  # deleted and created again meanwhile
                info = await self._appended(partition, data, table, params, checked.guards.get(key))
            except Exception as error:
                results[key] = refused(key, error, partition)
            else:
                results[key] = appended(info)
                must_wait = must_wait or not partition.is_alone
        if params.required_acks != ALL or not must_wait:  # without followers, an append is replicated at once
            return results
        return await self._replicated(results, params)

    def append_now(
        self,
        key: TopicPartition,
        batch: Data | ReadyBatch,
        origin: Origin = "coordinator",
        *,
        required_acks: int = ALL,
        guard: VerificationGuard | None = None,
        epoch_bumps: bool = False,
    ) -> int:
        """Append a coordinator's batch on the loop and return its last offset. Errors as in `Partition.append`."""
        if self._holds_writes:
            raise NotLeaderOrFollower(f"the leader of {key} is handing over")
        data = bytearray(batch) if isinstance(batch, bytes) else batch
        partition = self.find(key)
        info = partition.append(data, required_acks, origin=origin, guard=guard, epoch_bumps=epoch_bumps)
        self.appended_to(partition)
        return info.last_offset

    def appended_to(self, partition: Partition) -> None:
        """Wake the requests that wait for a partition, after an append or a move of its high watermark."""
        partition.after_append()
        self.waiting.wake(partition.topic_partition)

    def _writable(self, key: TopicPartition, internal_allowed: bool) -> Partition:
        partition = self.find(key)
        topic = None if internal_allowed else self._topics.get(key.topic)
        if topic is not None and topic.is_internal:
            raise InvalidTopic(f"Cannot append to internal topic {key.topic}")
        return partition

    async def _appended(
        self, partition: Partition, data: Data, table: BatchTable, params: AppendParams,
        guard: VerificationGuard | None,
    ) -> LogAppendInfo:  # fmt: skip
        append = partial(partition.append, data, params.required_acks, origin=params.origin, table=table, guard=guard)
        log, epoch = partition.log, partition.leader_epoch
        most_bytes = most_at_once(log.config.flush_messages, log.config.compression_type, table.codec)
        if table.valid_bytes <= most_bytes and not log.append_waits(epoch):
            info = append()
            self.appended_to(partition)
            return info

        async def in_pool() -> LogAppendInfo:
            async with self._unpacking if table.codec else nullcontext():
                info = await self._run(append)
            self.appended_to(partition)
            if not partition.is_leader or partition.leader_epoch != epoch:  # its vote may have left this batch out
                raise NotLeaderOrFollower(f"this node stopped leading {partition.topic_partition} during the append")
            return info

        return await self.pool_appends.start(in_pool())

    async def _replicated(
        self, results: dict[TopicPartition, AppendResult], params: AppendParams
    ) -> dict[TopicPartition, AppendResult]:
        delay = partial(DelayedProduce, params.timeout_ms, results, self.find)
        return await self.waiting.answer(self.waiting.produce, delay, results, params.on_wait)

    async def settled(self, keys: Iterable[TopicPartition], timeout_ms: int = SETTLED_MS) -> int:
        """Wait until everything now in these partitions is replicated, and return 0 or an error code:
        REQUEST_TIMED_OUT, or that of a partition not led here. Partitions without other replicas need no wait."""
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

    async def fetch(self, params: FetchParams, requests: Sequence[FetchPartition]) -> list[FetchResult]:
        """Read the partitions and return their results in order, waiting for enough data as `params` says."""
        if params.replica_id < 0:
            results = await read_partitions(params, requests, self._partitions, self.find, self._run)
        else:
            results = await self.read(params, requests)
        if not must_wait(params, results):
            return results
        waiting = [(one, result.place) for one, result in zip(requests, results, strict=True)]
        delay = partial(DelayedFetch, params, waiting, self.find, held_back=self._held_back(params))
        await self.waiting.answer(self.waiting.fetch, delay, [one.topic_partition for one in requests])
        return await self.read(params, requests, results)

    async def read(
        self, params: FetchParams, requests: Sequence[FetchPartition], before: Sequence[FetchResult] = ()
    ) -> list[FetchResult]:
        """Read the partitions without waiting; otherwise like `fetch`. `before` is as in `read_partitions`."""
        held_back = self._held_back(params)
        results = await read_partitions(params, requests, self._partitions, self.find, self._run, held_back, before)
        if params.is_from_follower and not params.is_from_candidate:
            reused = {id(one) for one in before}
            self._follower_read(
                params, [(one, found) for one, found in zip(requests, results, strict=True) if id(found) not in reused]
            )
        return results

    def _held_back(self, params: FetchParams) -> HeldBack | None:
        if self._throttle is None or not params.is_from_follower or params.is_from_candidate:
            return None
        return held_back_by(self._throttle, self._node_id, params.replica_id)

    def _follower_read(self, params: FetchParams, read: Iterable[tuple[FetchPartition, FetchResult]]) -> None:
        for one, result in read:
            if result.error_code:
                continue
            try:
                partition = self.find(one.topic_partition)
                partition.check_topic_id(one.topic_id)  # it may be one created again since it was read
                start, epoch = one.log_start_offset, one.last_fetched_epoch
                moved = partition.follower_fetched(params.replica_id, result, start, epoch)
            except KafkalogError as error:
                result.error_code, result.records = error.code, None
                continue
            if moved:
                self.waiting.wake(one.topic_partition)
            elif self.waiting.deletion.delayed:
                self.waiting.deletion.check_and_complete(one.topic_partition)

    # Deleting

    async def delete_records(self, key: TopicPartition, offset: int) -> int:
        """Delete a partition's records below `offset` and return its low watermark (PART-11).

        InvalidTopic for an internal topic; other errors as in `Partition.delete_records`.
        """
        partition = self.find(key)
        topic = self._topics.get(key.topic)
        if topic is None:  # deletion is in progress, and some partitions remain
            raise UnknownTopicOrPartition(f"there is no topic {key.topic}")
        if topic.is_internal:
            raise InvalidTopic(f"Cannot delete records of internal topic {key.topic}")
        return await self._run(partition.delete_records, offset)

    async def deleted_everywhere(
        self, offsets: Mapping[TopicPartition, int], timeout_ms: int
    ) -> dict[TopicPartition, Deletion]:
        """Wait until all replicas have deleted the records below these offsets, and return each outcome."""
        delay = partial(DelayedDelete, timeout_ms, offsets, self.find)
        return await self.waiting.answer(self.waiting.deletion, delay, offsets)


def make(node: Node) -> ReplicaManager:
    """Return the ReplicaManager of a node that has `store` and `topics`; `transactions` may be set later."""
    config, workers, owner = node.config, node.workers, node.owner
    is_alone = node.quorum.replica_set is None

    def is_elsewhere(key: TopicPartition) -> bool:
        if owner is not None:
            return node.store.problems.get(key) is None
        return workers is not None and key in workers.owners

    def verify(*batch: Any, **version: Any) -> Mapping[TopicPartition, int]:
        return node.transactions.verify(*batch, **version)

    return ReplicaManager(
        node.store,
        node.topics,
        node_id=node.node_id,
        monotonic_ms=node.monotonic_ms,
        run=node.run,
        later=node.later,
        lag_max_ms=config["replica.lag.time.max.ms"],
        verify=verify if config["transaction.partition.verification.enable"] else None,
        set_role=None if is_alone else node.quorum.role,
        settle=None if is_alone else lambda transactional_id: node.transactions.settled(transactional_id),
        throttle=None if is_alone else leaders_rate(node),
        ask=None if owner is None else owner.verify,
        is_elsewhere=is_elsewhere,
        fetch_sessions=config["max.incremental.fetch.session.cache.slots"],
        produce_purge_interval=config["producer.purgatory.purge.interval.requests"],
        fetch_purge_interval=config["fetch.purgatory.purge.interval.requests"],
    )
