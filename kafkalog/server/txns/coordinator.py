"""The transaction coordinator: what producers may do, and the end of each transaction in all of its partitions.

    a call -> decisions.py says what the transaction becomes -> its record -> (an end: markers, and one more record)

All of it runs in the event loop's thread, and no step waits between a decision and its record: there is no transaction
that is changed while it changes. An end is answered once its markers are written; where those are many, others are
served in between, and whoever asks for that transaction is told to ask again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.errors import IllegalState
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.turns import TURN_ROWS
from kafkalog.server.txns.decisions import (
    ProducerEpoch,
    decide_abort,
    decide_add,
    decide_end,
    decide_init,
    decide_verify,
)
from kafkalog.server.txns.listing import listed
from kafkalog.server.txns.markers import Marker, write_markers
from kafkalog.server.txns.producer_ids import ProducerIds, first_producer_id, ids_of
from kafkalog.server.txns.records import TOPIC
from kafkalog.server.txns.states import CLASSIC, EPOCH_BUMPS, TransactionState
from kafkalog.server.txns.transaction import Transaction, completed
from kafkalog.server.txns.transaction_log import TransactionLog
from kafkalog.server.txns.verification import (
    COMMIT_ABORTABLE,
    COMMIT_ADDS,
    PRODUCE_ADDS,
    produce_error,
    verification_error,
)
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node import Node

_LOG: Final = logging.getLogger(__name__)
RETRY_MS: Final = 100
"""After how long an end is tried again that a disk refused; each further time after twice as long, up to a limit."""
MAX_RETRY_MS: Final = 10_000
Codes = dict[TopicPartition, ErrorCode]


class Assigned(NamedTuple):
    """A producer id and epoch, both -1 with an error."""

    error: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1


class TransactionCoordinator:
    """The transactions of a node. Used by the event loop's thread alone, between `start` and `stop`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._log = TransactionLog(node)
        self._ids: ProducerIds | None = None
        self._starting: asyncio.Future[None] | None = None
        self._loading: asyncio.Future[None] | None = None
        self._open_ends: dict[str, frozenset[TopicPartition]] = {}
        self._finishing: set[asyncio.Task[ErrorCode]] = set()
        self._retry_ms = RETRY_MS
        self._timers: dict[str, Any] = {}

    # Life

    async def start(self) -> None:
        """Begins to read what is kept; calls with a transactional id are answered meanwhile, with
        COORDINATOR_LOAD_IN_PROGRESS; those without one wait until it is known which producer ids were given before."""
        self._starting = asyncio.ensure_future(self._read())
        self._loading = asyncio.ensure_future(self._load())
        if self._node.is_read_only:  # what is open stays so: its partitions cannot be written to
            return
        config = self._node.config
        self._every("late", config["transaction.abort.timed.out.transaction.cleanup.interval.ms"], self.abort_late)
        self._every("expired", config["transaction.remove.expired.transaction.cleanup.interval.ms"], self.expire)

    async def stop(self) -> None:
        """Ends what `start` began. Ends that are open are taken up again by the next start."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for task in (self._starting, self._loading, *self._finishing):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def loaded(self) -> None:
        """Returns once everything kept is known, and the ends that a crash left open are written."""
        if self._loading is not None:
            await asyncio.shield(self._loading)

    def _every(self, name: str, period_ms: int, step: Callable[[], object]) -> None:
        def run() -> None:
            self._timers[name] = self._node.later(period_ms, run)
            try:
                step()
            except Exception:
                _LOG.exception("the sweep of %s transactions failed", name)

        self._timers[name] = self._node.later(period_ms, run)

    async def _read(self) -> None:
        """What is kept, and the first producer id: not one of a transaction either, which may never have written."""
        store = self._node.store
        directories = [directory.path for directory in store.online]
        first = await self._node.run(first_producer_id, directories, tuple(store.logs.values()), store.fs)
        await self._log.load()
        if self._node.quorum.replica_set is None:
            ids = ProducerIds(directories, first, self._node.run, fs=store.fs)
        else:
            ids = await ids_of(self._node)
            ids.above(first - 1)
        for transaction in self._log:
            ids.above(max(transaction.producer_id, transaction.next_producer_id))
        self._ids = ids

    async def _load(self) -> None:
        try:
            await self._finish_all()
        except Exception:
            _LOG.exception("the transactions could not be loaded, none is served")

    async def _finish_all(self) -> None:
        await self._producer_ids()
        # a marker in `__consumer_offsets` means something to a group coordinator that knows its pending offsets
        await self._node.groups.loaded()
        self._log.is_loading = False
        cut_off = [] if self._node.is_read_only else [one for one in self._log if one.state.is_prepared]
        for transaction in cut_off:
            await self._finished(self._finish(transaction, transaction.partitions))

    async def _producer_ids(self) -> ProducerIds:
        assert self._starting is not None, "the coordinator was not started"
        await asyncio.shield(self._starting)
        assert self._ids is not None
        return self._ids

    # Calls of producers

    async def init_producer_id(
        self, transactional_id: str | None, timeout_ms: int, expected: ProducerEpoch | None = None
    ) -> Assigned:
        """A producer id to write under (InitProducerId). An open transaction of the id is aborted; then ask again."""
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
        await ids.ready()  # from here on nothing waits
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
        """NONE once all that was said of a transaction is replicated; else what its producer is told."""
        return await self._log.settled(transactional_id)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerEpoch,
        partitions: Collection[TopicPartition],
        client_version: int = CLASSIC,
    ) -> ErrorCode:
        """Make partitions part of the transaction, which the first ones begin. They have to be there."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        error, known = self._log.find(transactional_id)
        if error != ErrorCode.NONE:
            return error
        decision = decide_add(known, producer, frozenset(partitions), client_version, self._node.clock())
        return decision.error if decision.transaction is None else self._log.write(decision.transaction)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Collection[TopicPartition]
    ) -> Codes:
        """Whether the transaction has these partitions: TRANSACTION_ABORTABLE for one that it does not have."""
        if not transactional_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
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
        """What Produce of this version answers for partitions whose transaction is not open in their log (FLOW-9)."""
        producer = ProducerEpoch(producer_id, producer_epoch)
        found = self._verified_or_added(transactional_id, producer, partitions, produce_version >= PRODUCE_ADDS)
        return {partition: produce_error(code, produce_version) for partition, code in found.items()}

    def verify_commit(
        self, transactional_id: str, producer: ProducerEpoch, partition: TopicPartition, version: int
    ) -> ErrorCode:
        """What TxnOffsetCommit of this version answers for the group's partition of `__consumer_offsets`."""
        found = self._verified_or_added(transactional_id, producer, [partition], version >= COMMIT_ADDS)
        return verification_error(found[partition], version >= COMMIT_ABORTABLE)

    def _verified_or_added(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Collection[TopicPartition], adds: bool
    ) -> Codes:
        if not adds:
            return self.verify_partitions(transactional_id, producer, partitions)
        return dict.fromkeys(partitions, self.add_partitions(transactional_id, producer, partitions, EPOCH_BUMPS))

    async def end(
        self, transactional_id: str, producer: ProducerEpoch, committed: bool, client_version: int = CLASSIC
    ) -> Assigned:
        """Commit or abort (EndTxn): answered once the markers are written, with the epoch to go on with."""
        if not transactional_id:
            return Assigned(ErrorCode.INVALID_REQUEST)
        if self._log.is_loading:
            return Assigned(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        ids = await self._producer_ids()
        error, known = self._log.find(transactional_id)
        if known is not None and known.is_exhausted:
            await ids.ready()  # from here on nothing waits
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
            error = await self._finished(finishing)
            if error != ErrorCode.NONE:
                return Assigned(error)
            after = completed(decision.transaction, now_ms)
        return Assigned(ErrorCode.NONE, after.producer_id, after.producer_epoch)

    # Questions

    def describe(self, transactional_id: str) -> tuple[ErrorCode, Transaction | None]:
        """The transaction of an id, or why there is none to tell of."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, None
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
        """Those that pass the filters of `listed`; None while they are not all known."""
        if self._log.is_loading:
            return None
        return list(listed(self._log, titles, producer_ids, duration_ms, self._node.clock()))

    # Ends

    def _end(self, prepared: Transaction) -> tuple[ErrorCode, asyncio.Task[ErrorCode] | None]:
        """Write that a transaction ends, then its markers, then that it has ended.

        Once the first is in the log the end is certain: what a disk refuses of the rest is tried again.
        """
        error = self._log.write(prepared)
        return error, self._finish(prepared, prepared.partitions) if error == ErrorCode.NONE else None

    def _finish(self, prepared: Transaction, partitions: frozenset[TopicPartition]) -> asyncio.Task[ErrorCode] | None:
        """The rest of an end: at once, or by a task where there are many partitions, between which others are served,
        and where each step has to be replicated before the next one.

        Nobody comes between: whoever asks for a transaction that is being ended is told to ask again.
        """
        if len(partitions) <= TURN_ROWS and self._log.is_alone(prepared.transactional_id):
            self._complete(prepared, self._mark(prepared, partitions))
            return None
        task = asyncio.get_running_loop().create_task(self._finish_in_turns(prepared, sorted(partitions)))
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)
        return task

    @staticmethod
    async def _finished(task: asyncio.Task[ErrorCode] | None) -> ErrorCode:
        """NONE where the end is certain, though something of it may have to be tried again."""
        if task is None:
            return ErrorCode.NONE
        await asyncio.wait([task])
        return ErrorCode.NOT_COORDINATOR if task.cancelled() else task.result()

    async def _finish_in_turns(self, prepared: Transaction, partitions: Sequence[TopicPartition]) -> ErrorCode:
        error = await self._log.settled(prepared.transactional_id)
        if error != ErrorCode.NONE:  # no marker may be there before it is certain which one
            if error != ErrorCode.NOT_COORDINATOR:
                self._try_again(prepared, frozenset(partitions))
            return error
        left: set[TopicPartition] = set()
        for first in range(0, len(partitions), TURN_ROWS):
            left |= self._mark(prepared, frozenset(partitions[first : first + TURN_ROWS]))
            await asyncio.sleep(0)
        there = [one for one in partitions if one not in left and self._node.topics.get(one.topic) is not None]
        if await self._node.replicas.settled(there):
            left = set(partitions)  # a marker that is lost would leave it open: they are written again
        self._complete(prepared, frozenset(left))
        return ErrorCode.NONE if left else await self._log.settled(prepared.transactional_id)

    def _mark(self, prepared: Transaction, partitions: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """The partitions that have no marker yet, and are to be tried again."""
        try:
            marker = Marker(
                prepared.producer_id, prepared.producer_epoch, prepared.state == TransactionState.PREPARE_COMMIT,
                self._log.coordinator_epoch(prepared.transactional_id), prepared.client_version,
            )  # fmt: skip
            return write_markers(self._node, partitions, marker)
        except Exception:  # whatever it is, the end has been promised
            _LOG.exception("the end of the transaction %s is not complete", ascii(prepared.transactional_id[:80]))
            return partitions

    def _complete(self, prepared: Transaction, left: frozenset[TopicPartition]) -> None:
        try:
            if not left and self._log.write(completed(prepared, self._node.clock())) == ErrorCode.NONE:
                return
        except Exception:
            _LOG.exception("the end of the transaction %s is not written", ascii(prepared.transactional_id[:80]))
        self._try_again(prepared, left)

    def _try_again(self, prepared: Transaction, left: frozenset[TopicPartition]) -> None:
        self._open_ends[prepared.transactional_id] = left
        if "ends" not in self._timers:
            self._timers["ends"] = self._node.later(self._retry_ms, self._finish_open_ends)

    def _finish_open_ends(self) -> None:
        self._timers.pop("ends", None)
        self._retry_ms = min(2 * self._retry_ms, MAX_RETRY_MS)
        open_ends, self._open_ends = self._open_ends, {}
        for transactional_id, left in open_ends.items():
            known = self._log.find(transactional_id)[1]
            if known is not None and known.state.is_prepared:
                self._finish(known, left)
        if not self._open_ends and not self._finishing:
            self._retry_ms = RETRY_MS

    # Sweeps

    def abort_late(self) -> int:
        """How many transactions were aborted for being open longer than their producers said."""
        now_ms = self._node.clock()
        late = [] if self._log.is_loading else [one for one in self._log if one.is_late(now_ms)]
        for transaction in late:
            name = ascii(transaction.transactional_id[:80])
            try:
                error, _ = self._end(decide_abort(transaction, now_ms))
            except IllegalState as failure:  # the others are aborted all the same
                _LOG.error("the transaction %s cannot be aborted: %s", name, failure)
                continue
            _LOG.info("the transaction %s of %d ms is over its time: %s", name, transaction.timeout_ms, error.name)
        return len(late)

    def expire(self) -> int:
        """How many transactional ids were forgotten after having been idle for `transactional.id.expiration.ms`."""
        if self._log.is_loading:
            return 0
        now_ms, limit_ms = self._node.clock(), self._node.config["transactional.id.expiration.ms"]
        return self._log.forget(one for one in self._log if one.is_expired(now_ms, limit_ms))


def make(node: Node) -> TransactionCoordinator:
    """The coordinator of a node."""
    return TransactionCoordinator(node)
