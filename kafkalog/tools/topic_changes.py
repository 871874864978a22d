"""Deletion of a topic, and changes to its settings, in data directories without a running broker."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from kafkalog.config.topic import LogConfig, key_for
from kafkalog.errors import KafkalogError
from kafkalog.manager.checkpoints import forget
from kafkalog.manager.deletion import remove_tree
from kafkalog.manager.known_topics import read_known_topics
from kafkalog.manager.log_dir import LogDir
from kafkalog.manager.partition import ensure_topic
from kafkalog.manager.topics import TopicEntry, TopicStore
from kafkalog.storage.names import delete_dir_name
from kafkalog.tools.directories import PartitionPath, find
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.os_errors import os_errors


def delete_topic(dirs: Sequence[str], topic: str, *, apply: bool = True, fs: FileSystem = OS) -> list[PartitionPath]:
    """Delete all partitions of a topic, its checkpoint lines and its entry; return the partitions (MGR-10).

    Without `apply`, only return the partitions. Every directory is renamed first, so that a crash leaves only
    directories that the next start removes.
    UnknownTopicOrPartition, DirectoryLocked, StorageError.
    """
    found = find(dirs, topic, fs=fs)
    if not apply:
        return found
    with _lock_directories(found, fs):
        renamed = [_rename_for_delete(one, fs) for one in found]
        for directory in _directories(found):
            forget(directory, [one.topic_partition for one in found], fs=fs)
            store = TopicStore(directory, fs=fs)
            entry = store.get(topic)
            store.remove((topic,), () if entry is None else (entry.topic_id,))
        for path in renamed:
            with os_errors("remove the deleted partition", path):
                remove_tree(path, fs)
                fs.fsync_dir(os.path.dirname(path))
    return found


def alter_topic(
    dirs: Sequence[str], topic: str, changes: Mapping[str, object], *, fs: FileSystem = OS
) -> TopicEntry:
    """Change a topic's settings in the topics file of each directory; return its entry. None resets a setting.

    A topic that a broker created gets an entry, with the settings in the broker's metadata. UnknownTopicOrPartition,
    UnknownConfig, ConfigError, DirectoryLocked, StorageError; nothing has changed then.
    """
    found = find(dirs, topic, fs=fs)
    known = read_known_topics(dirs, fs=fs)
    before = known.settings_of(topic) or {}
    given = {key_for(name).name: value for name, value in changes.items()}
    LogConfig.from_stored({**before, **given})
    entry: TopicEntry | None = None
    with _lock_directories(found, fs):
        for directory in reversed(_directories(found)):
            store = TopicStore(directory, fs=fs)
            siblings = [(one.topic_partition, one.path) for one in found]
            here = next(one for one in found if os.path.dirname(one.path) == directory)
            ensure_topic(store, here.topic_partition, siblings, settings=before, fs=fs)
            entry = store.alter(topic, given)
    assert entry is not None
    return entry


def is_in_broker_metadata(dirs: Sequence[str], topic: str, *, fs: FileSystem = OS) -> bool:
    """Return True if a broker's metadata in these directories has the topic: a broker recreates it when it starts.

    Metadata that cannot be read counts as empty.
    """
    try:
        cluster = read_known_topics(dirs, fs=fs).cluster
    except KafkalogError:
        return False
    return cluster is not None and topic in cluster.image.topics


def _directories(found: Sequence[PartitionPath]) -> list[str]:
    """Return the data directories of the partitions, each once."""
    return list(dict.fromkeys(os.path.dirname(one.path) for one in found))


@contextmanager
def _lock_directories(found: Sequence[PartitionPath], fs: FileSystem) -> Iterator[None]:
    """Lock the directories exclusively for the block; their clean-shutdown markers stay, since no log is opened."""
    with ExitStack() as held:
        for directory in _directories(found):
            held.enter_context(LogDir.acquire(directory, fs=fs, exclusive=True))
        yield


def _rename_for_delete(one: PartitionPath, fs: FileSystem) -> str:
    """Rename the partition's directory for its delete, sync that, and return the new path."""
    directory = os.path.dirname(one.path)
    path = os.path.join(directory, delete_dir_name(one.topic_partition))
    with os_errors("rename the partition directory", one.path):
        fs.rename(one.path, path)
        fs.fsync_dir(directory)
    return path
