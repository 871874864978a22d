"""What is asked of partitions and what they answer: values without wire formats, codes of the protocol in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from kafkalog.server.replica.roles import UNKNOWN_PLACE
from kafkalog.storage.append import Origin
from kafkalog.types import Isolation, LogOffsetMetadata, TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.replica.roles import Role
    from kafkalog.storage.file_slice import FileSlice

CONSUMER: Final = -1
"""The replica id of one who fetches and is no replica."""
DEBUGGER: Final = -2


class AppendParams(NamedTuple):
    """What is the same for all partitions of an append.

    `internal_allowed`: also the node's own topics. `on_wait` is called before a wait, when the batches are needed no
    more. `produce_version` is 0 for what no client's request asks for.
    """

    required_acks: int
    timeout_ms: int
    internal_allowed: bool = False
    origin: Origin = "client"
    transactional_id: str | None = None
    produce_version: int = 0
    on_wait: Callable[[], object] | None = None


class AppendResult(NamedTuple):
    """What came of an append to one partition; offsets and times (ms) that are not known are -1.

    `record_errors` are (index in the batch, words) of the records that were refused; `message` is None where the code
    says it all.
    """

    error_code: int = 0
    base_offset: int = -1
    append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str]] = ()
    message: str | None = None
    last_offset: int = -1


class FetchParams(NamedTuple):
    """What a fetch asks for over all partitions; bytes and ms."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: Isolation = "high_watermark"
    replica_id: int = CONSUMER
    is_from_candidate: bool = False
    """Whether a replica copies what it lacks, before it asks for a vote: from a node that leads nothing."""

    @property
    def is_from_follower(self) -> bool:
        """Whether a replica fetches, and so sees the log to its end."""
        return self.replica_id >= 0

    @property
    def only_leader(self) -> bool:
        """Whether only a leader may answer; a debugging reader takes any replica."""
        return self.replica_id != DEBUGGER and not self.is_from_candidate


class FetchPartition(NamedTuple):
    """What a fetch asks of one partition; epochs that are not given are -1."""

    topic_partition: TopicPartition
    fetch_offset: int
    max_bytes: int
    topic_id: UUID | None = None
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


class FetchResult:
    """What a partition gives. With an error all offsets are -1.

    `aborted` are (producer id, first offset) for a committed read, else None. `place` is where the fetch begins, which
    a fetch that waits compares with where the log ends; `log_end_offset` is the leader's. `role` is the
    partition's when a reading found all that there is told already, None otherwise.
    """

    __slots__ = (
        "aborted", "diverging_epoch", "error_code", "high_watermark", "last_stable_offset", "log_end_offset",
        "log_start_offset", "place", "records", "role",
    )  # fmt: skip

    def __init__(
        self,
        error_code: int = 0,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        log_end_offset: int = -1,
        records: FileSlice | None = None,
        aborted: Sequence[tuple[int, int]] | None = None,
        diverging_epoch: tuple[int, int] | None = None,
        place: LogOffsetMetadata = UNKNOWN_PLACE,
    ) -> None:
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.records = records
        self.aborted = aborted
        self.diverging_epoch = diverging_epoch
        self.place = place
        self.role: Role | None = None

    def end_for(self, isolation: Isolation) -> int:
        """Below which offset a reader of this kind saw records."""
        if isolation == "log_end":
            return self.log_end_offset
        return self.last_stable_offset if isolation == "committed" else self.high_watermark

    @property
    def size(self) -> int:
        """Bytes of records."""
        return 0 if self.records is None else self.records.size

    def __repr__(self) -> str:
        fields: list[Any] = [f"{name}={getattr(self, name)!r}" for name in self.__slots__]
        return f"FetchResult({', '.join(fields)})"
