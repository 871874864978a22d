"""Creating topics and data directories."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from kafkalog.config.topic import LogConfig, key_for
from kafkalog.errors import InvalidPartitions, TopicExists
from kafkalog.log.open_writable import open_for_append
from kafkalog.manager.known_topics import read_known_topics
from kafkalog.manager.log_dir import LogDir
from kafkalog.manager.partition import ensure_topic
from kafkalog.manager.topics import TopicStore, check_new_partitions
from kafkalog.storage.names import collides_with, validate_topic
from kafkalog.tools.directories import find, partitions
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.os_errors import os_errors


def create_topic(
    dirs: Sequence[str], topic: str, count: int, settings: Mapping[str, object], *, fs: FileSystem = OS
) -> None:
    """Create a topic of `count` empty partitions in the first data directory, which is created if missing.

    Raises TopicExists if the topic exists, or one whose name collides with it in metric names; InvalidPartitions.
    """
    validate_topic(topic)
    check_new_partitions(count)
    given = {key_for(name).name: value for name, value in settings.items()}
    home = make_data_directory(dirs[0], fs)
    log_dir = LogDir.acquire(home, fs=fs)
    try:
        check_name_is_free(dirs, topic, home, fs)
        TopicStore(home, fs=fs).ensure(topic, partitions=count, settings=given)
        LogConfig.from_stored(given).warn_if_small(3)
        for number in range(count):
            open_for_append(os.path.join(home, f"{topic}-{number}"), fs=fs).close()
    finally:
        log_dir.release()


def add_partitions(dirs: Sequence[str], topic: str, count: int, *, fs: FileSystem = OS) -> int:
    """Add empty partitions until the topic has `count`; return the number added.

    Each is created in that of the topic's directories with the fewest partitions.

    Raises UnknownTopicOrPartition; InvalidPartitions if the topic has more, or too many are missing; DirectoryLocked,
    StorageError.
    """
    found = find(dirs, topic, fs=fs)
    existing = {one.topic_partition.partition for one in found}
    if count < len(existing):
        raise InvalidPartitions(f"cannot reduce topic {topic} from {len(existing)} partitions to {count}")
    check_new_partitions(count, len(existing))
    homes = dict.fromkeys(os.path.dirname(one.path) for one in found)
    sizes = {home: len(partitions([home], fs=fs)) for home in homes}
    missing = [number for number in range(count) if number not in existing]
    settings = read_known_topics(dirs, fs=fs).settings_of(topic) if missing else None
    for number in missing:
        home = min(sizes, key=sizes.__getitem__)
        with LogDir.acquire(home, fs=fs):
            key = TopicPartition(topic, number)  # a new entry gets the settings that only another directory may have
            ensure_topic(TopicStore(home, fs=fs), key, found, settings=settings, fs=fs)
            open_for_append(os.path.join(home, str(key)), fs=fs).close()
        sizes[home] += 1
    return len(missing)


def check_name_is_free(
    dirs: Sequence[str], topic: str, home: str, fs: FileSystem = OS, *, beside: Iterable[str] = ()
) -> None:
    """Raise TopicExists if a topic in `dirs` has this name, or it or one of `beside` the same in metric names."""
    names = {one.topic_partition.topic for one in partitions(dirs, fs=fs)}
    names |= {name for directory in dirs for name in TopicStore(directory, fs=fs).names()}
    for name in sorted(names | (set(beside) - {topic})):
        if name == topic:
            raise TopicExists(f"topic {topic} already exists", path=home)
        if collides_with(name, topic):
            reason = f"topic {topic} collides with {name}: '.' and '_' are the same in metric names"
            raise TopicExists(reason, path=home)


def make_data_directory(directory: str, fs: FileSystem = OS) -> str:
    """Create `directory` if only its last part is missing; return it."""
    with os_errors("create the data directory", directory), suppress(FileExistsError):
        fs.mkdir(directory)
        fs.fsync_dir(os.path.dirname(os.path.abspath(directory)))
    return directory
