"""Data directories that pass: one in memory, and stand-ins for directories that are read and never written.

A stand-in has copies of all small files and links to the segments. Segments that would be cut or appended to are
copied, too: the last one of a partition where the directory was not closed well, and those of the internal topics,
since groups may be used, and are forgotten at the end. Others are copied when recovery cuts them.
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

_LOG: Final = logging.getLogger(__name__)
_SHARED_MEMORY: Final = "/dev/shm"
_LOCK: Final = ".lock"
_INTERNAL: Final = ("__consumer_offsets", "__transaction_state")


@contextmanager
def in_memory() -> Iterator[str]:
    """A directory on /dev/shm where there is one, else among temporary files; deleted at the end."""
    parent = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK | os.X_OK) else None
    with _temporary("kafkalog-memory-", parent) as path:
        yield path


@contextmanager
def stand_ins(directories: Sequence[str]) -> Iterator[list[str]]:
    """A stand-in for each directory; deleted at the end. DirectoryLocked where a process writes there."""
    with _temporary("kafkalog-read-", None) as parent:
        made = []
        for number, directory in enumerate(directories):
            if is_locked(directory):
                raise DirectoryLocked("another process writes to the directory", path=directory)
            target = os.path.join(parent, str(number))
            try:
                _stand_in(os.path.realpath(directory), target)
            except FileNotFoundError as error:
                raise PartitionNotFound("there is no such directory", path=error.filename) from None
            except OSError as error:
                raise StorageError.from_os(error, "make a stand-in for the directory", path=directory) from error
            made.append(target)
        yield made


class NoWritesToLinks(FileSystem):
    """Files that are links are opened for reading, whatever was asked for: a write to one fails, a cut copies it."""

    def open_file(self, path: str | os.PathLike[str], mode: str) -> File:
        """As everywhere, but for links. OSError (EROFS) for a new file in a link's place."""
        if mode != "r" and os.path.islink(path):
            if mode == "exclusive":
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(path))
            with super().open_file(path, "r") as opened:
                return _Linked(opened.path, os.dup(opened.fileno()), self)
        return super().open_file(path, mode)


class _Linked(File):
    """A segment behind a link. Cut, where recovery finds damage in it, it becomes a copy of what is left."""

    __slots__ = ()

    def truncate(self, length: int) -> None:
        made = f"{self.path}.copy"
        shutil.copyfile(self.path, made)
        copy = os.open(made, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.ftruncate(copy, length)
            os.replace(made, self.path)
            os.dup2(copy, self.fileno(), inheritable=False)  # who reads by the descriptor goes on with the copy
        finally:
            os.close(copy)


@contextmanager
def _temporary(prefix: str, parent: str | None) -> Iterator[str]:
    import tempfile

    try:
        path = tempfile.mkdtemp(prefix=prefix, dir=parent)
    except OSError as error:
        raise StorageError.from_os(error, "make a temporary directory") from error
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
            os.chmod(os.path.join(target, name), 0o600)  # one of them holds keys
    if not is_clean:
        _LOG.info("%s was not closed well: %d bytes of its last segments are copied and recovered", source, copied)


def _is_served(name: str) -> bool:
    if name == METADATA_DIRECTORY:
        return True
    try:
        return parse_dir(name)[1] != DELETE_DIR_SUFFIX
    except NotAPartition:
        return False


def _partition(source: str, target: str, is_clean: bool) -> int:
    """How many bytes of segments were copied."""
    os.mkdir(target)
    names = sorted(OS.names(source))
    segments = [name for name in names if name.endswith(LOG_SUFFIX)]
    is_internal = os.path.basename(source).rpartition("-")[0] in _INTERNAL
    ours = set(segments if is_internal else segments[-1:] if not is_clean else ())
    copied = 0
    for name in names:
        path, to = os.path.join(source, name), os.path.join(target, name)
        if name.endswith(LOG_SUFFIX) and name not in ours:
            os.symlink(path, to)
        elif os.path.isfile(path):
            shutil.copyfile(path, to)
            copied += os.path.getsize(path) if name in ours else 0
    return copied
