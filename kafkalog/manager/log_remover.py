"""The part of a log manager that truncates logs, moves them and deletes them (MGR-9 to 12, MGR-25)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Final

from kafkalog.config.broker import BrokerConfig
from kafkalog.errors import CorruptCheckpoint, IllegalState, LogClosed, StorageError, UnknownTopicOrPartition
from kafkalog.manager.checkpoints import lower_cleaner_offsets, lower_offsets
from kafkalog.manager.cleaning import cleaner_of
from kafkalog.manager.data_directory import DataDirectory
from kafkalog.manager.deletion import DeletionQueue, rename_for_delete
from kafkalog.manager.directory_set import DirectorySet
from kafkalog.manager.loading import DIRECTORY_ERRORS
from kafkalog.manager.moving import swap
from kafkalog.manager.store_topics import StoreTopics
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.names import delete_dir_name
from kafkalog.types import TopicPartition
from kafkalog.util.clock import AgeClock, Clock
from kafkalog.util.scheduler import Schedules

_LOG: Final = logging.getLogger(__name__)
_AT_ONCE: Final = 128
"""Number of partitions that are deleted before other calls have their turn."""
Cutting = Callable[[Mapping[TopicPartition, int]], AbstractContextManager[object]]
"""`LogRemover.cutting` of a store."""


def cut_alone(ends: Mapping[TopicPartition, int]) -> AbstractContextManager[object]:
    """Return a block in which a log outside any store may be truncated: no checkpoint has an entry for it."""
    return nullcontext()


class LogRemover(DirectorySet):
    """Truncation, moves and deletes of logs, one at a time. Threads: all methods, from any thread.

    A clean of the log is aborted first, without a lock held, and the cleaner may resume only when the change is done.
    IllegalState for a hook that changes the log that its own thread cleans.
    """

    def __init__(
        self,
        directories: tuple[DataDirectory, ...],
        config: BrokerConfig,
        topics: StoreTopics,
        *,
        clock: Clock,
        scheduler: Schedules | None,
    ) -> None:
        super().__init__(directories, scheduler)
        self.config = config
        self.clock = clock
        self.preferred: dict[TopicPartition, str] = {}  # guarded by self._lock
        self.topics = topics  # guarded by self._lock
        """The topics' ids, partition counts and settings."""
        self._removals = DeletionQueue()
        self.ages = AgeClock(clock)
        self.cleaner = cleaner_of(self, config, clock, self.ages)

    def cleaning_paused(
        self, topic_partition: TopicPartition, *, is_future: bool = False
    ) -> AbstractContextManager[None]:
        """Keep the cleaner off a partition for the block; it never touches a future log."""
        return nullcontext() if is_future else self.cleaner.manager.cleaning_paused(topic_partition)

    def retention_of(self, logs: Iterable[UnifiedLog]) -> AbstractContextManager[Sequence[UnifiedLog]]:
        """Yield the logs that are not compacted; the cleaner and other retention skip them in the block (CLN-38)."""
        return self.cleaner.manager.retention_of(logs)

    def _check_open(self) -> None:
        if self.closed:
            raise LogClosed("the log manager is closed")

    def truncate_to(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Truncate a log so that it ends at `offset`, and lower its checkpoints (MGR-25); return True if it was cut.

        UnknownTopicOrPartition, StorageError.
        """
        with self.cutting({topic_partition: offset}):
            log = self.get(topic_partition)
            if log is None:
                raise UnknownTopicOrPartition(f"there is no partition {topic_partition} here")
            return log.truncate_to(offset)

    @contextmanager
    def cutting(self, ends: Mapping[TopicPartition, int]) -> Iterator[None]:
        """Allow truncation of current logs to these offsets in the block; every truncation in a store uses one.

        The cleaner skips the logs meanwhile. No checkpoint of their directories exceeds the log's end: the cleaner's is
        lowered before the truncation, all of them after it (MGR-25). StorageError, CorruptCheckpoint, LogClosed.
        """
        with ExitStack() as stack:
            for key in ends:
                stack.enter_context(self.cleaning_paused(key))
            stack.enter_context(self._lock)
            self._check_open()
            found: dict[DataDirectory, list[UnifiedLog]] = {}
            for log in filter(None, map(self.get, ends)):
                found.setdefault(self.directory_of(log), []).append(log)
            for directory, logs in found.items():
                limits = {log.topic_partition: max(ends[log.topic_partition], 0) for log in logs}
                lower_cleaner_offsets(directory.path, limits, fs=directory.fs)
            try:
                yield
            finally:
                for directory, logs in found.items():
                    lower_offsets(directory.path, logs, fs=directory.fs)

    def replace_with_future(self, topic_partition: TopicPartition) -> UnifiedLog:
        """Replace the current log of a partition by its future log, which is returned, and delete the old one (MGR-9).

        IllegalState if there is no future log, or if it does not end where the current one does; StorageError,
        CorruptCheckpoint: nothing changed.
        """
        with self.cleaning_paused(topic_partition), self._lock:
            self._check_open()
            current, future = self.get(topic_partition), self.get(topic_partition, is_future=True)
            if current is None or future is None:
                missing = "future log" if current is not None else "current log"
                raise IllegalState(f"{topic_partition} cannot be replaced: it has no {missing}")
            source, target = self.directory_of(current), self.directory_of(future)
            try:
                failures = swap(source, target, current, future)
            except (StorageError, CorruptCheckpoint) as error:
                self.handle_error(source if source.contains(error.path) else target, error)
                raise
            self._publish()
            self.cleaner.manager.moved(topic_partition, source.path, target.path)
            self.preferred.pop(topic_partition, None)
            self._finish_delete(source, current)
            for directory, failure in failures:
                _LOG.warning("%s: %s", directory.path, failure)
                self.handle_error(directory, failure)
            return future

    def delete(self, topic_partition: TopicPartition, *, is_future: bool = False) -> UnifiedLog | None:
        """Unregister a log, rename its directory and return it; its files are removed later (MGR-10).

        A partition's future log is deleted first. None if there is no log. StorageError if the log may be in a
        directory that is offline (MGR-12), or if the rename fails: the log is then unchanged; if the rename could not
        be synced, the log is deleted until a power loss.
        """
        with self.cleaning_paused(topic_partition, is_future=is_future), self._lock:
            self._check_open()
            if not is_future and topic_partition in self.future_logs:
                self.delete(topic_partition, is_future=True)
            log = self.get(topic_partition, is_future=is_future)
            if log is None:
                for directory in self.offline:
                    raise directory.unavailable()
                return None
            directory = self.directory_of(log)
            try:
                unsynced = rename_for_delete(directory, log)
            except StorageError as error:
                self.handle_error(directory, error)
                raise
            directory.unregister((topic_partition,), is_future=is_future)
            self._publish()
            self._finish_delete(directory, log)
            if unsynced is not None:
                self.handle_error(directory, unsynced)
                raise unsynced
            return log

    def _delete_all(
        self, keys: Sequence[TopicPartition], between_batches: Callable[[], object]
    ) -> tuple[list[UnifiedLog], dict[str, StorageError]]:
        """Delete partitions and return (the deleted logs, errors by topic); each directory is synced once.

        The delete of their topics was recorded before: only then may the rename of a directory be synced later.
        """
        deleted: list[UnifiedLog] = []
        failures: dict[str, StorageError] = {}
        for first in range(0, len(keys), _AT_ONCE):
            between_batches()
            part = [key for key in keys[first : first + _AT_ONCE] if key.topic not in failures]
            with ExitStack() as stack:
                for key in part:
                    stack.enter_context(self.cleaning_paused(key))
                with self._lock:
                    self._check_open()
                    deleted += self._delete_some(part, failures)
        with self._lock:
            for directory in tuple(self.online):
                logs = [log for log in deleted if os.path.dirname(log.path) == directory.path]
                self._end_delete(directory, logs, failures)
        return deleted, failures

    def _delete_some(self, keys: Sequence[TopicPartition], failures: dict[str, StorageError]) -> list[UnifiedLog]:
        """Rename and unregister partitions and return their logs; `failures` gets the errors of the others."""
        removed: dict[str, dict[TopicPartition, UnifiedLog]] = {one.path: {} for one in self.directories}
        for key in keys:
            try:
                if key in self.future_logs:
                    self.delete(key, is_future=True)
                log = self.get(key)
                if log is None and self._delete_unopened(key):
                    continue
                if log is None:
                    for offline in self.offline:
                        raise offline.unavailable()
                    continue
                directory = self.directory_of(log)
                try:
                    rename_for_delete(directory, log, sync=False)
                except StorageError as error:
                    self.handle_error(directory, error)
                    raise
                removed[directory.path][key] = log
            except StorageError as error:
                failures.setdefault(key.topic, error)
        due_ms = self._removal_due_ms()
        for directory in self.directories:
            directory.unregister(removed[directory.path].keys())
            for log in removed[directory.path].values():
                self._removals.add(directory, log.path, due_ms, log)
        self._publish()
        return [log for logs in removed.values() for log in logs.values()]

    def _delete_unopened(self, key: TopicPartition) -> bool:
        """Rename a partition that could not be opened; return True if it was found. StorageError."""
        for directory in self.online:
            if key not in directory.problems:
                continue
            target = directory.file(delete_dir_name(key))
            try:
                directory.fs.rename(directory.file(str(key)), target)
                directory.fs.fsync_dir(directory.path)
            except OSError as error:
                failure = StorageError.from_os(error, f"rename to {target}", path=directory.file(str(key)))
                self.handle_error(directory, failure)
                raise failure from error
            directory.problems = {other: problem for other, problem in directory.problems.items() if other != key}
            self._removals.add(directory, target, self._removal_due_ms())
            self._forget(directory, (key,))
            return True
        return False

    def _end_delete(
        self, directory: DataDirectory, logs: Sequence[UnifiedLog], failures: dict[str, StorageError]
    ) -> None:
        """Sync the renames of a directory's deleted logs and remove their checkpoint entries."""
        try:
            if logs:
                directory.fs.fsync_dir(directory.path)
        except OSError as error:
            unsynced = StorageError.from_os(error, "sync the data directory", path=directory.path)
            self.handle_error(directory, unsynced)
            failures |= dict.fromkeys({log.topic_partition.topic for log in logs} - failures.keys(), unsynced)
            return
        self._forget(directory, [log.topic_partition for log in logs])

    def _forget(self, directory: DataDirectory, keys: Iterable[TopicPartition]) -> None:
        """Remove the checkpoint entries of deleted partitions; after an error the next delete or creation does it."""
        try:
            directory.forget(keys)
        except DIRECTORY_ERRORS as error:
            self._note_kept(directory, "checkpoints there still list deleted partitions", error)

    def _note_kept(self, directory: DataDirectory, what: str, error: Exception) -> None:
        """Handle an error in the clean-up after a delete; log it unless the directory goes offline, which is logged."""
        self.handle_error(directory, error)
        if directory.is_online:
            _LOG.warning("%s: %s: %s", directory.path, what, error)

    def _finish_delete(self, directory: DataDirectory, log: UnifiedLog) -> None:
        """Finish a delete after the rename: queue the files for removal and forget the partition."""
        key = log.topic_partition
        self._removals.add(directory, log.path, self._removal_due_ms(), log)
        if key not in directory.logs and key not in directory.future_logs:
            self._forget(directory, (key,))
        try:
            self.topics.forget_if_gone(directory, key.topic, self.logs)
        except DIRECTORY_ERRORS as error:
            self._note_kept(directory, f"the topics file there still lists the deleted topic {key.topic}", error)

    def _removal_due_ms(self) -> int:
        """Return the monotonic time at which a log that is deleted now may be removed from disk."""
        return self.clock.monotonic_ms() + self.config.log_segment_delete_delay_ms

    def delete_logs(self) -> int:
        """Remove the deleted partitions that are due from disk and return their number.

        The first error, a StorageError, is raised after all were tried; failed ones are retried later.
        """
        retry_ms = max(1000, self.config.log_segment_delete_delay_ms)
        return self._removals.run(self.clock.monotonic_ms(), retry_ms, self.handle_error)

    def delete_delay_ms(self) -> int:
        """Return the ms until the next deleted partition is due; `file.delete.delay.ms` if none is pending."""
        due_ms = self._removals.next_due_ms
        if due_ms is None:
            return self.config.log_segment_delete_delay_ms
        return max(0, due_ms - self.clock.monotonic_ms())
