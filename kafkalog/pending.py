"""What a writer holds between `append` and the disk: batches being filled, and a handle for each record."""

from __future__ import annotations

import threading
import time

from kafkalog._core.encode import BatchBuilder
from kafkalog.durability import again


class PendingBatch:
    """One batch on its way to the log.

    `deadline` is when it closes at the latest (monotonic seconds). `base_offset` is set, or `error`,
    before `done` turns true; `settled`, a condition over `lock`, is notified after that.
    """

    __slots__ = ("base_offset", "builder", "deadline", "done", "error", "lock", "settled", "size")

    def __init__(
        self, builder: BatchBuilder, deadline: float, lock: threading.Lock, settled: threading.Condition
    ) -> None:
        self.builder = builder
        self.deadline = deadline
        self.lock = lock
        self.settled = settled
        self.size = 0
        self.base_offset = -1
        self.error: BaseException | None = None
        self.done = False

    def wait(self, timeout: float | None = None) -> None:
        """Returns when the batch is written or failed; TimeoutError after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        with self.lock:
            while not self.done:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(f"the record was not written within {timeout} s")
                self.settled.wait(left)


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
