"""Copies of files: by shared blocks if the file system supports that, else by reading and writing.

A file of a log directory is never hard-linked. A link is a second name of one file: a broker that truncates a segment
and goes on writing in it, or rebuilds an index in place, would change the backup. A clone (FICLONE) shares blocks and
not the file, so that changes of one do not appear in the other; it costs no more than a link.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from kafkalog.util.fileio import File, FileSystem
from kafkalog.util.os_errors import os_errors
from kafkalog.util.side_by_side import side_by_side

COPY_BYTES: Final = 1 << 20
FILES_AT_ONCE: Final = 4
"""Number of files that are copied, synced, uploaded or downloaded at the same time."""
_THREAD: Final = "kafkalog-backup"
Tell = Callable[[int], object]


class Copier:
    """Copies files into one place; `cloned` and `copied` count the bytes of each way so far.

    The first copy determines whether the place supports clones. Threads: one at a time.
    """

    def __init__(self, fs: FileSystem, tell: Tell | None = None) -> None:
        self.cloned = 0
        self.copied = 0
        self._fs = fs
        self._tell = tell
        self._can_clone = True

    def copy(self, source: File, target: str, size: int) -> str:
        """Copy the first `size` bytes of `source` to the new file `target`, not synced, and return their SHA-256 sum.

        Fewer bytes are copied if `source` was truncated meanwhile, which the caller must check. StorageError; then a
        partial `target` stays.
        """
        with create(self._fs, target) as file:
            if size and self._clone(source, file, size):
                return _hash_file(file, self._tell, size)[1]
            copied, checksum = _hash_file(source, self._tell, size, file)
            self.copied += copied
            return checksum

    def subtract_last(self, size: int) -> None:
        """Subtract the last copy, of `size` bytes, from the counts: it was discarded."""
        if self._can_clone and size <= self.cloned:
            self.cloned -= size
        else:
            self.copied -= size

    def _clone(self, source: File, target: File, size: int) -> bool:
        if not self._can_clone:
            return False
        try:
            self._fs.clone(target.fileno(), source.fileno())
            if target.size() != size:
                target.truncate(min(size, target.size()))
        except OSError:  # another file system, or one without shared blocks
            self._can_clone = False
            return False
        self.cloned += size
        return True



def create(fs: FileSystem, path: str) -> File:
    """Create a file of that name and open it; one that a crash left is removed first. StorageError."""
    with os_errors("create the copy", path):
        fs.unlink_if_exists(path)
        return fs.open_file(path, "exclusive")


def one_at_a_time(tell: Tell | None) -> Tell | None:
    """Return `tell` for callers in several threads."""
    if tell is None:
        return None
    lock = threading.Lock()

    def call(size: int) -> None:
        with lock:
            tell(size)

    return call


def run_together(tasks: Iterable[Callable[[], None]]) -> None:
    """Run the tasks, some concurrently; after the first error, start no further task and raise the error."""
    has_failed = False

    def run(task: Callable[[], None]) -> None:
        nonlocal has_failed
        if has_failed:
            return
        try:
            task()
        except BaseException:
            has_failed = True
            raise

    side_by_side(run, tasks, FILES_AT_ONCE, _THREAD)


def sync_files(fs: FileSystem, paths: Iterable[str]) -> None:
    """Sync these files to disk, some concurrently; StorageError.

    Syncing all files after the writes lets one journal commit of the file system cover many of them.
    """

    def sync(path: str) -> None:
        with os_errors("sync the copy", path), fs.open_file(path, "r") as file:
            file.sync()

    run_together(partial(sync, path) for path in paths)


def _hash_file(file: File, tell: Tell | None, size: int = sys.maxsize, target: File | None = None) -> tuple[int, str]:
    """Return (length, SHA-256 sum) of a file's first `size` bytes, which are copied to `target`; StorageError."""
    sums, at = hashlib.sha256(), 0
    while at < size:
        with os_errors("read", file.path, at):
            data = file.pread(min(COPY_BYTES, size - at), at)
        if not data:
            break
        if target is not None:
            with os_errors("write the copy", target.path, at):
                target.pwrite(data, at)
        sums.update(data)
        at += len(data)
        if tell is not None:
            tell(len(data))
    return at, sums.hexdigest()


def sum_of(fs: FileSystem, path: str, tell: Tell | None = None) -> tuple[int, str]:
    """Return (length, SHA-256 sum) of a file; StorageError, whose cause is FileNotFoundError if it is missing."""
    with os_errors("read", path), fs.open_file(path, "r") as file:
        return _hash_file(file, tell)
