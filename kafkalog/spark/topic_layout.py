"""What a sink has to know of a topic: how many partitions it has in the data directory, and what it asks of batches."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from kafkalog.config import LogConfig
from kafkalog.errors import IllegalArgument
from kafkalog.manager.known_topics import read_known_topics
from kafkalog.storage.names import validate_topic
from kafkalog.tools.directories import partitions_of
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS, FileSystem

_RULES: Final = (
    "cleanup_policy", "compression_type", "max_message_bytes", "segment_size", "message_timestamp_type",
    "message_timestamp_before_max_ms", "message_timestamp_after_max_ms",
)  # fmt: skip
"""The settings that decide whether a batch is taken."""


class TopicLayout(NamedTuple):
    """A topic of a data directory: `partitions` 0 for one that is not there; the settings that batches must fit."""

    partitions: int
    config: LogConfig

    @property
    def rules(self) -> tuple[str, ...]:
        """What batches were made for: another value at the commit means that they may not fit any more."""
        return tuple(str(getattr(self.config, name)) for name in _RULES)


def read_layout(directory: str, topic: str, *, fs: FileSystem = OS) -> TopicLayout:
    """The topic as it is in the data directory now; no lock is needed.

    InvalidTopic; IllegalArgument where the directory has a part of its partitions only, or is a partition's own;
    PartitionNotFound for a directory that is not there; CorruptCheckpoint, StorageError.
    """
    validate_topic(topic)
    numbers = [one.topic_partition.partition for one in partitions_of(directory, topic, fs)]
    if numbers and max(numbers) != len(numbers) - 1:
        missing = sorted(set(range(max(numbers))) - set(numbers))
        raise IllegalArgument(
            f"partition {missing[0]} of topic {topic} is not in this directory, partition {max(numbers)} is",
            path=directory,
            hint="the sink writes to topics whose partitions lie in one data directory",
        )
    settings = read_known_topics([directory], fs=fs).settings_of(topic) or {}
    return TopicLayout(len(numbers), LogConfig.from_stored(settings))


def partition_path(directory: str, topic_partition: TopicPartition) -> str:
    """The path of a partition in a data directory."""
    return os.path.join(directory, str(topic_partition))
