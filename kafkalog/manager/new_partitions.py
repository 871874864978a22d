"""Creating many partitions at once: one write of a topics file, and no sync for each of them.

    note      the topics file has every topic first, on disk: after a crash the next start creates what is missing
    make      directories and first segments, some at a time, so that other calls of the store have their turn
    sync      the data directory's entries, once
"""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import KafkalogError, StorageError
from kafkalog.manager.data_directory import DataDirectory
from kafkalog.manager.loading import Configs
from kafkalog.manager.partition import begin_partition
from kafkalog.manager.placement import directories_in_order
from kafkalog.manager.topics import WantedTopic
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.names import PARTITION_METADATA, partition_dir_name
from kafkalog.storage.partition_metadata import format_partition_metadata
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import FileSystem, atomic_write

if TYPE_CHECKING:
    from kafkalog.manager.log_manager import LogManager
    from kafkalog.manager.store_topics import StoreTopics

_LOG: Final = logging.getLogger(__name__)
AT_ONCE: Final = 128
"""Number of partitions that are created before other calls of the store have their turn."""


class NewPartitions(NamedTuple):
    """The partitions `numbers` of a topic to create; `settings` apply if the topic is new.

    `total` is the topic's number of partitions if others of it lie elsewhere; the topics file then lists the topic even
    if none is created here.
    """

    topic: str
    topic_id: str
    numbers: Sequence[int]
    settings: Mapping[str, str] | None = None
    total: int = 0

    @property
    def end(self) -> int:
        """The number of partitions that the topic then has."""
        return max(self.total, self.numbers[-1] + 1 if self.numbers else 0)


Place = tuple[TopicPartition, str, DataDirectory | None]
"""A partition, its topic's id, and its data directory; None if that is chosen at creation."""


def places_of(
    topics: Iterable[NewPartitions], directories: Sequence[DataDirectory], excluded: Container[TopicPartition]
) -> list[Place]:
    """Assign each partition to the directory with the fewest logs at that point; `excluded` are placed later."""
    room = [(len(one.logs) + len(one.future_logs), at) for at, one in enumerate(directories)]
    heapify(room)
    places: list[Place] = []
    for topic in topics:
        for number in topic.numbers:
            key = TopicPartition(topic.topic, number)
            if key in excluded:
                places.append((key, topic.topic_id, None))
                continue
            logs, at = heappop(room)
            heappush(room, (logs + 1, at))
            places.append((key, topic.topic_id, directories[at]))
    return places


class TopicIds:
    """Writes the topic id into partition directories of one data directory.

    The id never changes: a topic's file is written and synced once, and linked into its other partitions. On a file
    system without links each partition gets its own file.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._made: dict[str, str] = {}

    def put(self, directory: str, topic_id: str) -> None:
        """Write the file with the id into a new partition directory; the entry is not synced. OSError."""
        path = os.path.join(directory, PARTITION_METADATA)
        existing = self._made.get(topic_id)
        if existing is not None:
            try:
                self._fs.link(existing, path)
                return
            except OSError as error:  # no links here, too many links, or the first one's topic was deleted meanwhile
                _LOG.debug("%s is not linked: %s", path, error)
        atomic_write(self._fs, path, format_partition_metadata(topic_id), sync_entry=False)
        self._made[topic_id] = path


class PartitionMaker:
    """Creates the partitions of one request, once.

    Threads: one; the manager's lock is taken for a part at a time.
    """

    def __init__(self, manager: LogManager, topics: StoreTopics, wanted: Sequence[NewPartitions], epoch: int) -> None:
        self.failures: dict[str, KafkalogError] = {}
        """Errors of the topics that did not get all their partitions, by name."""
        self._manager = manager
        self._topics = topics
        self._wanted = {one.topic: one for one in wanted}
        self._epoch = epoch
        self._ids: dict[str, TopicIds] = {}
        self._configs = Configs(manager.config.log_config, topics.settings_of)

    def record_topics(self) -> list[Place]:
        """Write the topics files and return the places of the partitions; the caller holds the manager's lock.

        StorageError if no data directory takes any.
        """
        manager = self._manager
        candidates = directories_in_order(manager.directories, manager.config.cordoned_log_dirs)
        places = places_of(self._wanted.values(), candidates, manager.logs.keys() | manager.preferred.keys())
        for directory in candidates:
            names = dict.fromkeys(key.topic for key, _, home in places if home is directory)
            if directory is candidates[0]:
                names |= dict.fromkeys(name for name, one in self._wanted.items() if not one.numbers)
            try:
                # a start without the other directories must know of all partitions
                names |= dict.fromkeys(self._topics.listed_in(directory, self._wanted))
                rows = [self._wanted[name] for name in names]
                directory.forget()
                self._topics.ensure_all(
                    directory,
                    [WantedTopic(one.topic, one.end, one.settings, one.topic_id) for one in rows],
                )
                self._ids[directory.path] = TopicIds(directory.fs)
            except OSError as error:
                _LOG.warning("cannot create partitions in %s: %s", directory.path, error)
                manager.handle_error(directory, error)
        return places

    def make(self, places: Iterable[Place]) -> list[UnifiedLog]:
        """Create and register the logs in these places and return them; the caller holds the manager's lock."""
        created: dict[str, list[UnifiedLog]] = {path: [] for path in self._ids}
        deferred: list[Place] = []
        try:
            for place in places:
                key, _, directory = place
                if key.topic in self.failures:
                    continue
                if directory is None or not directory.is_online or directory.path not in self._ids:
                    deferred.append(place)
                    continue
                try:
                    created[directory.path].append(self._create(place, directory))
                except OSError as error:
                    _LOG.warning("cannot create %s in %s: %s", key, directory.path, error)
                    self._manager.handle_error(directory, error)
                    deferred.append(place)
        finally:
            for directory in self._manager.directories:
                directory.register(created.get(directory.path, ()))
        logs = [log for each in created.values() for log in each]
        return logs + [log for place in deferred for log in self._create_anywhere(place)]

    def _create(self, place: Place, directory: DataDirectory) -> UnifiedLog:
        manager, (key, topic_id, _) = self._manager, place
        return begin_partition(
            directory.online_log_dir,
            os.path.join(directory.path, partition_dir_name(key)),
            self._configs.of(key.topic),
            self._epoch,
            lambda created: self._ids[directory.path].put(created, topic_id),
            fs=directory.fs,
            clock=manager.clock,
            scheduler=manager.scheduler,
            producer_expiration_ms=manager.config.producer_id_expiration_ms,
            on_disk_failure=partial(manager.note_failure, directory),
        )

    def _create_anywhere(self, place: Place) -> list[UnifiedLog]:
        """Create one log in the first directory that takes it; on an error, record it and return an empty list."""
        key, topic_id, _ = place
        if key.topic in self.failures:
            return []
        try:
            log = self._manager.get_or_create(key, topic_id=topic_id, settings=self._wanted[key.topic].settings)
            log.begin_epoch(self._epoch)
        except KafkalogError as error:
            self.failures[key.topic] = error
            return []
        return [log]

    def sync(self) -> None:
        """Sync the new directories' names; if that fails for a directory, record it for all topics."""
        for directory in self._manager.directories:
            if directory.path not in self._ids or not directory.is_online:
                continue
            try:
                directory.fs.fsync_dir(directory.path)
            except OSError as error:
                failure = StorageError.from_os(error, "sync the data directory", path=directory.path)
                self._manager.handle_error(directory, failure)
                self.failures |= dict.fromkeys(self._wanted.keys() - self.failures.keys(), failure)

