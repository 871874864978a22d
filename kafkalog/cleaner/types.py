"""Types that the cleaner's modules share: a log with the range to clean, and the counters of a clean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafkalog._core.clean.offset_map import BYTES_PER_SLOT
from kafkalog.errors import IllegalArgument
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.segments import LogSegments, Segment
from kafkalog.types import TopicPartition

CheckDone = Callable[[], None]
"""Called between chunks; raises CleaningAborted if the clean must end."""
Throttled = Callable[[int], None]
"""Called with the bytes that were just read or written; may sleep."""
Progress = Callable[["CleanerStats"], object]
"""Called with the counters of a clean between chunks; may raise, which ends the clean."""

DIRTY_RATIO: Final = "dirty ratio"
COMPACTION_LAG: Final = "max compaction lag"
ASKED: Final = "asked for"


def check_map_bytes(map_bytes: int, load_factor: float) -> None:
    """Raise IllegalArgument if an offset map of that size has no room for a key: nothing could be cleaned (CLN-5)."""
    if not map_bytes // BYTES_PER_SLOT * load_factor > 1:
        raise IllegalArgument(
            f"an offset map of {map_bytes} bytes, {load_factor:.0%} full, has no room for a key",
            hint=f"each key takes {BYTES_PER_SLOT} bytes",
        )


def bytes_of(segments: LogSegments[Segment], first_dirty: int, end: int) -> tuple[int, int]:
    """Return the bytes of the segments below the first dirty offset, and of those from there to `end`."""
    clean, cleanable = segments.values(-1, first_dirty), segments.values(min(first_dirty, end), end)
    return sum(segment.size for segment in clean), sum(segment.size for segment in cleanable)


class LogToClean(NamedTuple):
    """A log and the range to clean: keys of [first dirty, first uncleanable) go into the offset map.

    `first_uncleanable_offset` is the base of a segment. `clean_bytes` lie in segments before the first dirty offset,
    `cleanable_bytes` from there to the first uncleanable one. `reason` is the reason for the clean.
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
        """Return the log with its bytes counted, up to the segment that holds `uncleanable_offset`.

        That segment and later ones are not cleaned. The sums have no 32-bit limit (CLN-29).
        """
        segments = log.state.segments
        later = segments.non_active_from(uncleanable_offset)
        end: int = (later[0] if later else segments.active).base_offset
        clean_bytes, cleanable_bytes = bytes_of(segments, first_dirty_offset, end)
        return cls(log.topic_partition, log, first_dirty_offset, end, clean_bytes, cleanable_bytes, reason)

    @property
    def total_bytes(self) -> int:
        """Clean and cleanable bytes."""
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        """Share of dirty bytes in the total, 0 to 1; 0 if the total is 0 (CLN-29)."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def needs_compaction_now(self) -> bool:
        """True if the log is cleaned whatever its dirty ratio (CLN-31)."""
        return self.reason != DIRTY_RATIO


@dataclass(slots=True, eq=False)
class CleanerStats:
    """Counters of one clean of one log; seconds of the performance counter.

    `map_*` count the first reading, the others the second: `messages_read` are records of batches that were examined,
    `invalid_messages_read` those among them without a key, `bytes_read` and `bytes_written` sizes of batches (CLN-40).
    `write_calls` is the number of writes for `bytes_written`: each byte is written once. Threads: one writes; others
    may read.
    """

    start_s: float
    map_complete_s: float = -1.0
    end_s: float = -1.0
    map_bytes_read: int = 0
    map_messages_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    messages_read: int = 0
    messages_written: int = 0
    invalid_messages_read: int = 0
    write_calls: int = 0
    buffer_utilization: float = 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds from the start to the end of the clean; 0 until it ends."""
        return max(self.end_s - self.start_s, 0.0)

    @property
    def map_s(self) -> float:
        """Seconds that the map took to build; 0 until it is complete."""
        return max(self.map_complete_s - self.start_s, 0.0)

    def __repr__(self) -> str:
        return (
            f"<CleanerStats map {self.map_messages_read} records, read {self.messages_read} of {self.bytes_read} B, "
            f"wrote {self.messages_written} of {self.bytes_written} B>"
        )


class CleanResult(NamedTuple):
    """The result of a clean: the log is clean below `end_offset`, the value for the cleaner checkpoint.

    That is the first dirty offset if nothing was dirty.
    """

    end_offset: int
    stats: CleanerStats
