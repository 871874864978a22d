"""Requests to partitions and their results: values without wire formats, with the protocol's error codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kafkalog.server.replica.roles import UNKNOWN_PLACE
from kafkalog.storage.append import Origin
from kafkalog.types import Isolation, LogOffsetMetadata, TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.replica.roles import Role
    from kafkalog.storage.file_slice import FileSlice

CONSUMER: Final = -1
"""Replica id of a reader that is not a replica."""
DEBUGGER: Final = -2


class AppendParams(NamedTuple):
    """Parameters common to all partitions of an append.

    `internal_allowed`: internal topics may be written as well. `on_wait` is called before a wait, when the batches are
    no longer needed. `produce_version` is 0 for appends that are not a client's. `topic_ids` are the ids by name of
    the topics in a request by id: a topic of that name with another id is not appended to.
    """

    required_acks: int
    timeout_ms: int
    internal_allowed: bool = False
    origin: Origin = "client"
    transactional_id: str | None = None
    produce_version: int = 0
    on_wait: Callable[[], object] | None = None
    topic_ids: Mapping[str, UUID] | None = None


class AppendResult(NamedTuple):
    """Result of an append to one partition; unknown offsets and times (ms) are -1.

    `record_errors` are (index in the batch, text) of the rejected records. `message` is None if the code says
    everything.
    """

    error_code: int = 0
    base_offset: int = -1
    append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str]] = ()
    message: str | None = None
    last_offset: int = -1


new_result: Final[Callable[[tuple[object, ...]], AppendResult]] = partial(tuple.__new__, AppendResult)
"""Make a result from a tuple of all its fields, in order; each append makes one."""


class FetchParams(NamedTuple):
    """Parameters of a fetch over all partitions, in bytes and ms."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: Isolation = "high_watermark"
    replica_id: int = CONSUMER
    is_from_candidate: bool = False
    """True if a replica copies missing records before it asks for votes, from a node that leads nothing."""

    @property
    def is_from_follower(self) -> bool:
        """True if a replica fetches, and thus sees the log up to its end."""
        return self.replica_id >= 0

    @property
    def only_leader(self) -> bool:
        """True if only a leader may answer; debugging readers and candidates may read from any replica."""
        return self.replica_id != DEBUGGER and not self.is_from_candidate


class FetchPartition(NamedTuple):
    """Request of a fetch for one partition; epochs that are not given are -1."""

    topic_partition: TopicPartition
    fetch_offset: int
    max_bytes: int
    topic_id: UUID | None = None
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


new_key: Final[Callable[[tuple[str, int]], TopicPartition]] = partial(tuple.__new__, TopicPartition)
new_params: Final[Callable[[tuple[object, ...]], FetchParams]] = partial(tuple.__new__, FetchParams)
new_asked: Final[Callable[[tuple[object, ...]], FetchPartition]] = partial(tuple.__new__, FetchPartition)
"""`new_key`, `new_params` and `new_asked` make a value from a tuple of all its fields, in order, for each fetch."""


@dataclass(slots=True, eq=False)
class FetchResult:
    """Result of a fetch for one partition. With an error, all offsets are -1.

    `aborted` are (producer id, first offset) for a committed read, otherwise None. `place` is where the fetch begins; a
    waiting fetch compares it with the log end. `log_end_offset` is the leader's. `role` is the partition's role if a
    read found nothing new, otherwise None. `current_leader` is the (node id, epoch) of the current leader, if it is
    reported with an error.
    """

    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    log_end_offset: int = -1
    records: FileSlice | None = None
    aborted: Sequence[tuple[int, int]] | None = None
    diverging_epoch: tuple[int, int] | None = None
    place: LogOffsetMetadata = UNKNOWN_PLACE
    role: Role | None = None
    current_leader: tuple[int, int] | None = None

    def end_for(self, isolation: Isolation) -> int:
        """Return the offset below which a reader with this isolation sees records."""
        if isolation == "log_end":
            return self.log_end_offset
        return self.last_stable_offset if isolation == "committed" else self.high_watermark

    @property
    def size(self) -> int:
        """Size of the records in bytes."""
        return 0 if self.records is None else self.records.size
