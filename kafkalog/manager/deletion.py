"""Deleting a partition: renamed at once, its files removed after `file.delete.delay.ms` (MGR-10 to MGR-12).

    rename      `<topic>-<partition>.<id>-delete`, on disk before anything else: after a crash from here on the
                next start continues the delete
    forget      its lines in the directory's checkpoints, and its topic once no partition is left
    remove      the files, then the directory, by the job that deletes
"""

from __future__ import annotations

import errno
import heapq
import itertools
import logging
import os
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from kafkalog.errors import StorageError
from kafkalog.manager.data_directory import DataDirectory
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.names import delete_dir_name
from kafkalog.util.fileio import FileSystem
from kafkalog.util.os_errors import os_errors

_LOG: Final = logging.getLogger(__name__)


class PendingRemoval(NamedTuple):
    """A partition directory pending removal; `log` is its log, open for current readers, or None."""

    due_ms: int
    order: int
    directory: DataDirectory
    path: str
    log: UnifiedLog | None

    def close(self) -> None:
        """Close the log's files."""
        if self.log is not None:
            self.log.close_handlers()


class DeletionQueue:
    """The directories pending removal, by the monotonic time at which they are due. Threads: safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[PendingRemoval] = []  # guarded by self._lock
        self._orders = itertools.count()

    def add(self, directory: DataDirectory, path: str, due_ms: int, log: UnifiedLog | None = None) -> None:
        """Queue the directory `path` for removal at `due_ms`."""
        with self._lock:
            heapq.heappush(self._waiting, PendingRemoval(due_ms, next(self._orders), directory, path, log))

    def run(self, now_ms: int, retry_ms: int, failed: Callable[[DataDirectory, Exception], object]) -> int:
        """Remove the directories that are due and return their number.

        A directory that cannot be removed is retried after `retry_ms`. Each failure is reported to `failed`; the first
        is raised at the end.
        """
        failures: list[StorageError] = []
        due = self._take_due(now_ms)
        for one in due:
            try:
                remove(one)
            except StorageError as error:
                failures.append(error)
                failed(one.directory, error)
                self.add(one.directory, one.path, now_ms + retry_ms, one.log)
        if failures:
            raise failures[0]
        return len(due)

    def _take_due(self, now_ms: int) -> list[PendingRemoval]:
        due = []
        with self._lock:
            while self._waiting and self._waiting[0].due_ms <= now_ms:
                due.append(heapq.heappop(self._waiting))
        return due

    def close(self) -> None:
        """Close all files; directories still pending are removed after the next start."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.close()

    @property
    def next_due_ms(self) -> int | None:
        """Monotonic time of the next removal; None if none is pending."""
        with self._lock:
            return self._waiting[0].due_ms if self._waiting else None

    def __len__(self) -> int:
        return len(self._waiting)


def rename_for_delete(directory: DataDirectory, log: UnifiedLog, *, sync: bool = True) -> StorageError | None:
    """Rename a log's directory to its deleted name and stop writes to the log.

    StorageError: it has its old name and is unchanged. A returned error means that a power loss may undo the rename, as
    it may without `sync`.
    """
    before = log.name
    cause = StorageError(f"the partition {log.topic_partition} was deleted", path=log.path)
    log.stop_writes(cause)
    unsynced: StorageError | None = None
    try:
        log.rename_dir(delete_dir_name(log.topic_partition), sync=sync)
    except StorageError as error:
        unsynced = error
    finally:
        if log.name == before:
            log.resume_writes(cause)
    if log.name == before and unsynced is not None:
        raise unsynced
    if directory.log_dir is not None:
        directory.log_dir.partition_closed(before, True)
    _LOG.info("deleted %s: renamed to %s", before, log.path)
    return unsynced


def remove(pending: PendingRemoval) -> None:
    """Remove a directory and all in it; after a StorageError some of it remains for the next attempt.

    Nothing is done in a data directory that is offline: its next start removes the directory.
    """
    pending.close()
    fs = pending.directory.fs
    if not pending.directory.is_online:
        return
    with os_errors("remove the deleted partition", pending.path):
        remove_tree(pending.path, fs)
        fs.fsync_dir(os.path.dirname(pending.path))
    _LOG.info("removed %s", pending.path)


def remove_tree(path: str, fs: FileSystem) -> None:
    """Remove a directory and all in it, however deep; a missing one is ignored. OSError.

    If `path` is a link, only the link is removed, not its target.
    """
    if os.path.islink(path):
        fs.unlink_if_exists(path)
        return
    stack, attempts = [path], 4
    while stack:
        subdirectories = _remove_files(stack[-1], fs)
        if subdirectories:
            stack += subdirectories
            continue
        try:
            fs.rmdir(stack[-1])
        except FileNotFoundError:
            pass
        except OSError as error:
            attempts -= 1
            if error.errno != errno.ENOTEMPTY or attempts == 0:
                raise
            continue  # an append in progress has written its epochs there meanwhile
        stack.pop()


def _remove_files(path: str, fs: FileSystem) -> list[str]:
    """Remove the files of a directory and return the directories in it."""
    try:
        with fs.entries(path) as entries:
            found = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
    except FileNotFoundError:
        return []
    for one, is_directory in found:
        if not is_directory:
            fs.unlink_if_exists(one)
    return [one for one, is_directory in found if is_directory]
