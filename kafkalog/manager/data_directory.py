"""One data directory of several: its lock, its logs, and the state of its disk."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from kafkalog.errors import KafkalogError, StorageError
from kafkalog.manager.checkpoints import forget
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
    changed, so that readers may iterate over them. `removed` are deleted partitions that checkpoints may still list.
    Threads: changed under the manager's lock, read from any.
    """

    __slots__ = (
        "broker_epoch", "directory_id", "fs", "future_logs", "log_dir", "logs", "offline_error", "path",
        "problems", "removed",
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
        self.removed: frozenset[TopicPartition] = frozenset()

    @property
    def is_online(self) -> bool:
        """True while the directory is in use."""
        return self.offline_error is None

    @property
    def online_log_dir(self) -> LogDir:
        """Its lock; StorageError if the directory is offline."""
        if self.log_dir is None or self.offline_error is not None:
            raise self.unavailable()
        return self.log_dir

    def unavailable(self) -> StorageError:
        """Return the error to raise for a request to this offline directory."""
        cause = self.offline_error
        reason, path, hint = str(cause), self.path, "check the disk, then restart"
        if isinstance(cause, KafkalogError) and not isinstance(cause, OSError):  # damage in a file
            reason, path, hint = cause.message, cause.path or path, cause.hint or hint
        error = StorageError(
            f"the data directory is offline: {reason}", errno=cause.errno if isinstance(cause, OSError) else None,
            path=path, hint=hint,
        )  # fmt: skip
        error.__cause__ = cause
        return error

    def note_failure(self, error: Exception) -> None:
        """Stop new writes to this directory. Never blocks, so it may be called under a log's lock."""
        if self.offline_error is None:
            self.offline_error = error
            cause = self.unavailable()
            for log in self.all_logs:
                log.fence(cause)

    def take_offline(self) -> None:
        """Close the logs as a crash would leave them, unregister them, and release the lock; no marker is written."""
        log_dir, self.log_dir = self.log_dir, None
        logs, self.logs, self.future_logs = self.all_logs, NO_LOGS, NO_LOGS
        self.problems = MappingProxyType({})
        cause = self.unavailable()
        for log in logs:
            try:
                log.abandon(cause)
            except (OSError, KafkalogError) as worse:
                _LOG.warning("%s: %s", log.path, worse)
        if log_dir is not None:
            log_dir.withhold_marker()
            try:
                log_dir.release()
            except OSError as worse:  # closing the lock file failed, but the lock is released all the same
                _LOG.warning("%s: %s", self.path, worse)

    @property
    def all_logs(self) -> tuple[UnifiedLog, ...]:
        """Current and future logs."""
        return (*self.logs.values(), *self.future_logs.values())

    def register(self, logs: Iterable[UnifiedLog], *, is_future: bool = False) -> None:
        """Register current or future logs."""
        self._replace({**self._logs(is_future), **{log.topic_partition: log for log in logs}}, is_future)

    def unregister(self, keys: Collection[TopicPartition], *, is_future: bool = False) -> None:
        """Unregister current or future logs."""
        self._replace({key: log for key, log in self._logs(is_future).items() if key not in keys}, is_future)

    def _logs(self, is_future: bool) -> Logs:
        return self.future_logs if is_future else self.logs

    def _replace(self, logs: dict[TopicPartition, UnifiedLog], is_future: bool) -> None:
        if is_future:
            self.future_logs = MappingProxyType(logs)
        else:
            self.logs = MappingProxyType(logs)

    def forget(self, keys: Iterable[TopicPartition] = ()) -> None:
        """Remove the checkpoint entries of deleted partitions, and those that an earlier call could not remove.

        Called before a partition is created, which must not find those of another. CorruptCheckpoint, StorageError.
        """
        self.removed |= frozenset(keys)
        forget(self.path, self.removed, fs=self.fs)
        self.removed = frozenset()

    def contains(self, path: str | None) -> bool:
        """Return True if a path is the directory's or lies in it."""
        return path is not None and (path == self.path or path.startswith(self.path + os.sep))

    def file(self, name: str) -> str:
        """Return the path of a file of the directory."""
        return os.path.join(self.path, name)

    def __repr__(self) -> str:
        state = "offline" if self.offline_error is not None else f"{len(self.logs)} logs"
        return f"<DataDirectory {self.path} {state}>"
