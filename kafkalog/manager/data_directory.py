"""One data directory of several: its lock, its logs, and the state of its disk."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from kafkalog.errors import KafkalogError, StorageError
from kafkalog.manager.log_dir import LogDir
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS, FileSystem

_LOG: Final = logging.getLogger(__name__)
Logs = MappingProxyType[TopicPartition, UnifiedLog]
NO_LOGS: Final[Logs] = MappingProxyType({})


class DataDirectory:
    """A data directory that a LogManager holds, or could not lock.

    `log_dir` is its lock, `directory_id` the id in its meta.properties (None: none). `broker_epoch` is the epoch in the
    marker of its last clean stop (-1: no epoch, None: no marker). `offline_error` is the reason why the directory is
    not in use (None: it is). A failure sets it at once; `take_offline` closes the logs and releases the lock later.
    `problems` has the reasons why partitions are offline while the directory is in use. All maps are replaced, never
    changed, so that readers may iterate over them. Threads: changed under the manager's lock, read from any.
    """

    __slots__ = (
        "broker_epoch", "directory_id", "fs", "future_logs", "log_dir", "logs", "offline_error", "path",
        "problems",
    )

    def __init__(self, path: str, *, fs: FileSystem = OS) -> None:
        self.path = path
        self.fs = fs
        self.log_dir: LogDir | None = None
        self.directory_id: str | None = None
        self.broker_epoch: int | None = None
        self.offline_error: Exception | None = None
        self.logs: Logs = NO_LOGS
        self.future_logs: Logs = NO_LOGS
        self.problems: Mapping[TopicPartition, KafkalogError] = MappingProxyType({})

    @property
    def is_online(self) -> bool:
        """True while the directory is in use."""
        return self.offline_error is None

    @property
    def held(self) -> LogDir:
        """Its lock; StorageError if the directory is offline."""
        if self.log_dir is None or self.offline_error is not None:
            raise self.offline()
        return self.log_dir

    def offline(self) -> StorageError:
        """Return the error to raise for a request to this offline directory."""
        cause = self.offline_error
        what, path, hint = str(cause), self.path, "look after the disk, then start again"
        if isinstance(cause, KafkalogError) and not isinstance(cause, OSError):  # damage in a file
            what, path, hint = cause.message, cause.path or path, cause.hint or hint
        made = StorageError(
            f"the data directory is offline: {what}", errno=cause.errno if isinstance(cause, OSError) else None,
            path=path, hint=hint,
        )  # fmt: skip
        made.__cause__ = cause
        return made

    def note_failure(self, error: Exception) -> None:
        """Stop new writes to this directory. Never blocks, so it may be called under a log's lock."""
        if self.offline_error is None:
            self.offline_error = error
            cause = self.offline()
            for log in self.all_logs:
                log.fence(cause)

    def take_offline(self) -> None:
        """Close the logs as a crash would leave them, unregister them, and release the lock; no marker is written."""
        log_dir, self.log_dir = self.log_dir, None
        logs, self.logs, self.future_logs = self.all_logs, NO_LOGS, NO_LOGS
        self.problems = MappingProxyType({})
        cause = self.offline()
        for log in logs:
            try:
                log.abandon(cause)
            except (OSError, KafkalogError) as worse:
                _LOG.warning("%s: %s", log.path, worse)
        if log_dir is not None:
            log_dir.forsake()
            try:
                log_dir.release()
            except OSError as worse:  # closing the lock file failed, but the lock is released all the same
                _LOG.warning("%s: %s", self.path, worse)

    @property
    def all_logs(self) -> tuple[UnifiedLog, ...]:
        """Current and future logs."""
        return (*self.logs.values(), *self.future_logs.values())

    def put(self, log: UnifiedLog, *, is_future: bool = False) -> None:
        """Register a log."""
        if is_future:
            self.future_logs = MappingProxyType({**self.future_logs, log.topic_partition: log})
        else:
            self.logs = MappingProxyType({**self.logs, log.topic_partition: log})

    def put_more(self, logs: Iterable[UnifiedLog]) -> None:
        """Register several current logs."""
        self.logs = MappingProxyType(self.logs | {log.topic_partition: log for log in logs})

    def put_all(
        self, logs: Mapping[TopicPartition, UnifiedLog], future_logs: Mapping[TopicPartition, UnifiedLog]
    ) -> None:
        """Replace the registered logs by the loaded ones."""
        self.logs = MappingProxyType(dict(logs))
        self.future_logs = MappingProxyType(dict(future_logs))

    def drop_all(self, gone: Collection[TopicPartition]) -> None:
        """Unregister several current logs."""
        self.logs = MappingProxyType({key: log for key, log in self.logs.items() if key not in gone})

    def drop(self, topic_partition: TopicPartition, *, is_future: bool = False) -> None:
        """Unregister a log."""
        logs = self.future_logs if is_future else self.logs
        left = MappingProxyType({key: log for key, log in logs.items() if key != topic_partition})
        if is_future:
            self.future_logs = left
        else:
            self.logs = left

    def holds(self, path: str | None) -> bool:
        """Return True if a path is the directory's or lies in it."""
        return path is not None and (path == self.path or path.startswith(self.path + os.sep))

    def file(self, name: str) -> str:
        """Return the path of a file of the directory."""
        return os.path.join(self.path, name)

    def __repr__(self) -> str:
        state = "offline" if self.offline_error is not None else f"{len(self.logs)} logs"
        return f"<DataDirectory {self.path} {state}>"
