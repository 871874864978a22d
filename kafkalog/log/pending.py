"""State of a writer between `append` and the disk: batches being filled, and a handle for each record."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from kafkalog._core.batch.encode import BatchBuilder
from kafkalog.storage.group_commit import again, open_gate, shut_gate

if TYPE_CHECKING:
    from kafkalog._core.bytes.store import Block


class Gates:
    """The lock of a writer, and gates on which callers wait for a written batch or for buffer space.

    A thread waits in one call, without a lock, at its own gate; opening the gate of an interrupted thread has no
    effect. `failure` is the error of every wait in a forked child, where no batch is ever settled.
    """

    __slots__ = ("_complete", "_expected", "_waiters", "failure", "lock", "waiting")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.failure: BaseException | None = None
        self.waiting = 0  # guarded by self.lock; threads that wait for a batch
        self._waiters: list[threading.Lock] = []  # guarded by self.lock; gates of threads that wait for buffer space
        self._complete: threading.Lock | None = None  # guarded by self.lock
        self._expected = 0

    def abandon(self, error: BaseException) -> None:
        """Make every wait raise `error`, in a child whose parent may have held the lock at the fork."""
        self.failure = error
        self.lock = threading.Lock()

    def wait_gate_locked(self) -> threading.Lock:
        """Return a gate to wait at for buffer space, after releasing the lock: `gate.acquire(timeout=...)`."""
        gate = shut_gate()
        self._waiters.append(gate)
        return gate

    def open_locked(self) -> None:
        """Wake every thread that waits for buffer space."""
        waiters, self._waiters = self._waiters, []
        for gate in waiters:
            open_gate(gate)

    def gather_locked(self, threads: int) -> threading.Lock:
        """Return a gate that opens once `threads` threads wait for batches."""
        self._expected = threads
        self._complete = gate = shut_gate()
        return gate

    def gathered_locked(self) -> None:
        """End the wait for threads to gather: open its gate."""
        gate, self._complete = self._complete, None
        if gate is not None:
            open_gate(gate)

    def count_waiting_locked(self) -> None:
        """Count one more thread that waits for a batch."""
        self.waiting += 1
        if self._complete is not None and self.waiting >= self._expected:
            self.gathered_locked()


class PendingBatch:
    """One batch that is not yet in the log.

    `deadline` is the latest time at which it closes (monotonic seconds). `base_offset` or `error` is set before `done`
    turns true; the gates of waiting threads are opened after that. `packed` is the encoded batch, if it was encoded
    before the thread took the batch.
    """

    __slots__ = ("base_offset", "builder", "deadline", "done", "error", "gates", "packed", "size", "waiters")

    def __init__(self, builder: BatchBuilder, deadline: float, gates: Gates) -> None:
        self.builder = builder
        self.deadline = deadline
        self.gates = gates
        self.waiters: list[threading.Lock] = []  # guarded by gates.lock
        self.packed: bytearray | Block | None = None
        self.size = 0
        self.base_offset = -1
        self.error: BaseException | None = None
        self.done = False

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the batch is written or failed; raise TimeoutError after `timeout` seconds.

        Raises IllegalState in a forked child, which cannot know the result.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            with self.gates.lock:
                if self.done:
                    return
                if self.gates.failure is not None:
                    raise again(self.gates.failure)
                gate = shut_gate()
                self.waiters.append(gate)
                self.gates.count_waiting_locked()
            remaining = -1.0 if until is None else max(0.0, until - time.monotonic())
            if not gate.acquire(timeout=remaining) and not self.done:
                raise TimeoutError(f"the record was not written within {timeout} s")

    def settle_locked(self, error: BaseException | None = None) -> None:
        """Mark the batch as written, or as failed with `error`, and wake the threads that wait for it."""
        if self.done:
            return
        self.error = error
        self.done = True
        waiters, self.waiters = self.waiters, []
        self.gates.waiting -= len(waiters)
        for gate in waiters:
            open_gate(gate)


class Pending:
    """The future offset of a record: the result of `Writer.append`.

    Threads: any thread may call the methods, any number of times.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: PendingBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        """Return True if the record was written or its write failed."""
        return self._batch.done

    def result(self, timeout: float | None = None) -> int:
        """Return the record's offset, once its batch is written (and on disk, if the writer's `sync` is True).

        Waits at most `timeout` seconds, then raises TimeoutError; raises the error of a failed write.
        """
        batch = self._batch
        if not batch.done:
            batch.wait(timeout)
        if batch.error is not None:
            raise again(batch.error)
        return batch.base_offset + self._index

    def __repr__(self) -> str:
        batch = self._batch
        if not batch.done:
            return "<Pending>"
        if batch.error is not None:
            return f"<Pending failed: {type(batch.error).__name__}>"
        return f"<Pending @{batch.base_offset + self._index}>"
