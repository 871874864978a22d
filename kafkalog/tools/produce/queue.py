"""Queue of finished batches: packed (checked and compressed) in several threads, written to their logs in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol

from kafkalog.records.packing import Compression
from kafkalog.util.readahead import usable_cores

if TYPE_CHECKING:
    from kafkalog._core.bytes.store import Block

_WAITING_PER_THREAD: Final = 2
_MAX_WAITING_BYTES: Final = 64 << 20


class Sink(Protocol):
    """The destination of a partition's batches."""

    def pack(self, batches: bytearray, compression: Compression, *, check_records: bool = False) -> bytearray | Block:
        """Return the bytes to write for uncompressed batches. Called from any thread."""

    def append_packed(self, batches: bytearray | Block) -> object:
        """Append packed batches, each as a separate append."""


class _Job:
    """One group of batches for one log. `is_claimed` is True once a thread will pack it, or has."""

    __slots__ = (
        "_batches", "_compression", "_error", "_gate", "_packed", "_strict", "done", "is_claimed", "sink", "size",
    )  # fmt: skip

    def __init__(self, sink: Sink, batches: bytearray, compression: Compression, strict: bool) -> None:
        self.sink = sink
        self._batches = batches
        self._compression = compression
        self._strict = strict
        self._gate = threading.Lock()
        self._gate.acquire()
        self._packed: bytearray | Block = batches
        self._error: BaseException | None = None
        self.size = len(batches)
        self.is_claimed = False
        self.done = False

    def run(self) -> None:
        """Pack the group and store an error for `result`. A second call does no harm."""
        try:
            self._packed = self.sink.pack(self._batches, self._compression, check_records=self._strict)
        except Exception as error:
            self._error = error
        if not self.done:
            self.done = True
            self._gate.release()

    def result(self) -> bytearray | Block:
        """Wait for the packed group and return it; an error of packing is raised here."""
        if not self.is_claimed:
            self.run()
        elif not self.done:
            self._gate.acquire()
        if self._error is not None:
            raise self._error
        return self._packed


class WriteQueue:
    """Takes groups of finished batches for `sinks` and appends them in the order received.

    With a codec, groups are packed by one thread for each core. At most twice as many are pending, and at most 64 MiB
    unless a single group is larger. Threads begin with the second group, so that a short input needs none. After a
    failed write or packing no later group is written, so that no gap arises. `strict` checks the records' times.

    Threads: `put`, `drain` and `close` belong to one thread. An interrupt (Ctrl-C) leaves the queue consistent: `drain`
    may follow, and writes the groups that may still be written.
    """

    def __init__(
        self, sinks: Sequence[Sink], compression: Compression, *, strict: bool = False, threads: int | None = None
    ) -> None:
        self._sinks = sinks
        self._compression = compression
        self._strict = strict
        count = usable_cores() if threads is None else threads
        self._most_threads = count if compression and count > 1 else 0
        self._most_waiting = _WAITING_PER_THREAD * self._most_threads
        self._jobs: deque[_Job] = deque()
        self._claimable: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closing = False
        self.stopped = False  # a group was not written: no later one may be

    def put(self, number: int, batches: bytearray) -> None:
        """Take a group for sink `number`, and write older ones so that not too many are pending.

        Raises the errors of those writes.
        """
        self.stopped = True
        job = _Job(self._sinks[number], batches, self._compression, self._strict)
        self._jobs.append(job)
        self.stopped = False
        if self._most_threads and len(self._jobs) > 1:
            self._submit(job)
        while len(self._jobs) > self._most_waiting or self._is_heavy():
            self._write_oldest()

    def _is_heavy(self) -> bool:
        return len(self._jobs) > 1 and sum(job.size for job in self._jobs) > _MAX_WAITING_BYTES

    @property
    def waiting(self) -> int:
        """Number of pending groups, taken and not yet written."""
        return len(self._jobs)

    def drain(self) -> None:
        """Write all pending groups, unless a write has failed."""
        while self._jobs and not self.stopped:
            self._write_oldest()

    def close(self) -> None:
        """End the threads. Unwritten groups are discarded."""
        self._closing = True
        self._jobs.clear()
        for _ in self._threads:
            self._claimable.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _submit(self, job: _Job) -> None:
        # in this order: an interrupt between two steps may have a group packed twice, but leaves none unpacked
        if len(self._threads) < self._most_threads:
            thread = threading.Thread(target=self._work, name="kafkalog-pack", daemon=True)
            thread.start()
            self._threads.append(thread)
        self._claimable.put(job)
        job.is_claimed = True

    def _work(self) -> None:
        while (job := self._claimable.get()) is not None:
            if not self._closing:
                job.run()

    def _write_oldest(self) -> None:
        job = self._jobs[0]
        try:
            packed = job.result()
        except Exception:
            self.stopped = True
            raise
        self.stopped = True
        job.sink.append_packed(packed)
        self._jobs.popleft()
        self.stopped = False
