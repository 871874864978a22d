"""The topics of all data directories: each topic's id and settings, whichever directories its partitions lie in.

Every directory that holds a partition of a topic has the topic in its own topics file, so each can be opened by
itself. Where two files differ, the directory that is given first counts.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from kafkalog.errors import StorageError, UnknownTopicOrPartition
from kafkalog.manager.data_directory import DataDirectory, Logs
from kafkalog.manager.inventory import IsStray
from kafkalog.manager.partition import ensure_topic
from kafkalog.manager.topics import TopicEntry, TopicsFile, TopicStore, WantedTopic
from kafkalog.types import TopicPartition

_LOG: Final = logging.getLogger(__name__)
_Partitions = Iterable[tuple[TopicPartition, str]]


class StoreTopics:
    """What the topics files of the directories say, each read once; `elsewhere` has the settings of other topics.

    Threads: changed under the manager's lock; reads may run beside.
    """

    def __init__(self, elsewhere: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._elsewhere = dict(elsewhere or {})
        self._stores: dict[str, TopicStore] = {}
        self._files: dict[str, TopicsFile] = {}
        self._known: dict[str, TopicEntry] = {}
        self._stale: dict[str, dict[str, str]] = {}

    def read(self, directory: DataDirectory) -> None:
        """Take in what a directory's file says; `merge` then says what counts. CorruptCheckpoint, StorageError."""
        self._files[directory.path] = self._store(directory).read()

    def _store(self, directory: DataDirectory) -> TopicStore:
        """A directory's file, which is parsed again only where it has changed."""
        return self._stores.setdefault(directory.path, TopicStore(directory.path, fs=directory.fs))

    def merge(self) -> None:
        """Let count what the files that were read say together."""
        self._known, self._stale = merged(self._files)
        for path, file in self._files.items():
            for name, entry in file.topics.items():
                known = self._known.get(name)
                if name in self._stale.get(path, ()):
                    _LOG.warning("topic %s was deleted while %s was away: what is left of it is set aside", name, path)
                elif known is not None and (known.topic_id, known.settings) != (entry.topic_id, entry.settings):
                    _LOG.warning("%s has another id or other settings of topic %s: they do not count", path, name)

    def strays_in(self, directory: DataDirectory) -> IsStray | None:
        """Says which partitions of a directory are those of a topic that was deleted while it was away; None: none."""
        stale = self._stale.get(directory.path)
        if not stale:
            return None
        return lambda key, topic_id: key.topic in stale and topic_id in (None, stale[key.topic])

    def forget_stale(self, directory: DataDirectory) -> None:
        """Take topics that were deleted while a directory was away out of its file. StorageError."""
        stale = self._stale.pop(directory.path, {})
        if stale:
            self._store(directory).remove(stale, stale.values())

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
        made = ensure_topic(
            self._store(directory), topic_partition, siblings, settings=settings, topic_id=topic_id, fs=directory.fs
        )
        if known is None or made.partitions > known.partitions:
            self._known[name] = made
        return made

    def ensure_all(self, directory: DataDirectory, wanted: Iterable[WantedTopic]) -> None:
        """Have the topics' entries in a directory's file, by one write. Errors as for `TopicStore.ensure_all`."""
        rows = []
        for one in wanted:
            known = self._known.get(one.name)
            rows.append(one if known is None else one._replace(settings=known.settings, topic_id=known.topic_id))
        for made in self._store(directory).ensure_all(rows):
            known = self._known.get(made.name)
            if known is None or made.partitions > known.partitions:
                self._known[made.name] = made

    def forget_if_gone(self, directory: DataDirectory, topic: str, logs: Logs) -> None:
        """Take a topic out of a directory's file once it has no partition there, and out of memory once none is left.

        Not where all of it is being deleted: `forget` does that at the end. StorageError.
        """
        known = self._known.get(topic)
        if known is not None and known.is_deleted:
            return
        if not any(key.topic == topic for key in (*directory.logs, *directory.future_logs)):
            self._store(directory).remove((topic,))
        if not any(key.topic == topic for key in logs):
            self._known.pop(topic, None)

    def mark_deleted(self, directories: Sequence[DataDirectory], names: Collection[str], logs: Logs) -> None:
        """Write into the file of each of these directories that has the topics that their delete has begun.

        StorageError. A crash from here on only means that the next start goes on.
        """
        for directory in directories:
            here = self._store(directory).topics()
            first = {key.topic: key for key in directory.logs if key.topic in names and key.topic not in here}
            for name, key in first.items():
                siblings = [(other, log.path) for other, log in logs.items() if other.topic == name]
                self.ensure(directory, key, siblings, None, None)
            self._store(directory).mark_deleted(names)
        self._note_deleted(names, True)

    def unmark_deleted(self, directories: Sequence[DataDirectory], names: Collection[str]) -> None:
        """Take back what `mark_deleted` wrote, as far as the disks let: the delete failed, the topics are in use."""
        for directory in directories:
            try:
                self._store(directory).mark_deleted(names, False)
            except StorageError as error:
                _LOG.error("the next start deletes topics %s, whose delete failed: %s", ", ".join(names), error)
        self._note_deleted(names, False)

    def _note_deleted(self, names: Collection[str], is_deleted: bool) -> None:
        for name in names:
            if name in self._known:
                self._known[name] = self._known[name]._replace(is_deleted=is_deleted)

    def forget(self, directories: Sequence[DataDirectory], names: Collection[str]) -> None:
        """Take topics that have no partition left out of the files of these directories, which keep their ids as gone.

        Where a disk refuses, the file says that the delete has begun, and the next start goes on.
        """
        found = [self._known.pop(name, None) for name in names]
        ids = [entry.topic_id for entry in found if entry is not None]
        for directory in directories:
            try:
                self._store(directory).remove(names, ids)
            except StorageError as error:
                _LOG.error("the delete of topics %s is not noted: %s", ", ".join(names), error)

    def alter(
        self, directories: Sequence[DataDirectory], topic: str, logs: Logs, changes: Mapping[str, Any]
    ) -> None:
        """Change a topic's settings in the file of each of these directories, in the first one's last: that counts."""
        siblings = [(key, log.path) for key, log in logs.items() if key.topic == topic]
        if not siblings and topic not in self._known:
            raise UnknownTopicOrPartition(f"there is no topic {ascii(topic[:80])} here")
        for directory in reversed(directories):
            here = [key for key in directory.logs if key.topic == topic]
            if here or self._store(directory).get(topic) is not None:
                for key in here[:1]:
                    self.ensure(directory, key, siblings, None, None)
                self._known[topic] = self._store(directory).alter(topic, changes)


def merged(files: Mapping[str, TopicsFile]) -> tuple[dict[str, TopicEntry], dict[str, dict[str, str]]]:
    """(the topics that count by name, the ids of those that do not by directory and name), of the files by directory.

    The first file that has a topic counts, and the largest number of partitions. A topic that was deleted while a
    directory was away counts no more there: another file has its id as one that is gone, and its own has not; or
    another file has the next topic of that name.
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
