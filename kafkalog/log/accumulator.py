"""The queue of batches between a writer's callers and the log, and the thread that empties it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Final

from kafkalog._core.batch.encode import EMPTY_BATCH_BYTES, BatchBuilder
from kafkalog.errors import IllegalState, InvalidRecord, InvalidTimestamp, LogClosed, RecordTooLarge
from kafkalog.log.pending import Gates, PendingBatch
from kafkalog.records.format import BATCH_OVERHEAD_BYTES
from kafkalog.records.packing import Compression, choose, most_plain_bytes
from kafkalog.storage.group_commit import BackgroundFlush, Gathering, Sync, again, open_gate, shut_gate
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.times import record_ms

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kafkalog._core.bytes.store import Block
    from kafkalog.log.writable import WritableLog

_FEWEST_BATCHES = 4
"""Number of the largest batches, counted uncompressed, that must fit into buffer_memory."""
MAX_WAIT_S = 3600.0
Headers = Iterable[tuple[str | bytes, bytes | None]]


MARGIN: Final = 1.05
"""Factor that the reference applies to its estimates (REC-47)."""
_SMALLEST: Final = 1 / 64
_BETTER_STEP: Final = 0.25


class RatioEstimate:
    """Estimated compressed size of records as a fraction of their uncompressed size; 1.0 before the first batch.

    A worse ratio applies at once, so that batches do not become too large; a better one is approached in steps.
    """

    __slots__ = ("ratio",)

    def __init__(self) -> None:
        self.ratio = 1.0

    def observe(self, plain_bytes: int, packed_bytes: int) -> None:
        """Update the estimate with a batch of `plain_bytes` that became `packed_bytes`, headers included."""
        records = plain_bytes - BATCH_OVERHEAD_BYTES
        if records <= 0:
            return
        seen = max((packed_bytes - BATCH_OVERHEAD_BYTES) / records, _SMALLEST)
        self.ratio = seen if seen > self.ratio else self.ratio + (seen - self.ratio) * _BETTER_STEP

    def plain_limit(self, limit_bytes: int) -> int:
        """Return the uncompressed size at which a batch is estimated to have `limit_bytes` compressed (REC-47)."""
        records = max(limit_bytes - BATCH_OVERHEAD_BYTES, 0)
        return BATCH_OVERHEAD_BYTES + int(records / (self.ratio * MARGIN))


class Accumulator:
    """Pending batches in the order of their start; one daemon thread appends them to the log.

    The last batch of the queue may still be `filling`. Every change to the queue is one step, so a Ctrl-C between two
    steps leaves the queue consistent. Callers wait at `gates`, the thread waits at `filled`.
    """

    def __init__(
        self,
        opened: WritableLog,
        *,
        linger_ms: float,
        batch_bytes: int,
        buffer_memory: int,
        compression: Compression | None,
        sync: Sync,
    ) -> None:
        config = opened.log.config
        self.opened = opened
        self.name = str(opened.topic_partition)
        self.linger = linger_ms / 1000
        self.max_message_bytes = min(config.max_message_bytes, config.segment_size)
        self.batch_bytes = max(EMPTY_BATCH_BYTES, min(batch_bytes, self.max_message_bytes))
        self.buffer_memory = buffer_memory
        self.sync = sync
        self._compression = compression
        self._ratio = RatioEstimate()
        self.milliseconds: Callable[[], int] = opened.clock.milliseconds
        self.gates = Gates()
        self.lock = self.gates.lock
        self.filled = shut_gate()
        self.batches: deque[PendingBatch] = deque()  # guarded by self.lock
        self.filling: PendingBatch | None = None  # guarded by self.lock
        self.in_flight: list[PendingBatch] = []  # guarded by self.lock
        self.buffered = 0  # guarded by self.lock; bytes of full batches not yet written
        self.closing = False  # guarded by self.lock
        self.refusal: BaseException | None = None  # the error that append raises, once it rejects records
        self.failed: BaseException | None = None  # the error of a failed write
        self.closed = False
        self.needs_key = "compact" in config.cleanup_policy
        self._checks_time = config.message_timestamp_type == "CreateTime"
        self._before_ms = config.message_timestamp_before_max_ms
        self._after_ms = config.message_timestamp_after_max_ms
        self._gathering = Gathering()  # used by the thread only
        self._flusher: BackgroundFlush | None = None
        self.thread = threading.Thread(target=self._run, name=f"kafkalog-writer-{self.name}", daemon=True)
        with deferred_interrupts():  # a thread that runs is known to the log, which ends it
            self.thread.start()
            opened.writers.add(self)
            if sync is not True and sync is not False:
                self._flusher = BackgroundFlush(opened.log.flush, sync, self.name)

    # called by the writer's callers

    def start_batch_locked(
        self, value: Buffer | None, key: Buffer | None, timestamp: int, headers: Headers
    ) -> PendingBatch | None:
        """Add the record to a new batch and return it; return None while `buffer_memory` is used up.

        The batch before it counts as full."""
        self._check_open_locked()
        open_gate(self.filled)  # first: the thread looks when the lock is free, and a Ctrl-C may end this at any step
        filling = self.filling
        if filling is not None:
            filling.size = filling.builder.size
            self.buffered += filling.size
            self.filling = None
        compression = choose(self.opened.log.config, self._compression)
        always_fits = most_plain_bytes(compression, self.max_message_bytes)
        limit = self._limit_locked(compression, always_fits)
        if self.buffered + limit > self.buffer_memory and (self.batches or self.in_flight):
            return None
        builder = BatchBuilder(limit)
        builder.append(value, key, timestamp, headers)
        batch = PendingBatch(builder, time.monotonic() + self.linger, self.gates)
        if builder.size > always_fits:
            single = BatchBuilder(limit)
            single.append(value, key, timestamp, headers)
            batch.packed = self._packed(single.build(), compression)
        self.batches.append(batch)
        self.filling = batch
        return batch

    def _limit_locked(self, compression: Compression, always_fits: int) -> int:
        """Return the most bytes that the next batch may take, uncompressed."""
        limit = self.batch_bytes
        if compression:
            largest = max(self.batch_bytes, self.buffer_memory // _FEWEST_BATCHES)
            limit = min(self._ratio.plain_limit(limit), largest, always_fits)
        return max(EMPTY_BATCH_BYTES, limit)

    def _packed(self, plain: bytearray, compression: Compression) -> bytearray | Block:
        """Return the batch of a large record as it will be written; raise RecordTooLarge if the topic rejects it."""
        packed = self.opened.pack(plain, compression)
        if len(packed) <= self.max_message_bytes:
            return packed
        compressed = f", {len(packed)} compressed" if compression else ""
        raise RecordTooLarge(
            f"a batch of this record has {len(plain)} bytes{compressed}; max.message.bytes is {self.max_message_bytes}",
            path=self.opened.path,
            hint="send a smaller value, or raise max.message.bytes (and segment.bytes) of the topic",
        )

    def _check_open_locked(self) -> None:
        """Raise an error once the thread may have ended: a batch started then would wait for ever."""
        if self.refusal is not None:
            raise again(self.refusal)
        if self.closing:
            raise LogClosed(f"writer of log {self.name} is closed")

    def checked_timestamp(self, time: int | datetime) -> int:
        """Return the time in ms; raise InvalidTimestamp if the topic would reject it.

        A timestamp that is rejected later would fail its whole batch."""
        timestamp = record_ms(time)
        if not 0 <= timestamp < 2**63:
            kind = "negative" if timestamp < 0 else "too large"
            raise InvalidTimestamp(
                f"timestamp {timestamp} is {kind}: give ms since 1970, or None for now", path=self.opened.path
            )
        if not self._checks_time:
            return timestamp
        now = self.milliseconds()
        if not now - self._before_ms <= timestamp <= now + self._after_ms:
            raise InvalidTimestamp(
                f"timestamp {timestamp} is outside [{now - self._before_ms}, {now + self._after_ms}]",
                path=self.opened.path,
                hint="see message.timestamp.before.max.ms and message.timestamp.after.max.ms",
            )
        return timestamp

    def refuse_missing_key(self) -> None:
        """Raise InvalidRecord: a compacted topic keeps the newest record of each key."""
        raise InvalidRecord(
            "a record without key cannot be written to a compacted topic",
            path=self.opened.path,
            hint="give a key, or remove compact from cleanup.policy",
        )

    def flush(self) -> None:
        """Wait until every record appended so far is written; raise the error of a failed write."""
        if self.gates.failure is not None:
            raise again(self.gates.failure)
        with self.lock:
            last = self.batches[-1] if self.batches else self.in_flight[-1] if self.in_flight else None
            if last is not None:
                open_gate(self.filled)
                last.deadline = 0.0
        if last is not None:
            last.wait()
            if last.error is not None:
                raise again(last.error)

    def request_close(self) -> None:
        """Ask the thread to write the pending batches and end; return at once (for finalizers)."""
        self.closing = True
        open_gate(self.filled)

    def close(self) -> None:
        """Write the pending batches and end the thread, even on Ctrl-C. A second call does nothing."""
        with deferred_interrupts():
            with self.lock:
                self.closing = True
                open_gate(self.filled)
            self.thread.join()
            if self._flusher is not None:
                self._flusher.close()
            self.opened.writers.discard(self)
            self.closed = True
            if self.refusal is None:
                self.refusal = LogClosed(f"writer of log {self.name} is closed")

    def disown(self) -> None:
        """Make every later call fail: in a forked child, which does not have the thread."""
        self.refusal = IllegalState(
            f"writer of log {self.name} belongs to the process that opened it",
            hint="open the log in the child process instead of before the fork",
        )
        self.closing = self.closed = True
        self.gates.abandon(self.refusal)
        self.lock = self.gates.lock

    # called by the thread

    def _run(self) -> None:
        while True:
            if self.sync is True:
                self._gather()
            with self.lock:
                ready = self._take_ready_locked()
                self.in_flight = ready
                is_finished = self.closing and not ready and not self.batches
                wait = self._wait_locked()
            if is_finished:
                return
            if not ready:
                self.filled.acquire(timeout=wait)
                continue
            began = time.monotonic()
            error = self._write(ready)
            with self.lock:
                self._gathering.synced(began, time.monotonic(), self.gates.waiting)
                self._settle_locked(ready, error)

    def _gather(self) -> None:
        """Wait briefly so that threads released by the last sync can join the next one."""
        with self.lock:
            seconds = 0.0 if self.closing else self._gathering.seconds(self.gates.waiting)
            if seconds:
                gate = self.gates.gather_locked(self._gathering.expected)
        if seconds:
            gate.acquire(timeout=seconds)
            with self.lock:
                self.gates.gathered_locked()

    def _take_ready_locked(self) -> list[PendingBatch]:
        """Remove and return the batches that are full, due or requested by a flush."""
        filling = self.filling
        due = filling is not None and (self.closing or filling.deadline <= time.monotonic())
        if due:
            self.filling = None
        ready = len(self.batches) - (0 if filling is None or due else 1)
        return [self.batches.popleft() for _ in range(ready)]

    def _wait_locked(self) -> float:
        """Return the seconds until the batch being filled is due; -1 (for ever) if there is none."""
        if self.filling is None:
            return -1.0
        return min(max(0.0, self.filling.deadline - time.monotonic()), MAX_WAIT_S)

    def _write(self, ready: list[PendingBatch]) -> BaseException | None:
        """Append each batch in order and return the first error, or None; batches after it are not written."""
        failure: BaseException | None = None
        try:
            for batch in ready:
                batch.base_offset = self._append(batch)
        except BaseException as error:
            failure = error
        try:
            if ready[0].base_offset >= 0:  # the batches before a failure must be on disk as well
                self._sync()
        except BaseException as error:
            if self.sync is True:
                for batch in ready:
                    batch.base_offset = -1  # no batch may be reported as written
            failure = failure or error
        return failure

    def _sync(self) -> None:
        """Sync the appended data now or schedule a flush, depending on `sync` of the writer and its log."""
        if self.sync is True:
            self.opened.group.sync()
            return
        for flusher in (self._flusher, self.opened.flusher):
            if flusher is not None:
                flusher.touch()

    def _append(self, batch: PendingBatch) -> int:
        """Append one batch and return its base offset."""
        opened = self.opened
        compression = choose(opened.log.config, self._compression)
        if batch.packed is None:
            ready = batch.builder.build_ready()
            plain = bytearray() if ready is None else ready.data
            if not compression:
                info = opened.append_ready(ready) or opened.append_as_leader(plain)
                return info.first_offset
            batch.packed = opened.pack(plain, compression)
            self._ratio.observe(len(plain), len(batch.packed))
        info = opened.append_batches(batch.packed, check_records=False)
        batch.packed = None
        return info.first_offset

    def _settle_locked(self, ready: list[PendingBatch], error: BaseException | None) -> None:
        if error is not None:
            self.refusal = self.failed = error
            self.closing = True
            self.filling = None
            failed = [*(batch for batch in ready if batch.base_offset < 0), *self.batches]
            self.batches.clear()
            for batch in failed:
                batch.settle_locked(error)
        for batch in ready:
            self.buffered -= batch.size
            batch.settle_locked()
        if not self.batches:
            self.buffered = 0
        self.in_flight = []
        self.gates.open_locked()
