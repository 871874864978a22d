"""Finished batches on their way to their logs: packed (checked and compressed) in several threads, written in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol

from kafkalog.records.packing import Compression
from kafkalog.util.readahead import usable_cores

if TYPE_CHECKING:
    from kafkalog._core.store import Block

__all__ = ["Sink", "WriteQueue"]

_WAITING_PER_THREAD: Final = 2
_MOST_WAITING_BYTES: Final = 64 << 20


class Sink(Protocol):
    """What a partition's batches go to."""

    def pack(self, batches: bytearray, compression: Compression, *, check_records: bool = False) -> bytearray | Block:
        """What is to be written for uncompressed batches. Called from any thread."""

    def append_packed(self, batches: bytearray | Block) -> object:
        """Appends packed batches, each as an append of its own."""


class _Job:
    """One group of batches for one log. `handed_out` says that a thread will pack it, or has."""

    __slots__ = (
        "_batches", "_compression", "_error", "_gate", "_packed", "_strict", "done", "handed_out", "sink", "size",
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
        self.handed_out = False
        self.done = False

    def run(self) -> None:
        """Packs the group; what that meets is kept for `result`. Twice does no harm."""
        try:
            self._packed = self.sink.pack(self._batches, self._compression, check_records=self._strict)
        except Exception as error:
            self._error = error
        if not self.done:
            self.done = True
            self._gate.release()

    def result(self) -> bytearray | Block:
        """The packed group, waited for; what packing it met is raised here."""
        if not self.handed_out:
            self.run()
        elif not self.done:
            self._gate.acquire()
        if self._error is not None:
            raise self._error
        return self._packed


class WriteQueue:
    """Takes groups of finished batches for `sinks` and appends them in the order in which they came.

    With a codec, groups are packed by one thread for each core. No more than twice as many wait, and no more than 64
    MiB but for a single group. Threads begin with the second group, so that a short input needs none. After a write or
    a packing that failed nothing that came later is written: no gap arises. `strict` has the records' times checked.

    Threads: `put`, `drain` and `close` belong to one thread. An interrupt (Ctrl-C) leaves the queue
    whole: `drain` may follow, and writes what is still good to write.
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
        self.stopped = False  # a group was not written: nothing that comes later may be

    def put(self, number: int, batches: bytearray) -> None:
        """Takes a group for sink `number`; writes older ones, so that not too many wait. Raises what a write met."""
        self.stopped = True
        job = _Job(self._sinks[number], batches, self._compression, self._strict)
        self._jobs.append(job)
        self.stopped = False
        if self._most_threads and len(self._jobs) > 1:
            self._hand_out(job)
        while len(self._jobs) > self._most_waiting or self._is_heavy():
            self._write_oldest()

    def _is_heavy(self) -> bool:
        return len(self._jobs) > 1 and sum(job.size for job in self._jobs) > _MOST_WAITING_BYTES

    @property
    def waiting(self) -> int:
        """Groups that were taken and are not written yet."""
        return len(self._jobs)

    def drain(self) -> None:
        """Writes everything; nothing, once a write failed."""
        while self._jobs and not self.stopped:
            self._write_oldest()

    def close(self) -> None:
        """Ends the threads. What was not written stays unwritten."""
        self._closing = True
        self._jobs.clear()
        for _ in self._threads:
            self._claimable.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _hand_out(self, job: _Job) -> None:
        # in this order: an interrupt between two steps may have a group packed twice, but leaves none unpacked
        if len(self._threads) < self._most_threads:
            thread = threading.Thread(target=self._work, name="kafkalog-pack", daemon=True)
            thread.start()
            self._threads.append(thread)
        self._claimable.put(job)
        job.handed_out = True

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
