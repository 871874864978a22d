"""The interface of what runs a queue: acquire records, acknowledge them, end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from kafkalog._core.batch.record import Record
from kafkalog.errors import KafkalogError
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""Types of acknowledgements, by their numbers in Kafka's protocol."""
EARLIEST: Final = "earliest"


class Lease(NamedTuple):
    """An acquired offset: the session, in its generation, that has it."""

    node_id: int
    generation: int
    partition: int
    offset: int


class Acquired(NamedTuple):
    """An acquired record, and the number of its deliveries."""

    record: Record
    place: TopicPartition
    deliveries: int
    lease: Lease


class Worker(Protocol):
    """A member of a share group that works on one topic. Threads: any."""

    def begin_acquire(self, max_records: int, timeout_s: float | None) -> Future[list[Acquired]]:
        """Begin to acquire records; wait up to `timeout_s` (None: forever) for the first one.

        If the call is cancelled, what comes for it is released.
        """

    def give_back(self, future: Future[list[Acquired]]) -> None:
        """Release the records of a call whose caller was interrupted after they were acquired."""

    def begin_acknowledge(self, kind: int, leases: Iterable[Lease]) -> Future[Mapping[Lease, KafkalogError]]:
        """Begin to acknowledge records. The result has the errors of those for which it failed.

        InvalidRecordState for one that the member no longer has.
        """

    def wait(self, future: Future[T]) -> T:
        """Wait for the result of a call that was begun; a Ctrl-C cancels it. LogClosed if the queue is closed first."""

    def close(self) -> None:
        """Release what is acquired, and leave the group."""
