"""The topics of a store as its directories have them: read at a start, or while others of the process change them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkalog.errors import IllegalState
from kafkalog.server.node.topic import INTERNAL, Topic, id_text, uuid_of
from kafkalog.storage.partition_metadata import new_topic_id, read_partition_metadata
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.manager.known_topics import KnownTopics
    from kafkalog.manager.log_manager import LogManager
    from kafkalog.manager.topics import TopicEntry
    from kafkalog.server.workers.spread_store import SpreadStore

_LOG: Final = logging.getLogger(__name__)


class StoredTopics:
    """Topics read from a store; `known` are those of a broker's metadata. Threads: any."""

    def __init__(self, store: LogManager | SpreadStore, known: KnownTopics | None) -> None:
        self._store = store
        self._known = known

    def load(self) -> list[Topic]:
        """Return the topics, after the clean-up of changes that a crash interrupted. StorageError."""
        store, found = self._store, []
        for entry in store.topics.entries():
            if entry.is_deleted:
                _LOG.info("resuming the deletion of topic %s", entry.name)
                store.delete_topic(entry.name)
        counts = self._counts()
        entries = {entry.name: entry for entry in store.topics.entries()}
        for name in sorted(entries.keys() | counts.keys()):
            topic = self._load_topic(name, entries.get(name), counts.get(name, 0))
            self._create_missing(topic)
            found.append(topic)
        return found

    def _counts(self) -> dict[str, int]:
        """Return the number of partitions that have a directory, or should have, by topic."""
        counts: dict[str, int] = {}
        for key in (*self._store.logs, *self._store.problems):
            counts[key.topic] = max(counts.get(key.topic, 0), key.partition + 1)
        return counts

    def present(self) -> tuple[list[Topic], Callable[[str], bool]]:
        """Return the topics that have all their partitions, or whose others may be in an offline directory.

        The function returns True for the name of another one that may exist.
        """
        entries = {entry.name: entry for entry in self._store.topics.entries()}
        counts = self._counts()
        gone = {name for name, entry in entries.items() if entry.is_deleted}
        found = (self._load_topic(name, entries.get(name), counts[name]) for name in sorted(counts.keys() - gone))
        is_offline = any(True for _ in self._store.offline)
        whole = [topic for topic in found if is_offline or not self._missing(topic)]
        return whole, lambda name: name not in gone and (is_offline or name in entries)

    def check_whole(self, name: str) -> None:
        """Raise IllegalState or StorageError if some partitions of a topic are not here, or may be offline."""
        offline = next(self._store.offline, None)
        here = {key.partition for key in (*self._store.logs, *self._store.problems) if key.topic == name}
        entry = self._store.topics.get(name)
        count = max((*here, -1)) + 1 if entry is None or entry.is_deleted else max(entry.partitions, *here, 0)
        missing = sorted(set(range(count)) - here)
        if offline is not None and (missing or not here):
            raise offline.unavailable()
        if missing and here:
            raise IllegalState(
                f"{len(missing)} of {count} partitions of topic {name} are not here, such as {missing[0]}",
                hint="these directories have a part of a cluster: use a server or a broker of the whole cluster",
            )

    def _missing(self, topic: Topic) -> list[TopicPartition]:
        keys = (TopicPartition(topic.name, number) for number in range(topic.partitions))
        return [key for key in keys if key not in self._store.logs and key not in self._store.problems]

    def _load_topic(self, name: str, entry: TopicEntry | None, count: int) -> Topic:
        if entry is None:
            cluster = None if self._known is None or self._known.cluster is None else self._known.cluster.image
            if cluster is not None and name in cluster.topics:
                count = max(count, *(number + 1 for number in cluster.topics[name].partitions))
            topic_id = read_partition_metadata(self._store.fs, self._store.path_of(name))
            if topic_id is None and not any(key.topic == name for key in self._store.logs):
                topic_id = new_topic_id()  # no partition can be opened: a temporary id
            elif topic_id is None:  # from a broker without ids: give it one
                self._store.alter_topic(name, {})
                entry = self._store.topics.get(name)
        if entry is not None:
            topic_id, count = entry.topic_id, max(count, entry.partitions)
        assert topic_id is not None
        return Topic(name, uuid_of(topic_id), count, name in INTERNAL)

    def _create_missing(self, topic: Topic) -> None:
        """Create missing partitions, unless a directory is offline, which may contain them."""
        missing = self._missing(topic)
        if not missing or any(True for _ in self._store.offline):
            return
        text = "topic %s lacks %d of %d partitions; creating them empty"
        _LOG.warning(text, topic.name, len(missing), topic.partitions)
        for key in missing:
            self._store.get_or_create(key, topic_id=id_text(topic.id))
