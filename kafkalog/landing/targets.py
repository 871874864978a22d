"""Topics as targets for records that already existed: rules on timestamps do not apply to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kafkalog.config.topic import LogConfig
from kafkalog.records.packing import Compression
from kafkalog.records.placer import Placed, Placer, TopicTarget

ANY_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class StagedFor:
    """A topic as target: its partitions, its settings, the codec of its batches."""

    partitions: int
    config: LogConfig
    compression: Compression

    def as_written(self) -> TopicTarget:
        """Return the target for existing records: any timestamp is valid, since those rules are for new records."""
        config = self.config.replace(message_timestamp_after_max_ms=ANY_MS, message_timestamp_before_max_ms=ANY_MS)
        return TopicTarget(self.partitions, config, self.compression)

    def as_copied(self) -> TopicTarget:
        """Return the target for rows that keep their offsets: as in a follower, only the segment limits a batch."""
        size = self.config.segment_size
        config = LogConfig(max_message_bytes=size, message_timestamp_after_max_ms=ANY_MS).replace(segment_bytes=size)
        return TopicTarget(1, config, self.compression)


def place_all(placer: Placer, tables: Iterable[object]) -> Iterator[Placed]:
    """Yield the batches of all rows of the tables, then close the placer's batches and yield those."""
    for table in tables:
        yield from placer.add(table)
    yield from placer.finish()


def no_time() -> int:
    """Return -1, the timestamp of a record without one; it stays -1."""
    return -1
