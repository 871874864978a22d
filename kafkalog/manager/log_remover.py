"""The half of a log manager that takes logs away: cut, moved to another directory, deleted (MGR-9 to 12, MGR-25)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Final

from kafkalog.broker_config import BrokerConfig
from kafkalog.errors import IllegalState, LogClosed, StorageError, UnknownTopicOrPartition
from kafkalog.manager.checkpoints import forget, lower_cleaner_offsets, lower_offsets
from kafkalog.manager.cleaning import cleaner_of
from kafkalog.manager.data_directory import DataDirectory
from kafkalog.manager.deletion import DeletionQueue, rename_for_delete
from kafkalog.manager.directory_set import DirectorySet
from kafkalog.manager.loading import DAMAGE
from kafkalog.manager.moving import swap
from kafkalog.manager.store_topics import StoreTopics
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.names import delete_dir_name
from kafkalog.types import TopicPartition
from kafkalog.util.clock import AgeClock, Clock
from kafkalog.util.scheduler import Schedules

_LOG: Final = logging.getLogger(__name__)
_AT_ONCE: Final = 128
"""Partitions that are deleted before other calls have their turn."""
Cutting = Callable[[Mapping[TopicPartition, int]], AbstractContextManager[object]]
"""`LogRemover.cutting` of a store."""


def cut_alone(ends: Mapping[TopicPartition, int]) -> AbstractContextManager[object]:
    """A block in which a log that is in no store may be cut: no checkpoint tells of it."""
    return nullcontext()


class LogRemover(DirectorySet):
    """Cutting, moving and deleting logs, one after the other. Threads: all methods, from any thread.

    `cleaner` is to let go of a log first: no lock is held while it does, and it takes it up only when all is done.
    IllegalState for a hook that wants what its own thread cleans.
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
        self._topics = topics  # guarded by self._lock
        self._doomed = DeletionQueue()
        self.ages = AgeClock(clock)
        self.cleaner = cleaner_of(self, config, clock, self.ages)

    def left_alone(self, topic_partition: TopicPartition, *, is_future: bool = False) -> AbstractContextManager[None]:
        """A block in which the cleaner does not touch a partition; it never touches a future log."""
        return nullcontext() if is_future else self.cleaner.manager.left_alone(topic_partition)

    def retention_of(self, logs: Iterable[UnifiedLog]) -> AbstractContextManager[Sequence[UnifiedLog]]:
        """Those of the logs that are not compacted, left alone by the cleaner and its kin in the block (CLN-38)."""
        return self.cleaner.manager.retention_of(logs)

    def _check_open(self) -> None:
        if self.closed:
            raise LogClosed("the log manager is closed")

    def truncate_to(self, topic_partition: TopicPartition, offset: int) -> bool:
        """True when a log was cut: it ends at `offset`, and no checkpoint of its directory says more (MGR-25).

        UnknownTopicOrPartition, StorageError.
        """
        with self.cutting({topic_partition: offset}):
            log = self.get(topic_partition)
            if log is None:
                raise UnknownTopicOrPartition(f"there is no partition {topic_partition} here")
            return log.truncate_to(offset)

    @contextmanager
    def cutting(self, ends: Mapping[TopicPartition, int]) -> Iterator[None]:
        """A block in which current logs may be cut back to these offsets; every cut of a store's log is made in one.

        The cleaner leaves the logs alone. No checkpoint of their directories says more of a log than it has: that of
        the cleaner already before the cut, all of them after it (MGR-25). StorageError, CorruptCheckpoint, LogClosed.
        """
        with ExitStack() as stack:
            for key in ends:
                stack.enter_context(self.left_alone(key))
            stack.enter_context(self._lock)
            self._check_open()
            found: dict[DataDirectory, list[UnifiedLog]] = {}
            for log in filter(None, map(self.get, ends)):
                found.setdefault(self.directory_of(log), []).append(log)
            for directory, logs in found.items():
                most = {log.topic_partition: max(ends[log.topic_partition], 0) for log in logs}
                lower_cleaner_offsets(directory.path, most, fs=directory.fs)
            try:
                yield
            finally:
                for directory, logs in found.items():
                    lower_offsets(directory.path, logs, fs=directory.fs)

    def replace_with_future(self, topic_partition: TopicPartition) -> UnifiedLog:
        """The future log of a partition, which takes the place of the current one; that one is deleted (MGR-9).

        IllegalState where there is none, or it does not end where the current one does; StorageError: nothing changed.
        """
        with self.left_alone(topic_partition), self._lock:
            self._check_open()
            current, future = self.get(topic_partition), self.get(topic_partition, is_future=True)
            if current is None or future is None:
                what = "future log" if current is not None else "log"
                raise IllegalState(f"{topic_partition} has no {what} to take the place of the current one")
            source, target = self.directory_of(current), self.directory_of(future)
            try:
                failures = swap(source, target, current, future)
            except StorageError as error:
                self.disk_error(source if source.holds(error.path) else target, error)
                raise
            self._publish()
            self.cleaner.manager.moved(topic_partition, source.path, target.path)
            self.preferred.pop(topic_partition, None)
            self._deleted(source, current)
            for directory, failure in failures:
                _LOG.warning("%s: %s", directory.path, failure)
                self.disk_error(directory, failure)
            return future

    def delete(self, topic_partition: TopicPartition, *, is_future: bool = False) -> UnifiedLog | None:
        """The log that is deleted: in no map any more, its directory renamed, its files removed later (MGR-10).

        A partition's future log goes before it. None where there is none, StorageError where it may be in a directory
        that is offline (MGR-12), or the rename fails: then it is as it was, or, where the rename could not be synced,
        deleted until a power loss.
        """
        with self.left_alone(topic_partition, is_future=is_future), self._lock:
            self._check_open()
            if not is_future and topic_partition in self.future_logs:
                self.delete(topic_partition, is_future=True)
            log = self.get(topic_partition, is_future=is_future)
            if log is None:
                for directory in self.offline:
                    raise directory.offline()
                return None
            directory = self.directory_of(log)
            try:
                unsynced = rename_for_delete(directory, log)
            except StorageError as error:
                self.disk_error(directory, error)
                raise
            directory.drop(topic_partition, is_future=is_future)
            self._publish()
            self._deleted(directory, log)
            if unsynced is not None:
                self.disk_error(directory, unsynced)
                raise unsynced
            return log

    def _delete_all(
        self, keys: Sequence[TopicPartition], go_on: Callable[[], object]
    ) -> tuple[list[UnifiedLog], dict[str, StorageError]]:
        """(the logs that are deleted, why those of other topics are not, by topic), each directory synced once.

        The delete of their topics was noted: only then is a name that is not on disk as good as one that is.
        """
        deleted: list[UnifiedLog] = []
        failures: dict[str, StorageError] = {}
        for first in range(0, len(keys), _AT_ONCE):
            go_on()
            part = [key for key in keys[first : first + _AT_ONCE] if key.topic not in failures]
            with ExitStack() as stack:
                for key in part:
                    stack.enter_context(self.left_alone(key))
                with self._lock:
                    self._check_open()
                    deleted += self._delete_some(part, failures)
        with self._lock:
            for directory in tuple(self.online):
                here = [log for log in deleted if os.path.dirname(log.path) == directory.path]
                self._end_delete(directory, here, failures)
        return deleted, failures

    def _delete_some(self, keys: Sequence[TopicPartition], failures: dict[str, StorageError]) -> list[UnifiedLog]:
        """The logs that have their name as deleted ones, and are in no map any more; `failures` gets the others."""
        gone: dict[str, dict[TopicPartition, UnifiedLog]] = {one.path: {} for one in self.directories}
        for key in keys:
            try:
                if key in self.future_logs:
                    self.delete(key, is_future=True)
                log = self.get(key)
                if log is None and self._deleted_unopened(key):
                    continue
                if log is None:
                    for offline in self.offline:
                        raise offline.offline()
                    continue
                directory = self.directory_of(log)
                try:
                    rename_for_delete(directory, log, sync=False)
                except StorageError as error:
                    self.disk_error(directory, error)
                    raise
                gone[directory.path][key] = log
            except StorageError as error:
                failures.setdefault(key.topic, error)
        due_ms = self.clock.monotonic_ms() + self.config.log_segment_delete_delay_ms
        for directory in self.directories:
            directory.drop_all(gone[directory.path].keys())
            for log in gone[directory.path].values():
                self._doomed.add(directory, log.path, due_ms, log)
        self._publish()
        return [log for logs in gone.values() for log in logs.values()]

    def _deleted_unopened(self, key: TopicPartition) -> bool:
        """True for a partition that could not be opened, and has its name as a deleted one now. StorageError."""
        for directory in self.online:
            if key not in directory.problems:
                continue
            target = directory.file(delete_dir_name(key))
            try:
                directory.fs.rename(directory.file(str(key)), target)
                directory.fs.fsync_dir(directory.path)
                forget(directory.path, (key,), fs=directory.fs)
            except OSError as error:
                failure = StorageError.from_os(error, f"rename to {target}", path=directory.file(str(key)))
                self.disk_error(directory, failure)
                raise failure from error
            directory.problems = {other: why for other, why in directory.problems.items() if other != key}
            self._doomed.add(directory, target, self.clock.monotonic_ms() + self.config.log_segment_delete_delay_ms)
            return True
        return False

    def _end_delete(
        self, directory: DataDirectory, logs: Sequence[UnifiedLog], failures: dict[str, StorageError]
    ) -> None:
        """Put on disk that the logs of a directory are deleted, and take their lines out of its checkpoints."""
        try:
            if logs:
                directory.fs.fsync_dir(directory.path)
        except OSError as error:
            unsynced = StorageError.from_os(error, "sync the data directory", path=directory.path)
            self.disk_error(directory, unsynced)
            failures |= dict.fromkeys({log.topic_partition.topic for log in logs} - failures.keys(), unsynced)
            return
        try:
            forget(directory.path, [log.topic_partition for log in logs], fs=directory.fs)
        except DAMAGE as error:
            self.disk_error(directory, error)

    def _deleted(self, directory: DataDirectory, log: UnifiedLog) -> None:
        """What is left to do once a log's directory has its name as one that is deleted."""
        delay_ms = self.config.log_segment_delete_delay_ms
        self._doomed.add(directory, log.path, self.clock.monotonic_ms() + delay_ms, log)
        key = log.topic_partition
        try:
            if key not in directory.logs and key not in directory.future_logs:
                forget(directory.path, (key,), fs=directory.fs)
            self._topics.forget_if_gone(directory, key.topic, self.logs)
        except DAMAGE as error:
            self.disk_error(directory, error)

    def delete_logs(self) -> int:
        """How many deleted partitions were removed from disk: those whose time has come.

        The first error, a StorageError, is raised when all had their turn; what is left is tried again later.
        """
        retry_ms = max(1000, self.config.log_segment_delete_delay_ms)
        return self._doomed.run(self.clock.monotonic_ms(), retry_ms, self.disk_error)

    def delete_delay_ms(self) -> int:
        """Ms until the next deleted partition is due; `file.delete.delay.ms` where none waits."""
        due_ms = self._doomed.next_due_ms
        if due_ms is None:
            return self.config.log_segment_delete_delay_ms
        return max(0, due_ms - self.clock.monotonic_ms())
