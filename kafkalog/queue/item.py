"""A record of a queue that a worker has acquired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from kafkalog.queue.worker import ACCEPT, REJECT, RELEASE, RENEW

if TYPE_CHECKING:
    from kafkalog._core.batch.record import Record
    from kafkalog.queue.worker import Acquired
    from kafkalog.types import TopicPartition


class AcquiredFields:
    """The fields of an acquired record."""

    __slots__ = ("_acquired",)
    _acquired: Acquired

    @property
    def record(self) -> Record:
        """The record."""
        return self._acquired.record

    @property
    def topic_partition(self) -> TopicPartition:
        """Partition of the record."""
        return self._acquired.place

    @property
    def offset(self) -> int:
        """Offset of the record."""
        return self._acquired.record.offset

    @property
    def key(self) -> bytes | None:
        """Key of the record."""
        return self._acquired.record.key

    @property
    def value(self) -> bytes | None:
        """Value of the record."""
        return self._acquired.record.value

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """Headers of the record."""
        return list(self._acquired.record.headers)

    @property
    def timestamp(self) -> int:
        """Timestamp of the record in ms."""
        return self._acquired.record.timestamp

    @property
    def delivery_count(self) -> int:
        """Number of deliveries so far, this one included."""
        return self._acquired.deliveries


class Item(AcquiredFields):
    """An acquired record: no other worker gets it until it is finished or its lock expires.

    `with item:` acknowledges it at the end of the block, and releases it after an error.

    >>> topic = dirs.create_topic("tasks")
    >>> info = dirs["tasks", 0].append([b"resize 1", b"resize 2", b"resize 3"])
    >>> with dirs["tasks"].queue("workers") as queue:
    ...     first, second, third = queue.acquire(3)
    ...     print(first.value, first.key, first.offset, first.delivery_count, first.topic_partition)
    ...     print(first.headers, first.timestamp > 0, first.record.offset)
    ...     with first:
    ...         pass    # the work
    ...     second.renew()
    ...     second.ack()
    ...     third.release()
    ...     [again] = queue.acquire()
    ...     again.reject()
    ...     again.offset, again.delivery_count, again.is_finished
    b'resize 1' None 0 1 tasks-0
    [] True 0
    (2, 2, True)
    """

    __slots__ = ("_finish", "is_finished")

    def __init__(self, acquired: Acquired, finish: Callable[[int, Sequence[Item]], None]) -> None:
        self._acquired = acquired
        self._finish = finish
        self.is_finished = False
        """True after `ack`, `release` or `reject`."""

    def ack(self) -> None:
        """Finish it: the work is done. The state is in the log when this returns. Errors as for `WorkQueue.ack`."""
        self._finish(ACCEPT, (self,))

    def release(self) -> None:
        """Give it back for another delivery, unless this was the last one that the group allows."""
        self._finish(RELEASE, (self,))

    def reject(self) -> None:
        """Finish it without success: it is not delivered again, and goes to the dead letters if the group has a topic
        for them."""
        self._finish(REJECT, (self,))

    def renew(self) -> None:
        """Let its lock last for the whole time again, from now on."""
        self._finish(RENEW, (self,))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self.is_finished:
            if kind is None:
                self.ack()
            else:
                self.release()

    def __repr__(self) -> str:
        return f"<Item {self.topic_partition} offset {self.offset}, delivery {self.delivery_count}>"
