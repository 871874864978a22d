"""The logs of a node's data directories: opened together, made, moved, deleted and closed.

This class holds the directories and the lock; what is done is done by `starting`, `loading`, `placement`, `creation`,
`deletion` and `stopping`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any

from kafkalog.broker_config import BrokerConfig
from kafkalog.config import LogConfig
from kafkalog.errors import IllegalArgument, InconsistentTopicId, LogClosed
from kafkalog.manager.creation import Creation
from kafkalog.manager.data_directory import DataDirectory, Logs
from kafkalog.manager.loading import LoadProgress, LoadRules
from kafkalog.manager.starting import check_some_online, load_directories, release_all, take_directories, take_offline
from kafkalog.manager.stopping import close_all
from kafkalog.manager.store_topics import StoreTopics
from kafkalog.storage.failure import is_disk_failure
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.types import TopicPartition
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.scheduler import Schedules

__all__ = ["LoadProgress", "LogManager"]


class LogManager:
    """All logs of some data directories, until `close`; made by `open`.

    `logs` and `future_logs` are snapshots that do not change; `directories` has the ones that are offline too.
    Threads: all methods, from any thread. Making, moving and deleting go one after the other.
    """

    def __init__(
        self,
        directories: tuple[DataDirectory, ...],
        config: BrokerConfig,
        topics: StoreTopics,
        *,
        fs: FileSystem,
        clock: Clock,
        scheduler: Schedules | None,
    ) -> None:
        self.directories = directories
        self.config = config
        self.fs = fs
        self.clock = clock
        self.scheduler = scheduler
        self.logs: Logs = MappingProxyType({})
        self.future_logs: Logs = MappingProxyType({})
        self.closed = False
        self._topics = topics
        self._lock = threading.RLock()

    @classmethod
    def open(
        cls,
        dirs: Sequence[str | os.PathLike[str]],
        config: BrokerConfig | None = None,
        *,
        topic_settings: Mapping[str, Mapping[str, Any]] | None = None,
        fs: FileSystem = OS,
        clock: Clock = SYSTEM_CLOCK,
        scheduler: Schedules | None = None,
        progress: Callable[[LoadProgress], object] | None = None,
    ) -> LogManager:
        """The manager of these data directories, with all their logs open; directories are made where missing.

        `topic_settings` are settings of topics that no topics file has, by topic. Logs are recovered where a directory
        was not closed well; `progress` is called from the loading threads, one at a time. A directory whose disk fails
        is offline, and the others are used.

        ConfigError (an empty path), DirectoryLocked (another process, or another manager here), NotAPartition (a
        directory whose name is none), IllegalState (a partition in two directories): nothing was touched. StorageError
        when no directory can be used.
        """
        settings = BrokerConfig() if config is None else config
        directories = take_directories(dirs, fs)
        manager = cls(
            directories, settings, StoreTopics(topic_settings), fs=fs, clock=clock, scheduler=scheduler
        )
        try:
            manager._load(progress)
        except BaseException:
            release_all(directories)
            raise
        return manager

    def _load(self, progress: Callable[[LoadProgress], object] | None) -> None:
        for directory in self.directories:
            if directory.is_online:
                try:
                    self._topics.read(directory)
                except (OSError, ValueError) as error:
                    take_offline(directory, error)
        check_some_online(self.directories)
        rules = LoadRules(
            self.config_of,
            self.config.num_recovery_threads_per_data_dir,
            self.fs,
            self.clock,
            self.scheduler,
            self.config.producer_id_expiration_ms,
            progress,
        )
        load_directories(self.directories, rules)
        self._publish()

    def _publish(self) -> None:
        """Make the snapshots of all logs anew."""
        self.logs = MappingProxyType({key: log for one in self.directories for key, log in one.logs.items()})
        self.future_logs = MappingProxyType(
            {key: log for one in self.directories for key, log in one.future_logs.items()}
        )

    # What there is

    def get(self, topic_partition: TopicPartition, *, is_future: bool = False) -> UnifiedLog | None:
        """The log of a partition, or its future one; None where there is none (MGR-1)."""
        return (self.future_logs if is_future else self.logs).get(topic_partition)

    def config_of(self, topic: str) -> LogConfig:
        """What counts for a topic: its own settings, and the store's where it has none."""
        return self.config.log_config(self._topics.settings_of(topic))

    def alter_topic(self, topic: str, changes: Mapping[str, Any]) -> None:
        """Change settings of a topic, on disk and for its current and future logs (MGR-24).

        `changes` maps names to values, None takes a setting back to the store's default. UnknownTopicOrPartition,
        UnknownConfig, ConfigError, StorageError.
        """
        with self._lock:
            self._check_open()
            self._topics.alter([one for one in self.directories if one.is_online], topic, self.logs, changes)
            config = self.config_of(topic)
            for log in (*self.logs.values(), *self.future_logs.values()):
                if log.topic_partition.topic == topic:
                    log.config = config

    # Making

    def get_or_create(
        self,
        topic_partition: TopicPartition,
        *,
        is_new: bool = True,
        is_future: bool = False,
        topic_id: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> UnifiedLog:
        """The log of a partition, made where there is none: in the directory with the fewest logs (MGR-4).

        `is_new` False: it should be there, so it is not made while a directory is offline that may hold it. `directory`
        is a path or a directory id; `settings` are those of a topic that is new. A future log is made in another
        directory than its partition's (MGR-8). InconsistentTopicId, InvalidTopic, ConfigError, IllegalArgument,
        IllegalState, StorageError (every directory refused; or one is offline and the partition is not new), LogClosed.
        """
        log = self.get(topic_partition, is_future=is_future)
        if log is None:
            with self._lock:
                self._check_open()
                log = self.get(topic_partition, is_future=is_future)
                if log is None:
                    wanted = Creation(topic_partition, is_new, is_future, topic_id, directory, settings)
                    log = wanted.make(self, self._topics)
                    self._publish()
        known = self._known_id(log) if topic_id is not None else None
        if known is not None and known != topic_id:
            raise InconsistentTopicId(
                f"topic {topic_partition.topic} has id {known}, not {topic_id}",
                path=log.path,
                hint="a topic of that name was deleted and made again: delete the old one first",
            )
        return log

    def _known_id(self, log: UnifiedLog) -> str | None:
        """The id of a log's topic: of the store's topics, else what the partition's own file says (LOG-73)."""
        known = self._topics.get(log.topic_partition.topic)
        return read_partition_metadata(self.fs, log.path) if known is None else known.topic_id

    # A disk that fails

    def fail_directory(self, path: str | os.PathLike[str], error: Exception) -> None:
        """Take a directory offline: its logs are closed and in no map any more, its lock is free (MGR-23).

        A second call for it does nothing. IllegalArgument for a path that is none of the manager's.
        """
        real = os.path.realpath(path)
        with self._lock:
            directory = next((one for one in self.directories if one.path == real), None)
            if directory is None:
                raise IllegalArgument(f"{real} is no data directory of this manager")
            if directory.is_online and not self.closed:
                take_offline(directory, error)
                self._publish()

    def disk_error(self, directory: DataDirectory, error: Exception) -> None:
        """Judge an error met in a directory: one of its disk takes it offline, a full one does not."""
        if is_disk_failure(error):
            self.fail_directory(directory.path, error)

    # Ending

    def close(self) -> None:
        """Close all logs and give the locks back; a second call does nothing. A Ctrl-C waits until it is done.

        Directories close side by side; one with an error has no clean-shutdown marker, the others do. The first error
        is raised then, with a note of each other one.
        """
        with deferred_interrupts(), self._lock:
            if self.closed:
                return
            self.closed = True
            errors = close_all(self.directories, self.config.num_recovery_threads_per_data_dir)
            for directory in self.directories:
                directory.put_all({}, {})
            self._publish()
        if errors:
            for other in errors[1:]:
                errors[0].add_note(f"and: {other}")
            raise errors[0]

    def _check_open(self) -> None:
        if self.closed:
            raise LogClosed("the log manager is closed")

    def __enter__(self) -> LogManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self.logs)} logs"
        return f"<LogManager {state} in {', '.join(directory.path for directory in self.directories)}>"
