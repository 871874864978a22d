"""Listing and description of topics in data directories."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from kafkalog.errors import NotAPartition, UnknownTopicOrPartition
from kafkalog.manager.topics import TopicEntry, TopicStore
from kafkalog.storage.directory import list_directory
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.tools.directories import PartitionPath, find, partitions
from kafkalog.util.fileio import OS, FileSystem


class TopicSummary(NamedTuple):
    """A topic with the directories of its partitions and the bytes of its segment files."""

    name: str
    partitions: list[PartitionPath]
    size: int


class PartitionSummary(NamedTuple):
    """A partition: its directory, its offsets, the number and bytes of its segments."""

    partition: int
    path: str
    start_offset: int
    end_offset: int
    segments: int
    size: int


class TopicDescription(NamedTuple):
    """A topic's id (None if unknown), settings (of the topics file, or a broker's) and partitions."""

    name: str
    topic_id: str | None
    settings: dict[str, str]
    partitions: list[PartitionSummary]

    def as_dict(self) -> dict[str, Any]:
        """Return the description as plain dicts and lists, for JSON."""
        return {**self._asdict(), "partitions": [part._asdict() for part in self.partitions]}


def topics(dirs: Sequence[str], *, fs: FileSystem = OS) -> list[TopicSummary]:
    """Return all topics with at least one partition directory, by name."""
    grouped: dict[str, list[PartitionPath]] = {}
    for one in partitions(dirs, fs=fs):
        grouped.setdefault(one.topic_partition.topic, []).append(one)
    return [
        TopicSummary(name, found, sum(_log_bytes(one.path, fs) for one in found)) for name, found in grouped.items()
    ]


def _log_bytes(path: str, fs: FileSystem) -> int:
    return sum(list_directory(path, fs).sizes.values())


def topic_entry(dirs: Sequence[str], topic: str, *, fs: FileSystem = OS) -> TopicEntry | None:
    """Return the topic's entry in the first topics file that has one."""
    for directory in dirs:
        entry = TopicStore(directory, fs=fs).get(topic)
        if entry is not None:
            return entry
    return None


def describe_topic(dirs: Sequence[str], topic: str, *, fs: FileSystem = OS) -> TopicDescription:
    """Return id, settings and partitions of a topic; UnknownTopicOrPartition if it is absent.

    A partition directory without segments is described as an empty log, as a broker opens it.
    """
    from kafkalog.manager.known_topics import read_known_topics
    from kafkalog.storage.readonly.view import LogView

    found = []
    for topic_partition, path in find(dirs, topic, fs=fs):
        try:
            view = LogView(path, fs=fs)
        except NotAPartition:
            found.append(PartitionSummary(topic_partition.partition, path, 0, 0, 0, 0))
            continue
        with view:
            found.append(
                PartitionSummary(
                    topic_partition.partition,
                    path,
                    view.log_start_offset,
                    view.log_end_offset,
                    len(view.segments),
                    _log_bytes(path, fs),
                )
            )
    entry = topic_entry(dirs, topic, fs=fs)
    if entry is None:
        settings = read_known_topics(dirs, fs=fs).settings_of(topic) or {}
        return TopicDescription(topic, read_partition_metadata(fs, found[0].path), dict(settings), found)
    return TopicDescription(topic, entry.topic_id, dict(entry.settings), found)


def partition_count(dirs: Sequence[str], topic: str, *, fs: FileSystem = OS) -> int:
    """Return the number of a topic's partitions; UnknownTopicOrPartition if it is absent."""
    entry = topic_entry(dirs, topic, fs=fs)
    existing = partitions(dirs, topic=topic, fs=fs)
    count = max([entry.partitions if entry else 0, *(one.topic_partition.partition + 1 for one in existing)])
    if count == 0:
        raise UnknownTopicOrPartition(f"there is no topic {topic}", path=os.pathsep.join(dirs))
    return count
