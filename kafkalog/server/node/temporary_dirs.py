"""Temporary data directories: one in memory, and stand-ins for directories that must not be written.

A stand-in has copies of all small files and links to the segments. Segments that may be truncated or appended to are
copied, too: the last one of each partition after an unclean shutdown, and those of the internal topics, since groups
may be used (their changes are discarded at the end). Others are copied when recovery truncates them.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from kafkalog.errors import DirectoryLocked, NotAPartition, PartitionNotFound, StorageError
from kafkalog.manager.log_dir import is_locked
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE, DELETE_DIR_SUFFIX, LOG_SUFFIX, METADATA_DIRECTORY, parse_dir
from kafkalog.util.fileio import OS, File, FileSystem
from kafkalog.util.os_errors import os_errors

_LOG: Final = logging.getLogger(__name__)
_SHARED_MEMORY: Final = "/dev/shm"
_LOCK: Final = ".lock"
_INTERNAL: Final = ("__consumer_offsets", "__transaction_state")


@contextmanager
def in_memory() -> Iterator[str]:
    """Create a directory on /dev/shm, or among temporary files if there is none; delete it at the end."""
    parent = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK | os.X_OK) else None
    with _temporary("kafkalog-memory-", parent) as path:
        yield path


@contextmanager
def stand_ins(directories: Sequence[str]) -> Iterator[list[str]]:
    """Create a stand-in for each directory; delete them at the end.

    Raises DirectoryLocked if another process writes to a directory, PartitionNotFound if one is missing, StorageError.
    """
    with _temporary("kafkalog-read-", None) as parent:
        targets = []
        for number, directory in enumerate(directories):
            if is_locked(directory):
                raise DirectoryLocked("another process writes to the directory", path=directory)
            target = os.path.join(parent, str(number))
            try:
                _stand_in(os.path.realpath(directory), target)
            except FileNotFoundError as error:
                raise PartitionNotFound("the directory does not exist", path=error.filename) from None
            except OSError as error:
                raise StorageError.from_os(error, "create a stand-in for the directory", path=directory) from error
            targets.append(target)
        yield targets


class NoWritesToLinks(FileSystem):
    """Opens symbolic links read-only in every mode: a write to one fails, a truncation copies it."""

    def open_file(self, path: str | os.PathLike[str], mode: str) -> File:
        """Open a file; a link is opened read-only. Raise OSError (EEXIST) for a new file in a link's place."""
        if mode != "r" and os.path.islink(path):
            if mode == "exclusive":
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(path))
            with super().open_file(path, "r") as opened:
                return _Linked(opened.path, os.dup(opened.fileno()), self)
        return super().open_file(path, mode)


class _Linked(File):
    """A linked segment. If recovery truncates it because of damage, it becomes a copy of the remaining part."""

    __slots__ = ()

    def truncate(self, length: int) -> None:
        targets = f"{self.path}.copy"
        shutil.copyfile(self.path, targets)
        copy = os.open(targets, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.ftruncate(copy, length)
            os.replace(targets, self.path)
            os.dup2(copy, self.fileno(), inheritable=False)  # readers of this descriptor continue with the copy
        finally:
            os.close(copy)


@contextmanager
def _temporary(prefix: str, parent: str | None) -> Iterator[str]:
    import tempfile

    with os_errors("create a temporary directory"):
        path = tempfile.mkdtemp(prefix=prefix, dir=parent)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _stand_in(source: str, target: str) -> None:
    os.mkdir(target)
    is_clean = os.path.exists(os.path.join(source, CLEAN_SHUTDOWN_FILE))
    copied = 0
    for name in sorted(OS.names(source)):
        path = os.path.join(source, name)
        if os.path.isdir(path):
            if _is_served(name):
                copied += _partition(path, os.path.join(target, name), is_clean)
        elif name != _LOCK:
            shutil.copyfile(path, os.path.join(target, name))
            os.chmod(os.path.join(target, name), 0o600)  # one of these files holds keys
    if not is_clean:
        _LOG.info("%s was not shut down cleanly: copied %d bytes of its last segments to recover them", source, copied)


def _is_served(name: str) -> bool:
    if name == METADATA_DIRECTORY:
        return True
    try:
        return parse_dir(name)[1] != DELETE_DIR_SUFFIX
    except NotAPartition:
        return False


def _partition(source: str, target: str, is_clean: bool) -> int:
    """Create a partition's stand-in and return the number of bytes of segments copied."""
    os.mkdir(target)
    names = sorted(OS.names(source))
    segments = [name for name in names if name.endswith(LOG_SUFFIX)]
    is_internal = os.path.basename(source).rpartition("-")[0] in _INTERNAL
    writable = set(segments if is_internal else segments[-1:] if not is_clean else ())
    copied = 0
    for name in names:
        path, target_path = os.path.join(source, name), os.path.join(target, name)
        if name.endswith(LOG_SUFFIX) and name not in writable:
            os.symlink(path, target_path)
        elif os.path.isfile(path):
            shutil.copyfile(path, target_path)
            copied += os.path.getsize(path) if name in writable else 0
    return copied
