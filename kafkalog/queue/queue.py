"""`WorkQueue`: the records of a topic for several workers."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Self

from kafkalog.errors import IllegalArgument, IllegalState, InvalidRecordState, KafkalogError, LogClosed
from kafkalog.queue.item import Item
from kafkalog.queue.worker import ACCEPT, REJECT, RELEASE, RENEW
from kafkalog.reading.tail import check_timeout

if TYPE_CHECKING:
    from kafkalog.queue.worker import Acquired, Lease, Worker

MAX_RECORDS: Final = 500


class WorkQueue:
    """A worker's view of a queue: it acquires records of a topic, and finishes each of them. Use it as a context.

    Threads: any may call; calls of one queue follow one another. Workers that should not wait for each other have a
    queue each. A forked child cannot use it.

    >>> topic = dirs.create_topic("tasks")
    >>> info = dirs["tasks", 0].append([b"resize 1", b"resize 2", b"resize 3"])
    >>> with dirs["tasks"].queue("workers") as queue, dirs["tasks"].queue("workers") as other:
    ...     for item in queue.acquire(max_records=1):
    ...         print(item.value)
    ...         item.ack()
    ...     items = other.acquire(max_records=10)
    ...     other.renew(items)
    ...     other.ack(items[:1])
    ...     other.release(items[1:])
    ...     queue.reject(queue.acquire())
    ...     queue.acquire(timeout=0.1), queue.name, queue.topic
    b'resize 1'
    ([], 'workers', 'tasks')
    >>> queue.close()    # again, which does nothing
    >>> queue.closed
    True
    """

    def __init__(self, name: str, topic: str, worker: Worker) -> None:
        self.name = name
        self.topic = topic
        self._pid = os.getpid()
        self._worker: Worker | None = worker

    def _open(self) -> Worker:
        if self._pid != os.getpid():
            raise IllegalState(
                "the queue belongs to the process that opened it", hint="open it in the child process after the fork"
            )
        if self._worker is None:
            raise LogClosed(f"queue {self.name} is closed")
        return self._worker

    def acquire(self, max_records: int = MAX_RECORDS, timeout: float | None = 0) -> list[Item]:
        """Acquire at most `max_records` records; wait up to `timeout` seconds (None: forever) for the first one.

        Each has a lock for the time that the group's `share.record.lock.duration.ms` says; then others get it. Raises
        LogClosed, UnknownTopicOrPartition, StorageError, PeerError, and errors of authorization.
        """
        worker = self._worker_to_acquire(max_records, timeout)
        acquiring = worker.begin_acquire(max_records, timeout)
        try:
            return [self._item_of(one) for one in worker.wait(acquiring)]
        except BaseException:
            worker.give_back(acquiring)
            raise
        finally:
            del acquiring  # else it, its error and this frame keep each other alive

    def _worker_to_acquire(self, max_records: int, timeout: float | None) -> Worker:
        """Return what runs the queue if the arguments of `acquire` are valid. Errors as for `acquire`."""
        check_timeout(timeout)
        if operator.index(max_records) < 1:
            raise IllegalArgument(f"max_records={max_records}", hint="use a number from 1 on")
        return self._open()

    def _item_of(self, acquired: Acquired) -> Item:
        """Return an acquired record as an item of this queue."""
        return Item(acquired, self._finish)

    def ack(self, items: Iterable[Item]) -> None:
        """Finish items, whose work is done. The states are in the log when this returns.

        Raises InvalidRecordState for an item that is finished, or that this worker has lost: its lock has expired, or
        its session has ended. The others are finished.
        """
        self._finish(ACCEPT, tuple(items))

    def release(self, items: Iterable[Item]) -> None:
        """Give items back for another delivery. Errors as for `ack`."""
        self._finish(RELEASE, tuple(items))

    def reject(self, items: Iterable[Item]) -> None:
        """Finish items without success: they are not delivered again. Errors as for `ack`."""
        self._finish(REJECT, tuple(items))

    def renew(self, items: Iterable[Item]) -> None:
        """Let the locks of items last for the whole time again. Errors as for `ack`; PeerRefused by a broker of 4.1."""
        self._finish(RENEW, tuple(items))

    def _finish(self, kind: int, items: Sequence[Item]) -> None:
        worker = self._open()
        finished = [one for one in items if one.is_finished]
        end_finish(kind, items, finished, worker.wait(worker.begin_acknowledge(kind, leases_of(items))))

    @property
    def closed(self) -> bool:
        """True after `close()`."""
        return self._worker is None

    def close(self) -> None:
        """Release the items that are not finished, and leave the group. A second call does nothing."""
        worker, self._worker = self._worker, None
        if worker is not None and self._pid == os.getpid():
            worker.close()

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<WorkQueue {self.name} of topic {self.topic}{' closed' if self.closed else ''}>"


def leases_of(items: Iterable[Item]) -> list[Lease]:
    """Return the leases of the items that are not finished."""
    return [one._acquired.lease for one in items if not one.is_finished]


def end_finish(
    kind: int, items: Sequence[Item], finished: Sequence[Item], failures: Mapping[Lease, KafkalogError]
) -> None:
    """Mark the items that are finished now; raise the first error, also for those that were `finished` before."""
    for one in items:
        if kind != RENEW and one._acquired.lease not in failures:
            one.is_finished = True
    for error in failures.values():
        raise error
    if finished:
        first = finished[0]
        raise InvalidRecordState(f"offset {first.offset} of {first.topic_partition} is finished already")
