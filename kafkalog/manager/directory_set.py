"""Several data directories as one: their logs, and the handling of disk failures (MGR-5, MGR-23)."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from kafkalog.errors import CorruptRecord, FormatError, IllegalArgument, IllegalState, KafkalogError
from kafkalog.manager.data_directory import NO_LOGS, DataDirectory, Logs
from kafkalog.manager.starting import take_offline
from kafkalog.storage.failure import is_disk_failure
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from kafkalog.util.scheduler import Schedules
from kafkalog.util.weak_registry import WeakRegistry

STORES: Final[WeakRegistry[DirectorySet]] = WeakRegistry()
"""The stores of this process."""


class DirectorySet:
    """The data directories of one node, including those offline. Threads: all methods, from any thread."""

    def __init__(self, directories: tuple[DataDirectory, ...], scheduler: Schedules | None) -> None:
        self.directories = directories
        self.scheduler = scheduler
        self._lock = threading.RLock()
        self._logs: Logs = NO_LOGS
        self._future_logs: Logs = NO_LOGS
        self._failing = False
        self.closed = False
        STORES.add(self)

    # Contents
    @property
    def logs(self) -> Logs:
        """The current logs: a snapshot that does not change."""
        if self._failing:
            self._take_failed_offline()
        return self._logs

    @property
    def future_logs(self) -> Logs:
        """The logs that will replace current ones in other directories."""
        if self._failing:
            self._take_failed_offline()
        return self._future_logs

    @property
    def current_logs(self) -> Logs:
        """The published logs: takes no lock, and may include those of a disk that has just failed."""
        return self._logs

    @property
    def moving_logs(self) -> Logs:
        """The published future logs: takes no lock, and may include those of a disk that has just failed."""
        return self._future_logs

    def path_of(self, topic: str) -> str:
        """Return the directory of one of a topic's partitions, which may be offline."""
        found = ((key, one) for one in self.directories for key in (*one.logs, *one.problems) if key.topic == topic)
        key, directory = next(found)
        return directory.file(str(key))

    def directory_of(self, log: UnifiedLog) -> DataDirectory:
        """Return the data directory of one of the logs."""
        parent = os.path.dirname(log.path)
        return next(one for one in self.directories if one.path == parent)

    def get(self, topic_partition: TopicPartition, *, is_future: bool = False) -> UnifiedLog | None:
        """Return the log of a partition, or its future one; None if there is none (MGR-1)."""
        return (self.future_logs if is_future else self.logs).get(topic_partition)

    @property
    def problems(self) -> Mapping[TopicPartition, KafkalogError]:
        """The offline partitions of directories in use, with the error of each."""
        return {key: error for one in self.directories for key, error in one.problems.items()}

    @property
    def offline(self) -> Iterator[DataDirectory]:
        """The directories that are not in use."""
        return (one for one in self.directories if not one.is_online)

    @property
    def online(self) -> Iterator[DataDirectory]:
        """The directories in use."""
        return (one for one in self.directories if one.is_online)

    def _publish(self) -> None:
        """Rebuild the snapshots of all logs."""
        self._logs = _merge(one.logs for one in self.directories)
        self._future_logs = _merge(one.future_logs for one in self.directories)

    # Disk failures
    def fail_directory(self, path: str | os.PathLike[str], error: Exception) -> None:
        """Take a directory offline: close and unregister its logs, release its lock (MGR-23).

        A second call for it does nothing. IllegalArgument for a path that is none of the manager's.
        """
        real = os.path.realpath(path)
        directory = next((one for one in self.directories if one.path == real), None)
        if directory is None:
            raise IllegalArgument(f"{real} is not a data directory of this manager")
        directory.note_failure(error)
        self._take_failed_offline()

    def handle_error(self, directory: DataDirectory, error: Exception) -> None:
        """Handle an error in a directory: a disk failure or damage takes it offline; a full disk does not."""
        if is_disk_failure(error) or isinstance(error, (FormatError, CorruptRecord)):
            self.fail_directory(directory.path, error)

    def note_failure(self, directory: DataDirectory, error: BaseException) -> None:
        """Stop new writes to a directory immediately; it goes offline shortly after.

        Never blocks: a log calls it under its lock, from the write that failed (KAFKA-10778).
        """
        if directory.is_online and isinstance(error, Exception):
            directory.note_failure(error)
            self._failing = True
            if self.scheduler is not None:
                with suppress(IllegalState):  # shut down: the next call to this manager takes it offline
                    self.scheduler.schedule("handle-log-dir-failure", self._take_failed_offline, delay_ms=1)

    def _take_failed_offline(self) -> None:
        """Take directories offline whose failure was noted."""
        with self._lock:
            self._failing = False
            for directory in self.offline:
                if directory.log_dir is not None:
                    take_offline(directory)
            self._publish()


def _merge(maps: Iterable[Logs]) -> Logs:
    """Merge the maps of logs; a single non-empty map is returned without a copy."""
    filled = [one for one in maps if one]
    if len(filled) == 1:
        return filled[0]
    merged: dict[TopicPartition, UnifiedLog] = {}
    for one in filled:
        merged = merged | one  # a proxy's own "or" copies keys with their hashes
    return MappingProxyType(merged)
