"""What a writer holds between `append` and the disk: batches being filled, and a handle for each record."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from kafkalog._core.encode import BatchBuilder
from kafkalog.durability import again, open_gate, shut_gate

if TYPE_CHECKING:
    from kafkalog._core.store import Block


class Gates:
    """Where callers wait for a writer's thread: for a batch to be written, or for room; and its lock.

    A thread waits in one call, holding nothing, at a gate of its own; one whose thread was interrupted is opened for
    nobody. `lost` is why nobody will ever settle anything: this is a forked child.
    """

    __slots__ = ("_complete", "_shut", "_wanted", "lock", "lost", "waiting")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lost: BaseException | None = None
        self.waiting = 0  # guarded by self.lock; threads that wait for a batch
        self._shut: list[threading.Lock] = []  # guarded by self.lock; of threads that wait for room
        self._complete: threading.Lock | None = None  # guarded by self.lock
        self._wanted = 0

    def lose(self, why: BaseException) -> None:
        """Makes every wait raise `why`, in a child whose parent may have held the lock when it forked."""
        self.lost = why
        self.lock = threading.Lock()

    def shut_locked(self) -> threading.Lock:
        """A gate to wait at for room, with the lock given back: `gate.acquire(timeout=...)`."""
        gate = shut_gate()
        self._shut.append(gate)
        return gate

    def open_locked(self) -> None:
        """Lets every thread that waits for room look again."""
        shut, self._shut = self._shut, []
        for gate in shut:
            open_gate(gate)

    def gather_locked(self, threads: int) -> threading.Lock:
        """A gate that opens once so many threads wait for batches."""
        self._wanted = threads
        self._complete = gate = shut_gate()
        return gate

    def gathered_locked(self) -> None:
        """Nobody waits for threads to gather any more, or should: the gate is opened."""
        gate, self._complete = self._complete, None
        if gate is not None:
            open_gate(gate)

    def count_waiting_locked(self) -> None:
        """One more thread waits for a batch."""
        self.waiting += 1
        if self._complete is not None and self.waiting >= self._wanted:
            self.gathered_locked()


class PendingBatch:
    """One batch on its way to the log.

    `deadline` is when it closes at the latest (monotonic seconds). `base_offset` is set, or `error`, before `done`
    turns true; the gates of those who wait for it are opened after that. `packed` is what will be written, where that
    was made before the batch was taken to be written.
    """

    __slots__ = ("base_offset", "builder", "deadline", "done", "error", "gates", "packed", "shut", "size")

    def __init__(self, builder: BatchBuilder, deadline: float, gates: Gates) -> None:
        self.builder = builder
        self.deadline = deadline
        self.gates = gates
        self.shut: list[threading.Lock] = []  # guarded by gates.lock
        self.packed: bytearray | Block | None = None
        self.size = 0
        self.base_offset = -1
        self.error: BaseException | None = None
        self.done = False

    def wait(self, timeout: float | None = None) -> None:
        """Returns when the batch is written or failed; TimeoutError after `timeout` seconds.

        IllegalState in a forked child, which does not learn what becomes of it.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            with self.gates.lock:
                if self.done:
                    return
                if self.gates.lost is not None:
                    raise again(self.gates.lost)
                gate = shut_gate()
                self.shut.append(gate)
                self.gates.count_waiting_locked()
            left = -1.0 if until is None else max(0.0, until - time.monotonic())
            if not gate.acquire(timeout=left) and not self.done:
                raise TimeoutError(f"the record was not written within {timeout} s")

    def settle_locked(self, error: BaseException | None = None) -> None:
        """Written, or failed with `error`: lets go who waits for it."""
        if self.done:
            return
        self.error = error
        self.done = True
        shut, self.shut = self.shut, []
        self.gates.waiting -= len(shut)
        for gate in shut:
            open_gate(gate)


class Pending:
    """The offset a record will have: what `Writer.append` returns.

    Threads: any thread may ask, any number of times.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: PendingBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        """Whether the record was written, or failed to be."""
        return self._batch.done

    def result(self, timeout: float | None = None) -> int:
        """The record's offset, once its batch is written (and on disk, where the writer's `sync` is True).

        Waits at most `timeout` seconds, then TimeoutError; raises what the write met if it failed.
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
