"""Storage of the positions of named cursors: one small file each, outside of every data directory.

    <store>/<data directory>-<hash of its path>/<topic>-<partition>/<name>.cursor    the position, JSON
                                                                    <name>.lock      locked by its user

A data directory belongs to its writer, which may be a broker. A reader never writes there: an unknown directory keeps a
broker from starting. So the store is a directory of the reader, by default in the user's state directory.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from kafkalog.errors import CorruptCheckpoint, CursorInUse, IllegalArgument, IllegalState, NotAPartition, StorageError
from kafkalog.storage.names import parse_topic_partition_dir
from kafkalog.storage.outside_data import refuse_data_directory
from kafkalog.types import TopicPartition
from kafkalog.util.file_lock import open_locked
from kafkalog.util.fileio import OS, File, FileSystem, atomic_write, make_directories
from kafkalog.util.os_errors import os_errors, read_if_present
from kafkalog.util.paths import real_path

STORE_VARIABLE: Final = "KAFKALOG_CURSORS"
"""Environment variable that names the default store."""
VERSION: Final = 1
CONTENT_BITS: Final = 32
PLACE_BITS: Final = 30
PLACE_SHIFT: Final = 33
"""Layout of a record's checksum, as `checksum_of` computes it; bit 32 is left to the marks of a table sync."""
MAX_FILE_BYTES: Final = 1 << 16
MAX_NAME_LENGTH: Final = 200
MAX_OFFSET: Final = 2**63 - 1
MAX_TIME_MS: Final = 253_402_300_799_999
"""End of the year 9999, the last year of Python's datetime."""
CURSOR_SUFFIX: Final = ".cursor"
LOCK_SUFFIX: Final = ".lock"
_NAME: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_NAME_LENGTH}}}")
_DAMAGE_HINT: Final = (
    "`kafkalog offsets reset --execute` sets the position; if the file is deleted, the cursor starts as a new one"
)


class CursorState(NamedTuple):
    """Content of a cursor's file.

    `position` is the offset of the first record that was not processed. `record_crc` is a checksum of the record before
    it, None if that could not be read. `topic_id` is None if the partition has no id.
    """

    name: str
    topic_partition: TopicPartition
    position: int
    record_crc: int | None
    topic_id: str | None
    committed_ms: int


def check_cursor_name(name: str) -> str:
    """Return the name; raise IllegalArgument unless it is 1 to 200 of a-z A-Z 0-9 . _ - (it becomes a file name)."""
    if not isinstance(name, str):
        raise TypeError(f"a cursor's name is a str, not {type(name).__name__}")
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise IllegalArgument(
            f"{ascii(name[:80])} is not a valid cursor name", hint=f"1 to {MAX_NAME_LENGTH} of a-z A-Z 0-9 . _ and -"
        )
    return name


def default_store() -> str:
    """Return the default store: $KAFKALOG_CURSORS, else kafkalog/cursors in the user's state directory.

    The state directory is $XDG_STATE_HOME, by default ~/.local/state. Raises IllegalArgument for a user without a home.
    """
    given = os.environ.get(STORE_VARIABLE)
    if given:
        return given
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    if not os.path.isabs(state):
        raise IllegalArgument(
            "cannot store cursors: this user has no home directory", hint=f"name a directory, or set {STORE_VARIABLE}"
        )
    return os.path.join(state, "kafkalog", "cursors")


class CursorStore:
    """The cursors below one directory. Threads: any thread may call it."""

    def __init__(self, root: str | os.PathLike[str] | None = None, *, fs: FileSystem = OS) -> None:
        self.root = real_path(default_store() if root is None else os.fspath(root))
        self._fs = fs

    def acquire(self, partition: str, name: str) -> CursorFile:
        """Lock the cursor `name` of the partition directory `partition` for the caller until it is released.

        Raises CursorInUse if this process or another holds it; IllegalArgument for an invalid name and for a store
        inside a data directory; StorageError.
        """
        check_cursor_name(name)
        refuse_data_directory(self.root, "cursors", [os.path.dirname(os.path.realpath(partition))])
        folder = self._folder(partition)
        try:
            make_directories(self._fs, folder)
            lock = _locked(os.path.join(folder, name + LOCK_SUFFIX), name, self._fs)
        except OSError as error:
            hint = f"name a directory that you can write to, or set {STORE_VARIABLE}" if _is_denied(error) else None
            raise StorageError.from_os(error, "store cursors here", path=folder, hint=hint) from error
        return CursorFile(os.path.join(folder, name + CURSOR_SUFFIX), name, partition, lock, self._fs)

    def read(self, partition: str, name: str) -> CursorState | None:
        """Return a cursor's state without locking it; None if it does not exist. Raises CorruptCheckpoint."""
        path = os.path.join(self._folder(partition), check_cursor_name(name) + CURSOR_SUFFIX)
        return _read(path, name, _partition_of(partition), self._fs)

    def names(self, partition: str) -> list[str]:
        """Return the names of the cursors of a partition directory, sorted."""
        found = _list(self._folder(partition), self._fs)
        names = (name.removesuffix(CURSOR_SUFFIX) for name in found if name.endswith(CURSOR_SUFFIX))
        return sorted(name for name in names if _NAME.fullmatch(name))

    def partitions(self, directory: str) -> list[str]:
        """Return the paths of a data directory's partitions that have cursors, deleted partitions included."""
        data = os.path.realpath(directory)
        return sorted(os.path.join(data, name) for name in _partitions(self._key(data), self._fs))

    def _key(self, directory: str) -> str:
        """Return the store's directory for a data directory: readable, and different for each path."""
        readable = re.sub(r"[^A-Za-z0-9._-]", "_", os.path.basename(directory))[:60] or "data"
        digest = hashlib.sha256(os.fsencode(directory), usedforsecurity=False).hexdigest()[:16]
        return os.path.join(self.root, f"{readable}-{digest}")

    def _folder(self, partition: str) -> str:
        real = os.path.realpath(partition)
        return os.path.join(self._key(os.path.dirname(real)), os.path.basename(real))

    def __repr__(self) -> str:
        return f"<CursorStore {self.root}>"


class CursorFile:
    """One cursor's file, locked by this process. Threads: one at a time."""

    __slots__ = ("_fs", "_lock", "_pid", "name", "partition", "path", "topic_partition")

    def __init__(self, path: str, name: str, partition: str, lock: File, fs: FileSystem) -> None:
        self.path = path
        self.name = name
        self.partition = partition
        self.topic_partition = _partition_of(partition)
        self._lock: File | None = lock
        self._fs = fs
        self._pid = os.getpid()

    def read(self) -> CursorState | None:
        """Return the stored state; None for a new cursor. Raises CorruptCheckpoint, StorageError."""
        return _read(self.path, self.name, self.topic_partition, self._fs)

    def write(self, state: CursorState, *, sync: bool = True) -> None:
        """Store `state` atomically: after a crash the file has either the old content or the new.

        Without `sync` that holds after a crash of the process, but not of the machine. Raises IllegalState in a forked
        child and after `release`; StorageError.
        """
        self.check_held()
        crc = state.record_crc
        content = {
            "version": VERSION,
            "position": state.position,
            "record_crc": None if crc is None else crc & (1 << CONTENT_BITS) - 1,
            "place_crc": None if crc is None else crc >> PLACE_SHIFT,
            "topic_id": state.topic_id,
            "committed_ms": state.committed_ms,
            "log": os.path.realpath(self.partition),
        }
        with os_errors("store the cursor's position", self.path):
            atomic_write(self._fs, self.path, (json.dumps(content) + "\n").encode(), sync=sync)

    def delete(self) -> bool:
        """Delete the cursor and release it; return True if it was stored. Raises StorageError."""
        self.check_held()
        try:
            existed = self._fs.unlink_if_exists(self.path)
            self._fs.unlink_if_exists(self.path.removesuffix(CURSOR_SUFFIX) + LOCK_SUFFIX)
        except OSError as error:
            raise StorageError.from_os(error, "delete the cursor", path=self.path) from error
        finally:
            self.release()
        return existed

    def release(self) -> None:
        """Release the cursor. A second call does nothing; in a forked child the lock stays with the parent."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        try:
            if os.getpid() == self._pid and not lock.closed:  # a garbage collection may have closed it before
                fcntl.flock(lock.fileno(), fcntl.LOCK_UN)
        finally:
            lock.close()

    def check_held(self) -> None:
        """Raise IllegalState in a forked child, and after `release`."""
        if self._lock is None:
            raise IllegalState(f"cursor {self.name} was released", path=self.path)
        if os.getpid() != self._pid:
            raise IllegalState(
                f"cursor {self.name} belongs to the process that opened it",
                path=self.path,
                hint="open the cursor in the child process instead of before the fork",
            )

    def __del__(self) -> None:
        if getattr(self, "_lock", None) is not None:
            self.release()


def _locked(path: str, name: str, fs: FileSystem) -> File:
    """Return the lock file, locked; reopen it if it was deleted between open and lock."""
    while True:
        file = open_locked(fs, path, "create")
        if file is None:
            raise CursorInUse(f"cursor {name} is in use", path=path.removesuffix(LOCK_SUFFIX) + CURSOR_SUFFIX)
        try:
            if os.path.samestat(file.stat(), fs.stat(path)):
                return file
        except FileNotFoundError:
            pass
        except OSError:
            file.close()
            raise
        file.close()


def _read(path: str, name: str, topic_partition: TopicPartition, fs: FileSystem) -> CursorState | None:
    content = read_if_present(path, MAX_FILE_BYTES, "read the cursor's position", fs)
    if content is None:
        return None
    try:
        return _parse(json.loads(content), name, topic_partition)
    except (ValueError, RecursionError) as error:
        raise CorruptCheckpoint(f"malformed cursor: {error}", path=path, hint=_DAMAGE_HINT) from None


def _parse(found: object, name: str, topic_partition: TopicPartition) -> CursorState:
    """Return the state in parsed JSON; raise ValueError for anything that `write` does not write."""
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    version = _number(found, "version", 1 << 31)
    if version != VERSION:
        raise ValueError(f"version {version} is unknown, {VERSION} is expected")
    topic_id = found.get("topic_id")
    if topic_id is not None and not isinstance(topic_id, str):
        raise ValueError("topic_id is not text")
    crc = None if found.get("record_crc") is None else _number(found, "record_crc", (1 << CONTENT_BITS) - 1)
    if crc is not None and found.get("place_crc") is not None:
        crc |= _number(found, "place_crc", (1 << PLACE_BITS) - 1) << PLACE_SHIFT
    position = _number(found, "position", MAX_OFFSET)
    return CursorState(name, topic_partition, position, crc, topic_id, _number(found, "committed_ms", MAX_TIME_MS))


def _number(found: dict[str, object], key: str, limit: int) -> int:
    value = found.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limit:
        raise ValueError(f"{key} is {ascii(value)[:40]}, a number from 0 to {limit} is expected")
    return value


def _partition_of(partition: str) -> TopicPartition:
    return parse_topic_partition_dir(os.path.basename(os.path.realpath(partition)))


def _partitions(folder: str, fs: FileSystem) -> Iterator[str]:
    for name in _list(folder, fs):
        try:
            parse_topic_partition_dir(name)
        except NotAPartition:
            continue
        if any(entry.endswith(CURSOR_SUFFIX) for entry in _list(os.path.join(folder, name), fs)):
            yield name


def _list(folder: str, fs: FileSystem) -> list[str]:
    with os_errors("list cursors", folder), suppress(FileNotFoundError, NotADirectoryError):
        return fs.names(folder)
    return []


def _is_denied(error: OSError) -> bool:
    return error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
