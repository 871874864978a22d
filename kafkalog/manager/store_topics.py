"""The topics of all data directories: each topic's id and settings, whichever directories its partitions lie in.

Every directory that holds a partition of a topic has the topic in its own topics file, so that each can be opened
alone. If two files differ, the directory that is given first takes precedence.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from kafkalog.errors import StorageError, UnknownTopicOrPartition
from kafkalog.manager.data_directory import DataDirectory, Logs
from kafkalog.manager.inventory import IsStray
from kafkalog.manager.partition import ensure_topic
from kafkalog.manager.topics import TopicEntry, TopicsFile, TopicStore, WantedTopic
from kafkalog.types import TopicPartition

_LOG: Final = logging.getLogger(__name__)


class StoreTopics:
    """The merged topics files of the directories, each read once; `other_settings` has the settings of other topics.

    Threads: changed under the manager's lock; reads may run beside.
    """

    def __init__(self, other_settings: Mapping[str, Mapping[str, object]] | None = None) -> None:
        self._other_settings = dict(other_settings or {})
        self._stores: dict[str, TopicStore] = {}
        self._files: dict[str, TopicsFile] = {}
        self._known: dict[str, TopicEntry] = {}
        self._stale: dict[str, dict[str, str]] = {}

    def read(self, directory: DataDirectory) -> None:
        """Read a directory's file; `merge` then resolves differences. CorruptCheckpoint, StorageError."""
        self._files[directory.path] = self._store(directory).read()

    def _store(self, directory: DataDirectory) -> TopicStore:
        """Return a directory's topics file, which is parsed again only if it has changed."""
        return self._stores.setdefault(directory.path, TopicStore(directory.path, fs=directory.fs))

    def merge(self) -> None:
        """Merge the files that were read."""
        self._known, self._stale = merge_files(self._files)
        for path, file in self._files.items():
            for name, entry in file.topics.items():
                known = self._known.get(name)
                if name in self._stale.get(path, ()):
                    _LOG.warning("topic %s was deleted while %s was absent: its partitions are set aside", name, path)
                elif known is not None and (known.topic_id, known.settings) != (entry.topic_id, entry.settings):
                    _LOG.warning("%s has a different id or settings for topic %s: ignoring them", path, name)

    def strays_in(self, directory: DataDirectory) -> IsStray | None:
        """Return a rule for partitions of topics deleted while a directory was absent; None if there are none."""
        stale = self._stale.get(directory.path)
        if not stale:
            return None
        return lambda key, topic_id: key.topic in stale and topic_id in (None, stale[key.topic])

    def forget_stale(self, directory: DataDirectory) -> None:
        """Remove topics that were deleted while a directory was absent from its file. StorageError."""
        stale = self._stale.pop(directory.path, {})
        if stale:
            self._store(directory).remove(stale, stale.values())

    def get(self, topic: str) -> TopicEntry | None:
        """Return the topic's entry; None if no file has one."""
        return self._known.get(topic)

    def entries(self) -> list[TopicEntry]:
        """Return the topics that a file has, sorted by name, including those whose delete has begun."""
        return [self._known[name] for name in sorted(self._known)]

    def settings_of(self, topic: str) -> Mapping[str, object]:
        """Return the topic's own settings."""
        entry = self._known.get(topic)
        return self._other_settings.get(topic, {}) if entry is None else entry.settings

    def ensure(
        self,
        directory: DataDirectory,
        topic_partition: TopicPartition,
        logs: Logs,
        settings: Mapping[str, object] | None,
        topic_id: str | None,
    ) -> TopicEntry:
        """Return the topic's entry in a directory's file, created or extended so that it has the partition."""
        name = topic_partition.topic
        known = self._known.get(name)
        if known is not None:
            settings, topic_id = known.settings, known.topic_id
        elif settings is None:
            settings = self._other_settings.get(name)
        siblings = ((other, log.path) for other, log in logs.items() if other.topic == name)
        entry = ensure_topic(
            self._store(directory), topic_partition, siblings, settings=settings, topic_id=topic_id, fs=directory.fs
        )
        if known is None or entry.partitions > known.partitions:
            self._known[name] = entry
        return entry

    def listed_in(self, directory: DataDirectory, names: Iterable[str]) -> list[str]:
        """Return those of the topics that a directory's file has. CorruptCheckpoint, StorageError."""
        listed = self._store(directory).topics()
        return [name for name in names if name in listed]

    def ensure_all(self, directory: DataDirectory, wanted: Iterable[WantedTopic]) -> None:
        """Create or extend the topics' entries in a directory's file, in one write.

        Errors as for `TopicStore.ensure_all`.
        """
        rows = []
        for one in wanted:
            known = self._known.get(one.name)
            rows.append(one if known is None else one._replace(settings=known.settings, topic_id=known.topic_id))
        for entry in self._store(directory).ensure_all(rows):
            known = self._known.get(entry.name)
            if known is None or entry.partitions > known.partitions:
                self._known[entry.name] = entry

    def forget_if_gone(self, directory: DataDirectory, topic: str, logs: Logs) -> None:
        """Remove a topic from a directory's file once it has no partition there, and from memory once none is left.

        A topic whose delete has begun is left to `forget` at its end. StorageError.
        """
        known = self._known.get(topic)
        if known is not None and known.is_deleted:
            return
        if not any(key.topic == topic for key in (*directory.logs, *directory.future_logs)):
            self._store(directory).remove((topic,))
        if not any(key.topic == topic for key in logs):
            self._known.pop(topic, None)

    def mark_deleted(self, directories: Sequence[DataDirectory], names: Collection[str], logs: Logs) -> None:
        """Record in the file of each of these directories that the delete of the topics has begun.

        StorageError. After a crash from here on, the next start continues the delete.
        """
        for directory in directories:
            listed = self._store(directory).topics()
            first = {key.topic: key for key in directory.logs if key.topic in names and key.topic not in listed}
            for key in first.values():
                self.ensure(directory, key, logs, None, None)
            self._store(directory).mark_deleted(names)
        self._note_deleted(names, True)

    def unmark_deleted(self, directories: Sequence[DataDirectory], names: Collection[str]) -> None:
        """Undo `mark_deleted` on every disk that allows it: the delete failed, and the topics are in use."""
        for directory in directories:
            try:
                self._store(directory).mark_deleted(names, False)
            except StorageError as error:
                _LOG.error("the next start completes the failed delete of topics %s: %s", ", ".join(names), error)
        self._note_deleted(names, False)

    def _note_deleted(self, names: Collection[str], is_deleted: bool) -> None:
        for name in names:
            if name in self._known:
                self._known[name] = self._known[name]._replace(is_deleted=is_deleted)

    def forget(self, directories: Sequence[DataDirectory], names: Collection[str]) -> None:
        """Remove topics without partitions from the files of these directories; the files keep their ids as deleted.

        If a disk refuses, its file still says that the delete has begun, and the next start continues it.
        """
        found = [self._known.pop(name, None) for name in names]
        ids = [entry.topic_id for entry in found if entry is not None]
        for directory in directories:
            try:
                self._store(directory).remove(names, ids)
            except StorageError as error:
                _LOG.error("cannot record the delete of topics %s: %s", ", ".join(names), error)

    def forget_unfinished(self, directories: Iterable[DataDirectory], topic: str) -> None:
        """Remove the entries of a topic that has no partitions, left where its creation did not finish. StorageError.

        Else the next topic of that name would get their settings.
        """
        known = self._known.pop(topic, None)
        for directory in directories:
            self._store(directory).remove((topic,), () if known is None else (known.topic_id,))

    def alter(
        self, directories: Sequence[DataDirectory], topic: str, logs: Logs, changes: Mapping[str, object]
    ) -> None:
        """Change a topic's settings in the file of each of these directories; the first one, which decides, is last.

        UnknownTopicOrPartition, ConfigError, StorageError.
        """
        if topic not in self._known and not any(key.topic == topic for key in logs):
            raise UnknownTopicOrPartition(f"there is no topic {ascii(topic[:80])} here")
        for directory in reversed(directories):
            keys = [key for key in directory.logs if key.topic == topic]
            if keys or self._store(directory).get(topic) is not None:
                for key in keys[:1]:
                    self.ensure(directory, key, logs, None, None)
                self._known[topic] = self._store(directory).alter(topic, changes)


def merge_files(files: Mapping[str, TopicsFile]) -> tuple[dict[str, TopicEntry], dict[str, dict[str, str]]]:
    """Merge topics files, given by directory. The topics that apply are returned by name.

    Also returned are the ids of topics that no longer apply, by directory and name. The first file that has a topic
    takes precedence, with the largest number of partitions. A topic that was deleted while a directory was absent no
    longer applies there: another file has its id as deleted, and its own has not; or another file has the next topic of
    that name.
    """
    gone = {path: {one for other in files if other != path for one in files[other].gone} for path in files}
    gone = {path: ids - set(files[path].gone) for path, ids in gone.items()}
    known: dict[str, TopicEntry] = {}
    for path, entry in ((path, entry) for path, file in files.items() for entry in file.topics.values()):
        if entry.topic_id in gone[path] and not entry.is_deleted:
            continue
        first = known.setdefault(entry.name, entry)
        if first.topic_id != entry.topic_id:
            if first.is_deleted and not entry.is_deleted:
                known[entry.name] = entry
        elif entry.is_deleted or entry.partitions > first.partitions:
            partitions, is_deleted = max(entry.partitions, first.partitions), entry.is_deleted or first.is_deleted
            known[entry.name] = first._replace(partitions=partitions, is_deleted=is_deleted)
    stale: dict[str, dict[str, str]] = {}
    for path, file in files.items():
        for name, entry in file.topics.items():
            is_other = name not in known or known[name].topic_id != entry.topic_id
            if is_other and (entry.is_deleted or entry.topic_id in gone[path]):
                stale.setdefault(path, {})[name] = entry.topic_id
    return known, stale
