"""The topics of all data directories: each topic's id and settings, whichever directories its partitions lie in.

Every directory that holds a partition of a topic has the topic in its own topics file, so each can be opened by
itself. Where two files differ, the directory that is given first counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kafkalog.errors import StorageError, UnknownTopicOrPartition
from kafkalog.manager.data_directory import DataDirectory, Logs
from kafkalog.manager.partition import ensure_topic
from kafkalog.manager.topics import TopicEntry, TopicStore
from kafkalog.types import TopicPartition

_LOG: Final = logging.getLogger(__name__)
_Partitions = Iterable[tuple[TopicPartition, str]]


class StoreTopics:
    """What the topics files of the directories say, each read once; `elsewhere` has the settings of other topics.

    Threads: changed under the manager's lock; reads may run beside.
    """

    def __init__(self, elsewhere: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._elsewhere = dict(elsewhere or {})
        self._known: dict[str, TopicEntry] = {}

    def read(self, directory: DataDirectory) -> None:
        """Take in what a directory's file says. CorruptCheckpoint, StorageError."""
        for name, entry in TopicStore(directory.path, fs=directory.fs).topics().items():
            known = self._known.setdefault(name, entry)
            if known is not entry and (known.topic_id, known.settings) != (entry.topic_id, entry.settings):
                _LOG.warning("%s has another id or other settings of topic %s: they do not count", directory.path, name)
            if known.topic_id != entry.topic_id:
                # a directory that was away while its topic was deleted, and another made of that name: that one counts
                if known.is_deleted and not entry.is_deleted:
                    self._known[name] = entry
            elif entry.is_deleted or entry.partitions > known.partitions:
                partitions, is_deleted = max(entry.partitions, known.partitions), entry.is_deleted or known.is_deleted
                self._known[name] = known._replace(partitions=partitions, is_deleted=is_deleted)

    def get(self, topic: str) -> TopicEntry | None:
        """The topic's entry; None where no file has one."""
        return self._known.get(topic)

    def entries(self) -> list[TopicEntry]:
        """The topics that a file has, sorted by name; those whose delete has begun, too."""
        return [self._known[name] for name in sorted(self._known)]

    def settings_of(self, topic: str) -> Mapping[str, Any]:
        """The topic's own settings."""
        entry = self._known.get(topic)
        return self._elsewhere.get(topic, {}) if entry is None else entry.settings

    def ensure(
        self,
        directory: DataDirectory,
        topic_partition: TopicPartition,
        siblings: _Partitions,
        settings: Mapping[str, Any] | None,
        topic_id: str | None,
    ) -> TopicEntry:
        """The topic's entry in a directory's file, made or grown so that it has the partition."""
        name = topic_partition.topic
        known = self._known.get(name)
        if known is not None:
            settings, topic_id = known.settings, known.topic_id
        elif settings is None:
            settings = self._elsewhere.get(name)
        store = TopicStore(directory.path, fs=directory.fs)
        made = ensure_topic(
            store, topic_partition, siblings, settings=settings, topic_id=topic_id, fs=directory.fs
        )
        if known is None or made.partitions > known.partitions:
            self._known[name] = made
        return made

    def forget_if_gone(self, directory: DataDirectory, topic: str, logs: Logs) -> None:
        """Take a topic out of a directory's file once it has no partition there, and out of memory once none is left.

        StorageError.
        """
        if not any(key.topic == topic for key in (*directory.logs, *directory.future_logs)):
            TopicStore(directory.path, fs=directory.fs).remove(topic)
        if not any(key.topic == topic for key in logs):
            self._known.pop(topic, None)

    def mark_deleted(self, directories: Sequence[DataDirectory], topic: str, logs: Logs) -> None:
        """Write into the file of each of these directories that has the topic that its delete has begun. StorageError.

        A crash from here on only means that the next start goes on.
        """
        for directory in directories:
            for key in [key for key in directory.logs if key.topic == topic][:1]:
                siblings = [(other, log.path) for other, log in logs.items() if other.topic == topic]
                self.ensure(directory, key, siblings, None, None)
            TopicStore(directory.path, fs=directory.fs).mark_deleted(topic)
        if topic in self._known:
            self._known[topic] = self._known[topic]._replace(is_deleted=True)

    def unmark_deleted(self, directories: Sequence[DataDirectory], topic: str) -> None:
        """Take back what `mark_deleted` wrote, as far as the disks let: the delete failed, and the topic is in use."""
        for directory in directories:
            try:
                TopicStore(directory.path, fs=directory.fs).mark_deleted(topic, False)
            except StorageError as error:
                _LOG.error("the next start deletes topic %s, whose delete failed: %s", topic, error)
        if topic in self._known:
            self._known[topic] = self._known[topic]._replace(is_deleted=False)

    def forget(self, directories: Sequence[DataDirectory], topic: str) -> None:
        """Take a topic that has no partition left out of the files of these directories. StorageError."""
        for directory in directories:
            TopicStore(directory.path, fs=directory.fs).remove(topic)
        self._known.pop(topic, None)

    def alter(
        self, directories: Sequence[DataDirectory], topic: str, logs: Logs, changes: Mapping[str, Any]
    ) -> None:
        """Change a topic's settings in the file of each of these directories, in the first one's last: that counts."""
        siblings = [(key, log.path) for key, log in logs.items() if key.topic == topic]
        if not siblings and topic not in self._known:
            raise UnknownTopicOrPartition(f"there is no topic {ascii(topic[:80])} here")
        for directory in reversed(directories):
            here = [key for key in directory.logs if key.topic == topic]
            if here or TopicStore(directory.path, fs=directory.fs).get(topic) is not None:
                for key in here[:1]:
                    self.ensure(directory, key, siblings, None, None)
                self._known[topic] = TopicStore(directory.path, fs=directory.fs).alter(topic, changes)
