"""What records that were records before are made for: a topic that does not hold their times against them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafkalog.config import LogConfig
from kafkalog.records.packing import Compression
from kafkalog.records.placer import TopicTarget

__all__ = ["StagedFor", "no_time"]

ANY_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class StagedFor:
    """A topic as records are made for it: its partitions, its settings, its batches' codec."""

    partitions: int
    config: LogConfig
    compression: Compression

    def as_written(self) -> TopicTarget:
        """What rows go by that were records before: any time, since the rules on times are for new records."""
        config = self.config.replace(message_timestamp_after_max_ms=ANY_MS, message_timestamp_before_max_ms=ANY_MS)
        return TopicTarget(self.partitions, config, self.compression)

    def as_copied(self) -> TopicTarget:
        """What rows of one partition go by that keep their offsets: as for a follower, only a segment bounds them."""
        size = self.config.segment_size
        config = LogConfig(max_message_bytes=size, message_timestamp_after_max_ms=ANY_MS).replace(segment_bytes=size)
        return TopicTarget(1, config, self.compression)


def no_time() -> int:
    """What stands for a record's time where it has none: it stays so."""
    return -1
