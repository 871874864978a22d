"""Deletion of a topic, and changes to its settings, in data directories without a running broker."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from kafkalog.config.topic import LogConfig, key_for
from kafkalog.errors import KafkalogError, NotAPartition, StorageError
from kafkalog.manager.checkpoints import forget
from kafkalog.manager.deletion import remove_tree
from kafkalog.manager.known_topics import read_known_topics
from kafkalog.manager.log_dir import LogDir
from kafkalog.manager.partition import ensure_topic
from kafkalog.manager.topics import TopicEntry, TopicStore
from kafkalog.storage.names import DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, delete_dir_name, parse_dir, validate_topic
from kafkalog.tools.directories import PartitionPath, find, partitions
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.os_errors import os_errors

_LOG: Final = logging.getLogger(__name__)

def delete_topic(dirs: Sequence[str], topic: str, *, apply: bool = True, fs: FileSystem = OS) -> list[PartitionPath]:
    """Delete all partitions of a topic, its checkpoint lines and its entry; return the partitions (MGR-10).

    Without `apply`, only return the partitions. The topics files record first that the delete has begun. After a crash,
    or an error once a partition is deleted, the next start of a server or store, or a second call, completes it.
    UnknownTopicOrPartition, DirectoryLocked, StorageError.
    """
    found, homes = _find_to_delete(dirs, topic, fs)
    if not apply:
        return found
    with _lock_directories(homes, fs):
        moving = [one for home in homes for one in _of_kind(home, topic, FUTURE_DIR_SUFFIX, fs)]
        renamed: list[str] = []
        try:
            _mark_deleted(dirs, homes, topic, found, fs)
            for one in (*moving, *found):
                renamed.append(_rename_for_delete(one, fs))
        except BaseException:
            if not renamed:
                _unmark_deleted(homes, topic, fs)
            raise
        for home in homes:
            gone = _of_kind(home, topic, DELETE_DIR_SUFFIX, fs)  # also of a call that was interrupted
            forget(home, [one.topic_partition for one in (*found, *moving, *gone)], fs=fs)
            renamed += [one.path for one in gone]
            store = TopicStore(home, fs=fs)
            entry = store.get(topic)
            store.remove((topic,), () if entry is None else (entry.topic_id,))
        for path in dict.fromkeys(renamed):
            with os_errors("remove the deleted partition", path):
                remove_tree(path, fs)
                fs.fsync_dir(os.path.dirname(path))
    return found


def _find_to_delete(dirs: Sequence[str], topic: str, fs: FileSystem) -> tuple[list[PartitionPath], list[str]]:
    """Return the partitions of a topic and the directories that have one or list the topic: a crash may leave either.

    UnknownTopicOrPartition if there is none.
    """
    found = partitions(dirs, topic=validate_topic(topic), fs=fs)
    listing = [directory for directory in dirs if TopicStore(directory, fs=fs).get(topic) is not None]
    if not found and not listing:
        find(dirs, topic, fs=fs)  # raises
    homes: dict[str, str] = {}
    for home in (*_directories(found), *listing):
        homes.setdefault(os.path.realpath(home), home)  # one lock each, however the paths are spelled
    return found, list(homes.values())


def _mark_deleted(
    dirs: Sequence[str], homes: Sequence[str], topic: str, found: Sequence[PartitionPath], fs: FileSystem
) -> None:
    """Record on disk that the delete of a topic has begun; one that a broker created gets an entry for that."""
    siblings = [(one.topic_partition, one.path) for one in found]
    for home in homes:
        store = TopicStore(home, fs=fs)
        here = [one for one in found if os.path.dirname(one.path) == home]
        if here and store.get(topic) is None:
            ensure_topic(store, here[0].topic_partition, siblings, settings=_known_settings(dirs, topic, fs), fs=fs)
        store.mark_deleted((topic,))


def _known_settings(dirs: Sequence[str], topic: str, fs: FileSystem) -> Mapping[str, object]:
    """Return a topic's settings in a broker's metadata; none if they cannot be read."""
    try:
        return read_known_topics(dirs, fs=fs).settings_of(topic) or {}
    except KafkalogError:
        return {}


def _unmark_deleted(homes: Sequence[str], topic: str, fs: FileSystem) -> None:
    """Undo `_mark_deleted` on every disk that allows it: nothing was deleted."""
    for home in homes:
        try:
            TopicStore(home, fs=fs).mark_deleted((topic,), False)
        except StorageError as error:
            _LOG.error("the next start completes the failed delete of topic %s: %s", topic, error)


def _of_kind(directory: str, topic: str, kind: str, fs: FileSystem) -> list[PartitionPath]:
    """Return the topic's directories that have been renamed for a delete, or are copies being moved, as `kind` says."""
    with os_errors("list the partitions", directory):
        names = fs.names(directory)
    found = []
    for name in names:
        try:
            key, own_kind = parse_dir(name)
        except NotAPartition:
            continue
        if own_kind == kind and key.topic == topic:
            found.append(PartitionPath(key, os.path.join(directory, name)))
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
    with _lock_directories(_directories(found), fs):
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
def _lock_directories(directories: Sequence[str], fs: FileSystem) -> Iterator[None]:
    """Lock the directories exclusively for the block; their clean-shutdown markers stay, since no log is opened."""
    with ExitStack() as held:
        for directory in directories:
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
