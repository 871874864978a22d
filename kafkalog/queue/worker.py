"""The interface of what runs a queue: acquire records, acknowledge them, end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from kafkalog._core.batch.record import Record
from kafkalog.errors import KafkalogError
from kafkalog.types import TopicPartition

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

    def acquire(self, max_records: int, timeout_s: float | None) -> list[Acquired]:
        """Return acquired records; wait up to `timeout_s` (None: forever) for the first one."""

    def acknowledge(self, kind: int, leases: Iterable[Lease]) -> Mapping[Lease, KafkalogError]:
        """Acknowledge acquired records. Return the errors of those for which it failed.

        InvalidRecordState for one that the member no longer has.
        """

    def close(self) -> None:
        """Release what is acquired, and leave the group."""
