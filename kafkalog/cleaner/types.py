"""What the parts of the cleaner hand to each other: which log is to be cleaned how far, and what a clean counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kafkalog._core.offset_map import BYTES_PER_SLOT
from kafkalog.errors import IllegalArgument
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.segments import LogSegments
from kafkalog.types import TopicPartition

CheckDone = Callable[[], None]
"""Called between chunks; raises CleaningAborted where the clean is to end."""
Throttled = Callable[[int], None]
"""Called with the bytes that were just read or written; may sleep."""

DIRTY_RATIO: Final = "dirty ratio"
COMPACTION_LAG: Final = "max compaction lag"
ASKED: Final = "asked for"


def check_map_bytes(map_bytes: int, load_factor: float) -> None:
    """IllegalArgument where an offset map of that size lets no key in: nothing would be cleaned (CLN-5)."""
    if not map_bytes // BYTES_PER_SLOT * load_factor > 1:
        raise IllegalArgument(
            f"an offset map of {map_bytes} bytes, {load_factor:.0%} full, holds not even one key",
            hint=f"it takes {BYTES_PER_SLOT} bytes a key",
        )


def bytes_of(segments: LogSegments[Any], first_dirty: int, end: int) -> tuple[int, int]:
    """The bytes of the segments below the first dirty offset, and of those from there to `end`."""
    clean, cleanable = segments.values(-1, first_dirty), segments.values(min(first_dirty, end), end)
    return sum(segment.size for segment in clean), sum(segment.size for segment in cleanable)


class LogToClean(NamedTuple):
    """A log and how far it is to be cleaned: keys of [first dirty, first uncleanable) go into the offset map.

    `first_uncleanable_offset` is where a segment begins. `clean_bytes` lie in segments before the first dirty offset,
    `cleanable_bytes` from there to the first uncleanable one. `reason` is why it is its turn.
    """

    topic_partition: TopicPartition
    log: UnifiedLog
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    reason: str = DIRTY_RATIO

    @classmethod
    def of(
        cls, log: UnifiedLog, first_dirty_offset: int, uncleanable_offset: int, reason: str = DIRTY_RATIO
    ) -> LogToClean:
        """The log with its bytes counted; the segment that holds `uncleanable_offset` is not cleaned, nor a later one.

        The sums have no 32-bit bound (CLN-29).
        """
        segments = log.state.segments
        above = segments.non_active_from(uncleanable_offset)
        end: int = (above[0] if above else segments.active).base_offset
        clean_bytes, cleanable_bytes = bytes_of(segments, first_dirty_offset, end)
        return cls(log.topic_partition, log, first_dirty_offset, end, clean_bytes, cleanable_bytes, reason)

    @property
    def total_bytes(self) -> int:
        """Clean and cleanable bytes."""
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        """The dirty part of what could be cleaned, 0 to 1; 0 where there is nothing (CLN-29)."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def needs_compaction_now(self) -> bool:
        """True where the dirty ratio is not asked (CLN-31)."""
        return self.reason != DIRTY_RATIO


class CleanerStats:
    """What one clean of one log did so far; seconds of the performance counter.

    `map_*` count the first reading, the others the second: `messages_read` are records of batches that were looked at,
    `invalid_messages_read` those among them without a key, `bytes_read` and `bytes_written` sizes of batches (CLN-40).
    `write_calls` tells how many writes brought `bytes_written` to the new segments: each byte by one. Threads: one
    writes; others may read.
    """

    __slots__ = (
        "buffer_utilization",
        "bytes_read",
        "bytes_written",
        "end_s",
        "invalid_messages_read",
        "map_bytes_read",
        "map_complete_s",
        "map_messages_read",
        "messages_read",
        "messages_written",
        "start_s",
        "write_calls",
    )

    def __init__(self, start_s: float) -> None:
        self.start_s = start_s
        self.map_complete_s = -1.0
        self.end_s = -1.0
        self.map_bytes_read = 0
        self.map_messages_read = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.messages_read = 0
        self.messages_written = 0
        self.invalid_messages_read = 0
        self.write_calls = 0
        self.buffer_utilization = 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds from the start to the end of the clean; 0 while it goes on."""
        return max(self.end_s - self.start_s, 0.0)

    @property
    def map_s(self) -> float:
        """Seconds that the map took to build; 0 while it is being built."""
        return max(self.map_complete_s - self.start_s, 0.0)

    def __repr__(self) -> str:
        return (
            f"<CleanerStats map {self.map_messages_read} records, read {self.messages_read} of {self.bytes_read} B, "
            f"wrote {self.messages_written} of {self.bytes_written} B>"
        )


class CleanResult(NamedTuple):
    """A clean that ended: below `end_offset` the log is clean, which the cleaner checkpoint should say then."""

    end_offset: int
    stats: CleanerStats
