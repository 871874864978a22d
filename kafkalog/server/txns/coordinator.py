"""The transaction coordinator: it checks producers' calls and ends each transaction in all of its partitions.

    a call -> a decision (decisions.py) -> its record -> (for an end: markers, and one more record)

It runs in the event loop's thread. No step awaits between a decision and its record, so changes of a transaction never
overlap. An end is answered once its markers are written. While many markers are written, other requests are served;
those for the same transaction get an error to retry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import IllegalState, KafkalogError
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.requests.cooperative_yield import TURN_ROWS
from kafkalog.server.txns.decisions import (
    COMMIT_ABORTABLE,
    COMMIT_ADDS,
    PRODUCE_ADDS,
    ProducerEpoch,
    decide_abort,
    decide_add,
    decide_end,
    decide_init,
    decide_verify,
    produce_error,
    verification_error,
)
from kafkalog.server.txns.markers import Marker, write_markers
from kafkalog.server.txns.producer_ids import ProducerIds, first_producer_id, ids_of
from kafkalog.server.txns.records import TOPIC
from kafkalog.server.txns.states import CLASSIC, EPOCH_BUMPS, TransactionState
from kafkalog.server.txns.transaction import Transaction, completed
from kafkalog.server.txns.transaction_log import TransactionLog
from kafkalog.types import TopicPartition
from kafkalog.util.shielded import shielded

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

_LOG: Final = logging.getLogger(__name__)
RETRY_MS: Final = 100
"""Delay before a failed end is retried; it doubles with each further retry, up to `MAX_RETRY_MS`."""
MAX_RETRY_MS: Final = 10_000
Codes = dict[TopicPartition, ErrorCode]


class Assigned(NamedTuple):
    """A producer id and epoch, both -1 in case of an error."""

    error: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1


class TransactionCoordinator:
    """The transactions of a node. Only for the event loop's thread, between `start` and `stop`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._log = TransactionLog(node)
        self._ids: ProducerIds | None = None
        self._starting: asyncio.Future[None] | None = None
        self._loading: asyncio.Future[None] | None = None
        self._open_ends: dict[str, frozenset[TopicPartition]] = {}
        self._finishing: set[asyncio.Task[ErrorCode]] = set()
        self._retry_ms = RETRY_MS
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # Start and stop

    async def start(self) -> None:
        """Start loading the transactions in the background.

        Meanwhile, calls with a transactional id return COORDINATOR_LOAD_IN_PROGRESS; those without one wait until the
        assigned producer ids are known.
        """
        self._starting = asyncio.ensure_future(self._read())
        self._loading = asyncio.ensure_future(self._load())
        if self._node.is_read_only:  # open transactions stay open: no partition can be written
            return
        config = self._node.config
        self._every("late", config["transaction.abort.timed.out.transaction.cleanup.interval.ms"], self.abort_late)
        self._every("expired", config["transaction.remove.expired.transaction.cleanup.interval.ms"], self.expire)

    async def stop(self) -> None:
        """Cancel timers and tasks. The next start resumes unfinished ends."""
        self._log.is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for task in (self._starting, self._loading, *self._finishing):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def loaded(self) -> None:
        """Wait until all transactions are loaded and the ends that a crash interrupted are written."""
        if self._loading is not None:
            await shielded(self._loading)

    def _every(self, name: str, period_ms: int, step: Callable[[], object]) -> None:
        def run() -> None:
            self._timers[name] = self._node.later(period_ms, run)
            try:
                step()
            except Exception:
                _LOG.exception("the sweep of %s transactions failed", name)

        self._timers[name] = self._node.later(period_ms, run)

    async def _read(self) -> None:
        """Load the transactions and find the first free producer id.

        It is also above the ids of transactions, whose producers may never have written.
        """
        store = self._node.store
        directories = [directory.path for directory in store.online]
        first = await self._node.run(first_producer_id, directories, tuple(store.logs.values()), store.fs)
        await self._log.load()
        if self._node.quorum.replica_set is None:
            ids = ProducerIds(directories, first, self._node.run, fs=store.fs)
        else:
            ids = await ids_of(self._node)
            ids.skip_to(first - 1)
        for transaction in self._log:
            ids.skip_to(max(transaction.producer_id, transaction.next_producer_id))
        if self._node.workers is not None:
            ids.skip_to(self._node.workers.least_producer_id - 1)
        self._ids = ids

    async def _load(self) -> None:
        try:
            await self._finish_all()
        except Exception:
            _LOG.exception("the transactions could not be loaded; none is served")

    async def _finish_all(self) -> None:
        await self._producer_ids()
        # a marker in `__consumer_offsets` needs a group coordinator that has loaded its pending offsets
        await self._node.groups.loaded()
        self._log.is_loading = False
        unfinished = [] if self._node.is_read_only else [one for one in self._log if one.state.is_prepared]
        for transaction in unfinished:
            await self._wait_until_finished(self._finish(transaction, transaction.partitions))

    async def _producer_ids(self) -> ProducerIds:
        assert self._starting is not None, "the coordinator was not started"
        await shielded(self._starting)
        assert self._ids is not None
        return self._ids

    # Calls of producers

    async def init_producer_id(
        self, transactional_id: str | None, timeout_ms: int, expected: ProducerEpoch | None = None
    ) -> Assigned:
        """Assign a producer id and epoch (InitProducerId).

        An open transaction of the transactional id is aborted; the answer is then CONCURRENT_TRANSACTIONS, and the
        client retries.
        """
        if transactional_id is None:
            ids = await self._producer_ids()
            await ids.ready()
            return Assigned(ErrorCode.NONE, ids.take(), 0)
        if not transactional_id:
            return Assigned(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._node.config["transaction.max.timeout.ms"]:
            return Assigned(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        if self._node.topics.get(TOPIC) is None:
            await self._node.topics.ensure_internal(TOPIC)
        if self._log.is_loading:
            return Assigned(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        ids = await self._producer_ids()
        await ids.ready()  # no await from here to the record
        error, known = self._log.find(transactional_id)
        if error != ErrorCode.NONE:
            return Assigned(error)
        now_ms = self._node.clock()
        if known is None:
            known = Transaction(transactional_id, ids.take(), timeout_ms=timeout_ms, update_ms=now_ms)
        decision = decide_init(known, timeout_ms, expected, now_ms, ids.take)
        after = decision.transaction
        if after is None:
            return Assigned(decision.error)
        if after.state == TransactionState.PREPARE_EPOCH_FENCE:
            aborted, _ = self._end(decide_abort(known, now_ms))
            return Assigned(ErrorCode.CONCURRENT_TRANSACTIONS if aborted == ErrorCode.NONE else aborted)
        error = self._log.write(after)
        if error == ErrorCode.NONE:
            error = await self._log.settled(transactional_id)
        if error != ErrorCode.NONE:
            return Assigned(error)
        return Assigned(ErrorCode.NONE, after.producer_id, after.producer_epoch)

    async def settled(self, transactional_id: str) -> ErrorCode:
        """Wait until the transaction's records are replicated. Return NONE or the error for its producer."""
        return await self._log.settled(transactional_id)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerEpoch,
        partitions: Collection[TopicPartition],
        client_version: int = CLASSIC,
    ) -> ErrorCode:
        """Add existing partitions to the transaction; the first ones begin it. Return the error code."""
        error, known = self._log.find(transactional_id)
        if error != ErrorCode.NONE:
            return error
        decision = decide_add(known, producer, frozenset(partitions), client_version, self._node.clock())
        return decision.error if decision.transaction is None else self._log.write(decision.transaction)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Collection[TopicPartition]
    ) -> Codes:
        """Return NONE for each partition in the transaction, TRANSACTION_ABORTABLE for others, or an error for all."""
        error, known = self._log.find(transactional_id)
        if error != ErrorCode.NONE:
            return dict.fromkeys(partitions, error)
        return decide_verify(known, producer, frozenset(partitions))

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        produce_version: int,
    ) -> Codes:
        """Return Produce's error codes for partitions whose transaction is not open in their log (FLOW-9)."""
        producer = ProducerEpoch(producer_id, producer_epoch)
        found = self._verify_or_add(transactional_id, producer, partitions, produce_version >= PRODUCE_ADDS)
        return {partition: produce_error(code, produce_version) for partition, code in found.items()}

    def verify_commit(
        self, transactional_id: str, producer: ProducerEpoch, partition: TopicPartition, version: int
    ) -> ErrorCode:
        """Return TxnOffsetCommit's error code for the group's partition of `__consumer_offsets`."""
        found = self._verify_or_add(transactional_id, producer, [partition], version >= COMMIT_ADDS)
        return verification_error(found[partition], version >= COMMIT_ABORTABLE)

    def _verify_or_add(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Collection[TopicPartition], adds: bool
    ) -> Codes:
        if not adds:
            return self.verify_partitions(transactional_id, producer, partitions)
        return dict.fromkeys(partitions, self.add_partitions(transactional_id, producer, partitions, EPOCH_BUMPS))

    async def end(
        self, transactional_id: str, producer: ProducerEpoch, committed: bool, client_version: int = CLASSIC
    ) -> Assigned:
        """Commit or abort (EndTxn). Return the id and epoch for the next transaction once the markers are written."""
        if not transactional_id:
            return Assigned(ErrorCode.INVALID_REQUEST)
        if self._log.is_loading:
            return Assigned(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        ids = await self._producer_ids()
        error, known = self._log.find(transactional_id)
        if known is not None and known.is_exhausted:
            await ids.ready()  # no await from here to the record
            error, known = self._log.find(transactional_id)
        if error != ErrorCode.NONE:
            return Assigned(error)
        now_ms = self._node.clock()
        decision = decide_end(known, producer, committed, client_version, now_ms, ids.take)
        if decision.error != ErrorCode.NONE or known is None:
            return Assigned(decision.error)
        after = known
        if decision.transaction is not None:
            error, finishing = self._end(decision.transaction)
            if error != ErrorCode.NONE:
                return Assigned(error)
            error = await self._wait_until_finished(finishing)
            if error != ErrorCode.NONE:
                return Assigned(error)
            after = completed(decision.transaction, now_ms)
        return Assigned(ErrorCode.NONE, after.producer_id, after.producer_epoch)

    # Queries

    def describe(self, transactional_id: str) -> tuple[ErrorCode, Transaction | None]:
        """Return the transaction of an id, or the error code if it cannot be described."""
        error, known = self._log.find(transactional_id)
        if error == ErrorCode.NONE and (known is None or known.state == TransactionState.DEAD):
            error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return error, known

    def transactions(
        self,
        titles: Collection[str] = (),
        producer_ids: Collection[int] = (),
        duration_ms: int = -1,
    ) -> list[Transaction] | None:
        """Return the transactions that pass all filters; None while loading (KIP-664, KIP-994).

        An empty or negative filter accepts all. `duration_ms` accepts transactions that began more than this time ago,
        whether or not they have ended.
        """
        if self._log.is_loading:
            return None
        now_ms = self._node.clock()
        return [
            one for one in self._log
            if one.state != TransactionState.DEAD
            and (not titles or one.state.title in titles)
            and (not producer_ids or one.producer_id in producer_ids)
            and (duration_ms < 0 or now_ms - one.start_ms > duration_ms)
        ]  # fmt: skip

    # Ends

    def _end(self, prepared: Transaction) -> tuple[ErrorCode, asyncio.Task[ErrorCode] | None]:
        """Write the decision to end a transaction, then its markers, then the completed state.

        Once the decision is in the log, the end is certain; later steps that fail are retried.
        """
        error = self._log.write(prepared)
        return error, self._finish(prepared, prepared.partitions) if error == ErrorCode.NONE else None

    def _finish(self, prepared: Transaction, partitions: frozenset[TopicPartition]) -> asyncio.Task[ErrorCode] | None:
        """Write an end's markers and completed state, at once or in a task; return the task, or None.

        A task is used for many partitions, to serve other requests in between, and if each step must be replicated
        before the next. Calls for a transaction that is being ended get an error to retry.
        """
        try:
            is_alone = self._log.is_alone(prepared.transactional_id) and not self._elsewhere(partitions)
        except KafkalogError:  # the disk of the transaction's own record is offline, or its topic is being deleted
            self._retry_later(prepared, partitions)
            return None
        if len(partitions) <= TURN_ROWS and is_alone:
            self._complete(prepared, self._mark(prepared, partitions))
            return None
        task = asyncio.get_running_loop().create_task(self._finish_in_turns(prepared, sorted(partitions)))
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)
        return task

    @staticmethod
    async def _wait_until_finished(task: asyncio.Task[ErrorCode] | None) -> ErrorCode:
        """Wait for the task. Return NONE if the end is certain, even if parts of it must be retried."""
        if task is None:
            return ErrorCode.NONE
        await asyncio.wait([task])
        return ErrorCode.NOT_COORDINATOR if task.cancelled() else task.result()

    async def _finish_in_turns(self, prepared: Transaction, partitions: Sequence[TopicPartition]) -> ErrorCode:
        error = await self._log.settled(prepared.transactional_id)
        if error != ErrorCode.NONE:  # no marker before the decision is replicated
            if error != ErrorCode.NOT_COORDINATOR:
                self._retry_later(prepared, frozenset(partitions))
            return error
        elsewhere = self._elsewhere(partitions)
        failed = set(await self._mark_elsewhere(prepared, elsewhere))
        partitions = [one for one in partitions if one not in elsewhere]
        for first in range(0, len(partitions), TURN_ROWS):
            failed |= self._mark(prepared, frozenset(partitions[first : first + TURN_ROWS]))
            await asyncio.sleep(0)
        existing = [one for one in partitions if one not in failed and self._node.topics.get(one.topic) is not None]
        if await self._node.replicas.settled(existing):
            failed |= set(partitions)  # a lost marker would leave it open: write all again
        self._complete(prepared, frozenset(failed))
        return ErrorCode.NONE if failed else await self._log.settled(prepared.transactional_id)

    def _mark(self, prepared: Transaction, partitions: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """Write markers; return the partitions where this failed, to be retried."""
        try:
            return write_markers(self._node, partitions, self._marker(prepared))
        except Exception:  # retry after any error: the end is certain
            name = ascii(prepared.transactional_id[:80])
            _LOG.exception("the end of transaction %s is incomplete and will be retried", name)
            return partitions

    def _marker(self, prepared: Transaction) -> Marker:
        return Marker(
            prepared.producer_id, prepared.producer_epoch, prepared.state == TransactionState.PREPARE_COMMIT,
            self._log.coordinator_epoch(prepared.transactional_id), prepared.client_version,
        )  # fmt: skip

    def _elsewhere(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions that lie with a worker."""
        workers = self._node.workers
        return frozenset() if workers is None else frozenset(one for one in partitions if one in workers.owners)

    async def _mark_elsewhere(
        self, prepared: Transaction, partitions: frozenset[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Write markers as `_mark`, in partitions of workers."""
        workers = self._node.workers
        if workers is None or not partitions:
            return frozenset()
        return await workers.mark(partitions, self._marker(prepared))

    def _complete(self, prepared: Transaction, failed: frozenset[TopicPartition]) -> None:
        try:
            if not failed and self._log.write(completed(prepared, self._node.clock())) == ErrorCode.NONE:
                return
        except Exception:
            name = ascii(prepared.transactional_id[:80])
            _LOG.exception("the end of transaction %s is not recorded and will be retried", name)
        self._retry_later(prepared, failed)

    def _retry_later(self, prepared: Transaction, failed: frozenset[TopicPartition]) -> None:
        self._open_ends[prepared.transactional_id] = failed
        if "ends" not in self._timers and not self._log.is_closed:
            self._timers["ends"] = self._node.later(self._retry_ms, self._finish_open_ends)

    def _finish_open_ends(self) -> None:
        self._timers.pop("ends", None)
        self._retry_ms = min(2 * self._retry_ms, MAX_RETRY_MS)
        open_ends, self._open_ends = self._open_ends, {}
        for transactional_id, failed in open_ends.items():
            known = self._log.find(transactional_id)[1]
            if known is not None and known.state.is_prepared:
                self._finish(known, failed)
        if not self._open_ends and not self._finishing:
            self._retry_ms = RETRY_MS

    # Sweeps

    def abort_late(self) -> int:
        """Abort the transactions that are open longer than their timeout; return the number of such transactions."""
        now_ms = self._node.clock()
        late = [] if self._log.is_loading else [one for one in self._log if one.is_late(now_ms)]
        for transaction in late:
            name = ascii(transaction.transactional_id[:80])
            try:
                error, _ = self._end(decide_abort(transaction, now_ms))
            except IllegalState as failure:  # abort the others anyway
                _LOG.error("transaction %s cannot be aborted: %s", name, failure)
                continue
            _LOG.info("transaction %s exceeded its %d ms timeout: %s", name, transaction.timeout_ms, error.name)
        return len(late)

    def expire(self) -> int:
        """Remove transactional ids that were idle for `transactional.id.expiration.ms`; return their number."""
        if self._log.is_loading:
            return 0
        now_ms, limit_ms = self._node.clock(), self._node.config["transactional.id.expiration.ms"]
        return self._log.forget(one for one in self._log if one.is_expired(now_ms, limit_ms))
