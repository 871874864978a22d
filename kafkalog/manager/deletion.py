"""Deleting a partition: renamed at once, its files removed after `file.delete.delay.ms` (MGR-10 to MGR-12).

    rename      `<topic>-<partition>.<id>-delete`, on disk before anything else: a crash from here on only means that
                the next start goes on with the delete
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

_LOG: Final = logging.getLogger(__name__)


class Doomed(NamedTuple):
    """A partition directory that waits for its delete; `log` is it, open for readers that still hold it, or None."""

    due_ms: int
    order: int
    directory: DataDirectory
    path: str
    log: UnifiedLog | None

    def close(self) -> None:
        """Give the log's files back."""
        if self.log is not None:
            self.log.close_handlers()


class DeletionQueue:
    """The directories that wait for their delete, by the monotonic time at which they are due. Threads: safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Doomed] = []  # guarded by self._lock
        self._orders = itertools.count()

    def add(self, directory: DataDirectory, path: str, due_ms: int, log: UnifiedLog | None = None) -> None:
        """Remove the directory `path` once it is `due_ms`."""
        with self._lock:
            heapq.heappush(self._waiting, Doomed(due_ms, next(self._orders), directory, path, log))

    def run(self, now_ms: int, retry_ms: int, failed: Callable[[DataDirectory, Exception], object]) -> int:
        """How many directories were removed: those that were due.

        What cannot be removed waits for `retry_ms` more. Each failure is told, the first is raised at the end.
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

    def _take_due(self, now_ms: int) -> list[Doomed]:
        due = []
        with self._lock:
            while self._waiting and self._waiting[0].due_ms <= now_ms:
                due.append(heapq.heappop(self._waiting))
        return due

    def close(self) -> None:
        """Give all files back; what still waits is removed after the next start."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.close()

    @property
    def next_due_ms(self) -> int | None:
        """When the first one is due; None where none waits."""
        with self._lock:
            return self._waiting[0].due_ms if self._waiting else None

    def __len__(self) -> int:
        return len(self._waiting)


def rename_for_delete(directory: DataDirectory, log: UnifiedLog, *, sync: bool = True) -> StorageError | None:
    """Give a log's directory its name as one that is deleted, and let nothing be written to it any more.

    StorageError: it has its old name and is as it was. The error that is returned says that the new name may be lost by
    a power loss, as it may be without `sync`.
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
    _LOG.info("%s is deleted: renamed to %s", before, log.path)
    return unsynced


def remove(doomed: Doomed) -> None:
    """Remove a directory and all in it; StorageError, then a part of it is left for the next attempt.

    Nothing is done in a data directory that is offline: its next start goes on.
    """
    doomed.close()
    fs = doomed.directory.fs
    if not doomed.directory.is_online:
        return
    try:
        remove_tree(doomed.path, fs)
        fs.fsync_dir(os.path.dirname(doomed.path))
    except OSError as error:
        raise StorageError.from_os(error, "remove the deleted partition", path=doomed.path) from error
    _LOG.info("removed %s", doomed.path)


def remove_tree(path: str, fs: FileSystem) -> None:
    """Remove a directory and all in it, however deep; one that is gone is fine. OSError.

    Of a link that stands for it only the link goes: what it leads to may be anything.
    """
    if os.path.islink(path):
        fs.unlink_if_exists(path)
        return
    left, attempts = [path], 4
    while left:
        below = _emptied(left[-1], fs)
        if below:
            left += below
            continue
        try:
            fs.rmdir(left[-1])
        except FileNotFoundError:
            pass
        except OSError as error:
            attempts -= 1
            if error.errno != errno.ENOTEMPTY or attempts == 0:
                raise
            continue  # an append that was under way has put its epochs there meanwhile
        left.pop()


def _emptied(path: str, fs: FileSystem) -> list[str]:
    """Remove the files of a directory; the directories in it."""
    try:
        with fs.entries(path) as entries:
            found = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
    except FileNotFoundError:
        return []
    for one, is_directory in found:
        if not is_directory:
            fs.unlink_if_exists(one)
    return [one for one, is_directory in found if is_directory]
