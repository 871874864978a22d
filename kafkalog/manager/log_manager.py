"""The logs of a node's data directories: opened together, created, moved, deleted and closed.

This class holds the directories and the lock; `starting`, `loading`, `placement`, `creation`, `deletion` and `stopping`
do the work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from kafkalog.cleaner.stats import CleanerReport
from kafkalog.config.broker import BrokerConfig
from kafkalog.config.topic import LogConfig
from kafkalog.errors import (
    IllegalArgument,
    IllegalState,
    InconsistentTopicId,
    KafkalogError,
    StorageError,
)
from kafkalog.manager.clean_shutdown import agreed_epoch
from kafkalog.manager.cleaning import CleanerJobs
from kafkalog.manager.creation import Creation
from kafkalog.manager.data_directory import NO_LOGS, DataDirectory
from kafkalog.manager.inventory import IsStray, any_rule
from kafkalog.manager.job import Job
from kafkalog.manager.jobs import jobs_of
from kafkalog.manager.loading import DIRECTORY_ERRORS, Configs, LoadProgress, LoadRules
from kafkalog.manager.log_remover import LogRemover
from kafkalog.manager.new_partitions import AT_ONCE, NewPartitions, PartitionMaker
from kafkalog.manager.placement import check_cordoned, find_directory
from kafkalog.manager.starting import check_some_online, load_directories, release_all, take_directories, take_offline
from kafkalog.manager.stopping import close_all, discard_all, write_checkpoints
from kafkalog.manager.store_topics import StoreTopics
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.partition_metadata import check_topic_id, read_partition_metadata, write_partition_metadata
from kafkalog.types import TopicPartition
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.closing import Closing
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.scheduler import Schedules

__all__ = ["LoadProgress", "LogManager"]


class LogManager(LogRemover, Closing):
    """All logs of some data directories, until `close`; created by `open`.

    `logs` and `future_logs` are snapshots that do not change; `directories` includes those that are offline. Threads:
    all methods, from any thread. Creating, moving and deleting are done one at a time.
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
        super().__init__(directories, config, topics, clock=clock, scheduler=scheduler)
        self.fs = fs
        self._jobs = jobs_of(self, self.ages)
        self._cleaning = CleanerJobs(self.cleaner, self, config, clock)
        self.previous_broker_epoch = agreed_epoch(directory.broker_epoch for directory in directories)
        """Epoch of the broker that last stopped cleanly here, if all directories agree; else -1 (MGR-28)."""

    @classmethod
    def open(
        cls,
        dirs: Sequence[str | os.PathLike[str]],
        config: BrokerConfig | None = None,
        *,
        topic_settings: Mapping[str, Mapping[str, object]] | None = None,
        is_stray: IsStray | None = None,
        fs: FileSystem = OS,
        clock: Clock = SYSTEM_CLOCK,
        scheduler: Schedules | None = None,
        progress: Callable[[LoadProgress], object] | None = None,
        recovers_damage: bool = False,
        has_replicas: Callable[[TopicPartition], bool] = lambda _: False,
        refuses_loss: bool = False,
    ) -> LogManager:
        """Open all logs of these data directories and return their manager; missing directories are created.

        `topic_settings` are the settings, by topic, of topics that no topics file has. `is_stray` takes a partition and
        the id in its `partition.metadata` and returns True if it belongs to no topic; it is then renamed to `-stray`,
        and kept.

        Logs of a directory that was not closed cleanly are recovered; `progress` is called from the loading threads,
        one at a time. A directory whose disk fails is taken offline, and the others are used. So is a directory in
        which a log that was closed cleanly has damage that no crash causes; with `recovers_damage`, for copies, that
        log is recovered instead. `refuses_loss` is as for `UnifiedLog.open`, and so is its `keeps_begun_epochs`, for
        partitions of which `has_replicas` returns True: other nodes have copies.

        ConfigError (an empty path, or a cordoned one that is none of these), DirectoryLocked (another process, or
        another manager here), NotAPartition (a directory with a name that no partition has), IllegalState (a partition
        in two directories): nothing was changed. StorageError if no directory can be used.
        """
        settings = BrokerConfig() if config is None else config
        directories: tuple[DataDirectory, ...] = ()
        try:
            with deferred_interrupts():
                directories = take_directories(dirs, fs)
            check_cordoned(settings.cordoned_log_dirs, directories)
            topics = StoreTopics(topic_settings)
            manager = cls(directories, settings, topics, fs=fs, clock=clock, scheduler=scheduler)
            rules = LoadRules(
                Configs(settings.log_config, topics.settings_of).of,
                settings.num_recovery_threads_per_data_dir,
                fs,
                clock,
                scheduler,
                settings.producer_id_expiration_ms,
                progress,
                manager.note_failure,
                recovers_damage,
                has_replicas,
                refuses_loss,
            )
            manager._load(rules, is_stray)
        except BaseException:
            release_all(directories)
            raise
        return manager

    def _load(self, rules: LoadRules, is_stray: IsStray | None) -> None:
        for directory in tuple(self.online):
            try:
                self.topics.read(directory)
            except DIRECTORY_ERRORS as error:
                take_offline(directory, error)
        check_some_online(self.directories)
        self.topics.merge()
        inventories = load_directories(
            self.directories, rules, lambda directory: any_rule(is_stray, self.topics.strays_in(directory))
        )
        for directory in tuple(self.online):
            try:
                self.topics.forget_stale(directory)
                self._write_missing_topic_ids(directory)
            except DIRECTORY_ERRORS as error:
                take_offline(directory, error)
        check_some_online(self.directories)
        due_ms = self._removal_due_ms()
        for directory in self.directories:
            for place in inventories[directory.path].deleted if directory.path in inventories else ():
                self._removals.add(directory, place.path, due_ms)
        self._publish()

    def _write_missing_topic_ids(self, directory: DataDirectory) -> None:
        """Write the topic id into partitions that a crash left without one while they were created."""
        if directory.online_log_dir.marker_found:
            return
        for key, log in directory.logs.items():
            entry = self.topics.get(key.topic)
            if entry is not None and read_partition_metadata(directory.fs, log.path) is None:
                write_partition_metadata(directory.fs, log.path, entry.topic_id)

    # Contents
    @property
    def jobs(self) -> tuple[Job, ...]:
        """The background jobs; those of the cleaner only while there are compacted logs."""
        return (*self._jobs, *self._cleaning.jobs)

    def config_of(self, topic: str) -> LogConfig:
        """Return a topic's configuration: its own settings, and the store's for all others."""
        return self.config.log_config(self.topics.settings_of(topic))

    def alter_topic(self, topic: str, changes: Mapping[str, object]) -> None:
        """Change settings of a topic, on disk and for its current and future logs (MGR-24).

        `changes` maps names to values; None resets a setting to the store's default. If a log is no longer compacted,
        its clean has ended when this returns (CLN-36). UnknownTopicOrPartition, UnknownConfig, ConfigError,
        StorageError.
        """
        with deferred_interrupts():  # else the cleaner might not get the change
            with self._lock:
                self._check_open()
                self.topics.alter(tuple(self.online), topic, self.logs, changes)
                config = self.config_of(topic)
                altered = [log for log in self._all_logs() if log.topic_partition.topic == topic]
                was_compact = self._set_configs((log, config) for log in altered)
            self._apply_policies(was_compact)

    def _all_logs(self) -> tuple[UnifiedLog, ...]:
        return (*self.logs.values(), *self.future_logs.values())

    @staticmethod
    def _set_configs(configs: Iterable[tuple[UnifiedLog, LogConfig]]) -> list[UnifiedLog]:
        """Set the configurations of logs and return the logs that were compacted before."""
        was_compact = []
        for log, config in configs:
            if log.config.compact:
                was_compact.append(log)
            log.config = config
        return was_compact

    def _apply_policies(self, was_compact: Iterable[UnifiedLog]) -> None:
        """Apply changed policies to the cleaner: abort cleans of logs that are no longer compacted."""
        for log in was_compact:
            if not log.config.compact and self.current_logs.get(log.topic_partition) is log:
                self.cleaner.manager.states.abort(log.topic_partition)
        self._cleaning.apply(self.config)

    def alter_config(self, changes: Mapping[str, object]) -> None:
        """Change settings of the store, by broker names; topics that do not set them follow at once (LOG-76).

        None resets a setting to its default. The changes are not saved. UnknownConfig; ConfigError, also for a setting
        that needs a restart, and if nothing could ever be cleaned with the new settings.
        """
        with deferred_interrupts():
            with self._lock:
                self._check_open()
                config = self.config.changed(changes)
                check_cordoned(config.cordoned_log_dirs, self.directories)
                self.cleaner.reconfigure(config)
                self.config = config
                logs = self._all_logs()
                was_compact = self._set_configs((log, self.config_of(log.topic_partition.topic)) for log in logs)
            self._apply_policies(was_compact)

    @property
    def cleaner_report(self) -> CleanerReport:
        """The cleaner's state: its current and finished cleans, and the partitions it skips."""
        return self.cleaner.report(len(self._cleaning.jobs))

    def delete(self, topic_partition: TopicPartition, *, is_future: bool = False) -> UnifiedLog | None:
        """Delete a log and return it; see `LogRemover.delete`. Without compacted logs the cleaner's threads end."""
        log = super().delete(topic_partition, is_future=is_future)
        if log is not None and not is_future:
            self._cleaning.log_deleted(log)
        return log

    def delete_topic(self, topic: str) -> int:
        """Delete all partitions of a topic and return their number. Errors as `delete_topics` returns them."""
        count = sum(key.topic == topic for key in (*self.logs, *self.problems))
        for error in self.delete_topics((topic,)).values():
            raise error
        return count

    def delete_topics(
        self, topics: Collection[str], between_batches: Callable[[], object] = lambda: None
    ) -> dict[str, StorageError]:
        """Delete topics with all their partitions and return the errors of those that were not deleted, by name.

        The topics files record the delete first, on disk, so that a start after a crash knows of it
        (`StoreTopics.entries`) and calls this again. A StorageError is as for `delete`: some partitions of the topic
        may then be deleted, and others not; the remaining ones stay, at the next start too. `between_batches` may
        raise: the next start then continues. LogClosed.
        """
        names = frozenset(topics)
        keys = sorted(key for key in (*self.logs, *self.problems) if key.topic in names)
        with self._lock:
            self._check_open()
            try:
                self.topics.mark_deleted(tuple(self.online), names, self.logs)
            except StorageError as error:
                self.topics.unmark_deleted(tuple(self.online), names)
                return dict.fromkeys(names, error)
        removed, failures = self._delete_all(keys, between_batches)
        with self._lock:
            self.topics.unmark_deleted(tuple(self.online), failures.keys())
            self.topics.forget(tuple(self.online), names - failures.keys())
        for log in removed:
            if log.config.compact:
                self._cleaning.log_deleted(log)
        return failures

    def mark_deleted(self, topics: Collection[str], is_deleted: bool = True) -> None:
        """Record on disk that the delete of topics has begun elsewhere, too, or that it failed. StorageError."""
        with self._lock:
            self._check_open()
            if is_deleted:
                self.topics.mark_deleted(tuple(self.online), topics, self.logs)
            else:
                self.topics.unmark_deleted(tuple(self.online), topics)

    # Creation

    def forget_unfinished(self, topic: str) -> None:
        """Remove what a creation that did not finish left of a topic without partitions. StorageError, LogClosed."""
        with self._lock:
            self._check_open()
            self.topics.forget_unfinished(tuple(self.online), topic)

    def create_partitions(
        self,
        partitions: Sequence[NewPartitions],
        *,
        epoch: int = 0,
        between_batches: Callable[[], object] = lambda: None,
    ) -> dict[str, KafkalogError]:
        """Create partitions and return the error of each topic that did not get all of its own, by name.

        The topics files list them first, on disk: if the call does not finish, they show which partitions are missing.
        `epoch` is the leader epoch that they begin with. `between_batches` is called between parts and may raise.
        StorageError if no data directory takes a partition; InvalidTopic, ConfigError, LogClosed.
        """
        maker = PartitionMaker(self, self.topics, partitions, epoch)
        with self._lock:
            self._check_open()
            places = maker.record_topics()
        for first in range(0, len(places), AT_ONCE):
            between_batches()
            with self._lock:
                self._check_open()
                try:
                    logs = maker.make(places[first : first + AT_ONCE])
                finally:
                    self._publish()
                for log in logs:
                    self.cleaner.manager.reinstate(log)  # one of that name may have been set aside
            for log in logs:
                self._cleaning.log_added(log)
        with self._lock:
            maker.sync()
        return maker.failures

    def get_or_create(
        self,
        topic_partition: TopicPartition,
        *,
        is_new: bool = True,
        is_future: bool = False,
        topic_id: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> UnifiedLog:
        """Return the log of a partition; a missing one is created in the directory with the fewest logs (MGR-4).

        With `is_new` False the partition should exist: it is not created while a directory that may hold it is offline.
        `directory` is a path or a directory id; `settings` are those of a new topic. A future log is created in another
        directory than its partition's (MGR-8). InconsistentTopicId, InvalidTopic, ConfigError, IllegalArgument,
        IllegalState, StorageError (every directory refused; or one is offline and the partition is not new), LogClosed.
        """
        log = self.get(topic_partition, is_future=is_future)
        if log is None:
            with self._lock:
                self._check_open()
                log = self.get(topic_partition, is_future=is_future)
                if log is None:
                    creation = Creation(topic_partition, is_new, is_future, topic_id, directory, settings)
                    log = creation.make(self, self.topics)
                    self.cleaner.manager.reinstate(log)  # one of that name may have been set aside
                    self._publish()
            if is_future:
                self.cleaner.manager.states.abort(topic_partition)  # the source of the copy must not change
            else:
                self._cleaning.log_added(log)
        known = self._known_id(log) if topic_id is not None else None
        if topic_id is not None and known not in (None, check_topic_id(topic_id)):
            raise InconsistentTopicId(
                f"topic {topic_partition.topic} has id {known}, not {topic_id}",
                path=log.path,
                hint="the topic was deleted and created again: delete the old one first",
            )
        return log

    def _known_id(self, log: UnifiedLog) -> str | None:
        """Return the id of a log's topic: from the store's topics, else from the partition's own file (LOG-73)."""
        known = self.topics.get(log.topic_partition.topic)
        return read_partition_metadata(self.fs, log.path) if known is None else known.topic_id

    def prefer(self, topic_partition: TopicPartition, directory: str | os.PathLike[str]) -> None:
        """Create the next log of a partition, current or future, in this directory (MGR-8). IllegalArgument."""
        chosen = find_directory(self.directories, directory)
        if chosen is None:
            raise IllegalArgument(f"{os.fspath(directory)!r} is not a data directory of this manager")
        with self._lock:
            self.preferred[topic_partition] = chosen.path

    # Closing
    def schedule_jobs(self) -> None:
        """Start the jobs on the scheduler. IllegalState for a manager without one."""
        if self.scheduler is None:
            raise IllegalState("this manager was opened without a scheduler")
        for job in self._jobs:
            job.start(self.scheduler)
        self._cleaning.start(self.scheduler)

    @contextmanager
    def finished_files(self) -> Iterator[None]:
        """Keep all files as `close` leaves them for the block, without the marker, so that they can be copied.

        Appends wait, so the logs are as at one moment. StorageError.
        """
        logs = self._all_logs()
        for log in logs:
            log.flush()
        with ExitStack() as finished:
            for log in logs:
                finished.enter_context(log.finished_files())
            for directory in self.online:
                write_checkpoints(directory)
            yield

    def close(self, *, discards: bool = False) -> None:
        """Close all logs and release the locks; a second call does nothing. A Ctrl-C waits until it is done.

        Jobs are stopped first. Directories are closed in parallel; one with an error gets no clean-shutdown marker, the
        others do. The first error is raised at the end, with a note for each other one. With `discards`, nothing is
        written, because the caller is about to replace the directories' contents.
        """
        with deferred_interrupts():
            self._cleaning.stop()
            for job in self._jobs:
                job.stop()
            with self._lock:
                if self.closed:
                    return
                self._take_failed_offline()
                self.closed = True
                if discards:
                    errors = discard_all(self.directories)
                else:
                    errors = close_all(self.directories, self.config.num_recovery_threads_per_data_dir)
                self._removals.close()
                for directory in self.directories:
                    directory.logs = directory.future_logs = NO_LOGS
                self._publish()
        if errors:
            for other in errors[1:]:
                errors[0].add_note(f"and: {other}")
            raise errors[0]

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self.logs)} logs"
        return f"<LogManager {state} in {', '.join(directory.path for directory in self.directories)}>"
