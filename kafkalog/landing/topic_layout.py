"""A topic as the sink needs it: its partitions in the data directory, and its rules for batches."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from kafkalog.config.topic import LogConfig
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
"""Settings that decide whether a batch is accepted."""


class TopicLayout(NamedTuple):
    """A topic of a data directory: `partitions` is 0 if it is missing; `config` is what batches must fit."""

    partitions: int
    config: LogConfig

    @property
    def rules(self) -> tuple[str, ...]:
        """Settings that batches were made for: if they differ at the commit, batches may no longer fit."""
        return tuple(str(getattr(self.config, name)) for name in _RULES)


def read_layout(directory: str, topic: str, *, fs: FileSystem = OS) -> TopicLayout:
    """Return the current topic in the data directory; no lock is needed.

    Raises InvalidTopic; IllegalArgument if the directory has only some of its partitions, or is a partition's own;
    PartitionNotFound for a missing directory; CorruptCheckpoint, StorageError.
    """
    validate_topic(topic)
    numbers = [one.topic_partition.partition for one in partitions_of(directory, topic, fs)]
    if numbers and max(numbers) != len(numbers) - 1:
        missing = sorted(set(range(max(numbers))) - set(numbers))
        raise IllegalArgument(
            f"partition {missing[0]} of topic {topic} is not in this directory, but partition {max(numbers)} is",
            path=directory,
            hint="the sink writes to topics whose partitions are all in one data directory",
        )
    settings = read_known_topics([directory], fs=fs).settings_of(topic) or {}
    return TopicLayout(len(numbers), LogConfig.from_stored(settings))


def partition_path(directory: str, topic_partition: TopicPartition) -> str:
    """Return the path of a partition in a data directory."""
    return os.path.join(directory, str(topic_partition))
