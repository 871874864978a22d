"""Topics and directories as `LogDirs` reports them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafkalog.errors import UnknownTopicOrPartition
from kafkalog.types import TopicPartition


class Topic(NamedTuple):
    """A topic: its id (22 characters, None if it has none), partition numbers and own settings (text)."""

    name: str
    topic_id: str | None
    partitions: tuple[int, ...]
    settings: Mapping[str, str]


class Directory(NamedTuple):
    """A data directory: path, number of partitions, id, and the error that took it offline (None: it is online)."""

    path: str
    partitions: int
    directory_id: str | None = None
    offline_error: Exception | None = None


def missing(key: TopicPartition, existing: Sequence[TopicPartition]) -> UnknownTopicOrPartition:
    """Return the error for a partition that is not among the partitions `existing`."""
    numbers = [one.partition for one in existing if one.topic == key.topic]
    if numbers:
        listed = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
        return UnknownTopicOrPartition(f"topic {key.topic} has no partition {key.partition}", hint=f"it has {listed}")
    return unknown_topic(key.topic, existing)


def unknown_topic(name: str, existing: Sequence[TopicPartition]) -> UnknownTopicOrPartition:
    """Return the error for a topic without a partition in `existing`."""
    topics = sorted({one.topic for one in existing})
    listed = ", ".join(topics[:8]) + (", ..." if len(topics) > 8 else "")
    return UnknownTopicOrPartition(
        f"there is no topic {ascii(name[:80])}", hint=f"topics here: {listed}" if topics else "there are no topics here"
    )
