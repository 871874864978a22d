"""A data directory held for writing: its `.lock`, and the marker of a clean shutdown (format.md §8).

The lock is a POSIX record lock, the kind a broker takes; flock would not exclude one. The system drops such a lock when
*any* descriptor of the file closes in the process. A process therefore opens the file once for each directory: the
first `LogDir.acquire` opens it, later ones count, the last `release` closes it. A fork does not inherit the lock
either, so everything here refuses to work in a forked child.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from contextlib import suppress
from typing import Final

from kafkalog.errors import DirectoryLocked, IllegalState, NotAPartition, StorageError
from kafkalog.manager.topics import TopicStore
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE, LOCK_FILE, NOT_PARTITIONS, parse_dir
from kafkalog.util.descriptors import with_room
from kafkalog.util.fileio import OS, FileSystem, atomic_write, make_directories
from kafkalog.util.guards import guard
from kafkalog.util.os_errors import os_errors
from kafkalog.util.system_calls import pack_flock, unpack_flock

MARKER: Final = b'{"version":0,"brokerEpoch":-1}'
"""Content of the marker that kafkalog writes: clean, without a broker epoch."""

_BACKUP_HINT: Final = "this is a read-only backup: `kafkalog restore` creates a data directory from it"

_registry_lock: Final = guard()  # over taking a directory's lock, and releasing it with its marker synced
_state_lock: Final = guard()  # of all directories; held long only to sync a marker's removal or write
_held: dict[tuple[int, int], LogDir] = {}  # by device and inode; guarded by _registry_lock


class LogDir:
    """One data directory that this process holds for writing; created by `acquire`, ended by `release`.

    The marker vouches for the files in the directory. It is removed before the first change, and the last release
    writes it again if every partition was closed cleanly and the rest is vouched for: the marker was there, or this
    process created every partition in the directory. A caller that loads all partitions reports it (`loading_begins`,
    `loading_done`): in between nothing is vouched for, afterwards everything is.

    Threads: safe. Fork: a child's calls raise IllegalState; its `release` does nothing.
    """

    def __init__(self, path: str, fd: int, key: tuple[int, int], fs: FileSystem) -> None:
        self.path = path
        self.topics = TopicStore(path, fs=fs)
        self.lock_path = os.path.join(path, LOCK_FILE)
        self.marker_path = os.path.join(path, CLEAN_SHUTDOWN_FILE)
        self._fs = fs
        self._key = key
        self._pid = os.getpid()
        self._fd = fd
        self._holders = 1  # guarded by _registry_lock
        self._marker_present = False  # guarded by _state_lock
        self._open: dict[str, bool] = {}  # partition -> created here; guarded by _state_lock
        self._created: set[str] = set()  # closed well and made here; guarded by _state_lock
        self._clean: set[str] = set()  # closed well; guarded by _state_lock
        self._unclean: set[str] = set()  # guarded by _state_lock
        self._all_loaded: bool | None = None  # all partitions are open here; False: not yet, or no longer
        self.marker_found = False
        self.is_exclusive = False

    @classmethod
    def acquire(
        cls, path: str | os.PathLike[str], *, fs: FileSystem = OS, create: bool = False, exclusive: bool = False
    ) -> LogDir:
        """Lock the directory for this process and return it; each `acquire` needs one `release`.

        `create` creates a missing directory and its parents. `exclusive` is for a caller responsible for all
        partitions: no other caller in this process may hold the directory. DirectoryLocked: another process, or an
        exclusive caller, holds it. StorageError: it is missing, no directory, or not writable.
        """
        real = os.path.realpath(path)
        with _registry_lock:
            key = _directory_key(real, fs, create)
            held = _held.get(key)
            if held is not None:
                if exclusive or held.is_exclusive:
                    raise _conflict_error(held)
                held._holders += 1
                return held
            lock_path = os.path.join(real, LOCK_FILE)
            fd = _open_locked(lock_path, fs)
            try:
                log_dir = cls(real, fd, key, fs)
                log_dir.marker_found = log_dir._marker_present = fs.exists(log_dir.marker_path)
                log_dir.is_exclusive = exclusive
            except BaseException as error:
                _close(fd, fs)
                if isinstance(error, OSError):
                    raise StorageError.from_os(error, "lock the directory", path=lock_path) from error
                raise
            _held[key] = log_dir
            return log_dir

    def release(self) -> None:
        """Release one hold. The last one writes the marker if it is due, then unlocks.

        StorageError if the marker cannot be written: the data is complete, but the next open finds no marker. The lock
        is released all the same.
        """
        self._release(())

    def discard(self, disposable: tuple[str, ...]) -> None:
        """Release a directory that the caller created and could not use; the last hold removes it.

        It stays if it holds more than lock file, marker and the `disposable` files.
        """
        self._release((LOCK_FILE, CLEAN_SHUTDOWN_FILE, *disposable))

    def _release(self, disposable: tuple[str, ...]) -> None:
        if os.getpid() != self._pid:
            return
        with _registry_lock:
            if self._holders == 0:
                return
            self._holders -= 1
            if self._holders:
                return
            try:
                if not (disposable and self._remove_files(disposable)):
                    self._write_marker()
            finally:
                del _held[self._key]
                fd, self._fd = self._fd, -1
                _close(fd, self._fs)
                if disposable:
                    remove_empty_directory(self.path, self._fs)

    def _remove_files(self, disposable: tuple[str, ...]) -> bool:
        """Remove the `disposable` files; return True if the directory held nothing else and they are removed."""
        try:
            if not frozenset(self._fs.names(self.path)) <= frozenset(disposable):
                return False
            for name in disposable:
                self._fs.unlink_if_exists(os.path.join(self.path, name))
        except OSError:
            return False
        return True

    def vouches_for(self, name: str) -> bool:
        """Return True if the partition's files are known to be complete.

        That is so if the marker was there when the directory was locked and no close of the partition failed since; or
        if this process closed it cleanly; or has it open (`partition_opened` then reports that).
        """
        self._check_owner()
        with _state_lock:
            if name in self._unclean:
                return False
            return self.marker_found or name in self._clean or name in self._open

    def loading_begins(self) -> None:
        """Remove the marker from disk: a crash while partitions load must not look clean (LOAD-30)."""
        self.before_first_write()
        with _state_lock:
            self._all_loaded = False

    def loading_done(self) -> None:
        """Record that all partitions are open: the marker may be written again once all are closed cleanly."""
        with _state_lock:
            self._all_loaded = True

    def withhold_marker(self) -> None:
        """Write no marker from now on: the directory is left as it is."""
        with _state_lock:
            self._all_loaded = False

    def before_first_write(self) -> None:
        """Remove the marker from disk. The caller calls this before anything in the directory changes.

        Once removed it is not looked for again. StorageError: it cannot be removed, so nothing may be written.
        """
        self._check_owner()
        with _state_lock:
            if not self._marker_present:
                return
            with os_errors("remove the clean-shutdown marker", self.marker_path):
                self._fs.unlink_if_exists(self.marker_path)
                self._fs.fsync_dir(self.path)
            self._marker_present = False

    def partition_opened(self, name: str, created: bool) -> None:
        """Record that the partition is open for writing; `created` if its directory was created for that.

        The caller calls this before the partition's files change: it removes the marker. DirectoryLocked if this
        process already has the partition open for writing.
        """
        self.before_first_write()
        with _state_lock:
            self._refuse_open_locked(name)
            # a partition created here and closed cleanly still counts as created when it is opened again
            self._open[name] = created or name in self._created
            self._clean.discard(name)
            self._created.discard(name)

    def refuse_open(self, name: str) -> None:
        """Raise DirectoryLocked if this process has the partition open for writing."""
        with _state_lock:
            self._refuse_open_locked(name)

    def _refuse_open_locked(self, name: str) -> None:
        if name in self._open:
            raise DirectoryLocked(
                f"{name} is already open for writing in this process",
                path=os.path.join(self.path, name),
                hint="use the open log (it is thread-safe), or close it first",
            )

    def partition_closed(self, name: str, clean: bool) -> None:
        """Record that the partition is closed; `clean` if all of it is on disk and no error occurred.

        After one unclean close this holder no longer writes the marker.
        """
        self._check_owner()
        with _state_lock:
            created = self._open.pop(name, False)
            if not clean:
                self._unclean.add(name)
                return
            self._clean.add(name)
            if created:
                self._created.add(name)

    def _write_marker(self) -> None:
        with _state_lock:
            is_due = self._all_loaded or (self._all_loaded is None and bool(self._clean))
            if self._marker_present or not is_due or self._open or self._unclean:
                return
            with os_errors("write the clean-shutdown marker", self.marker_path):
                if self._all_loaded or self.marker_found or self._all_created_here_locked():
                    atomic_write(self._fs, self.marker_path, MARKER)
                    self._marker_present = True

    def _all_created_here_locked(self) -> bool:
        """Return True if this process created and cleanly closed every partition directory in the data directory."""
        for name in self._fs.names(self.path):
            if name in self._created or name in NOT_PARTITIONS:
                continue
            try:
                parse_dir(name)
            except NotAPartition:
                continue
            if stat.S_ISDIR(self._fs.stat(os.path.join(self.path, name)).st_mode):
                return False
        return True

    def _check_owner(self) -> None:
        if os.getpid() != self._pid:
            raise IllegalState(
                "this directory was locked by the parent process, and a fork does not inherit the lock",
                path=self.path,
                hint="open the log in the child itself, after the parent closed it",
            )
        if self._fd < 0:
            raise IllegalState("the data directory was released", path=self.path)

    def __enter__(self) -> LogDir:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def __repr__(self) -> str:
        state = "released" if self._fd < 0 else f"held {self._holders} times"
        return f"<LogDir {self.path} {state}>"


def _conflict_error(held: LogDir) -> DirectoryLocked:
    if held.is_exclusive:
        return DirectoryLocked(
            "this process has the data directory open as a whole", path=held.path, hint="use the logs that are open"
        )
    return DirectoryLocked(
        "this process has partitions of the data directory open", path=held.path, hint="close those logs first"
    )


def is_locked(path: str | os.PathLike[str], *, fs: FileSystem = OS) -> bool:
    """Return True while a process, this one or another, holds the data directory; the lock is not taken.

    False if there is no lock file, or none that may be read. The system drops this process's lock when any descriptor
    of the file closes, so the file is opened only if this process has no lock on it.
    """
    real = os.path.realpath(path)
    with _registry_lock:
        try:
            status = fs.stat(real)
            if (status.st_dev, status.st_ino) in _held:
                return True
            fd = with_room(fs.open, os.path.join(real, LOCK_FILE), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            return _lock_holder(fd) is not None
        finally:
            _close(fd, fs)


def remove_empty_directory(path: str, fs: FileSystem) -> None:
    """Remove a directory if it is empty; errors are ignored."""
    with suppress(OSError):
        fs.rmdir(path)


def _directory_key(path: str, fs: FileSystem, create: bool) -> tuple[int, int]:
    """Return device and inode of the directory; `create` creates it with its parents."""
    with os_errors("open the data directory", path):
        if create:
            make_directories(fs, path)
        status = fs.stat(path)
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    return status.st_dev, status.st_ino


def _open_locked(path: str, fs: FileSystem) -> int:
    """Open and lock the lock file and return its descriptor; DirectoryLocked, StorageError.

    A broker that stops removes its lock file, which may happen between this open and this lock. The locked file then
    has no name and excludes no one, so it is opened again.
    """
    while True:
        try:
            fd = with_room(fs.open, path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            hint = _BACKUP_HINT if error.errno == errno.EISDIR else None
            raise StorageError.from_os(error, "open the lock file", path=path, hint=hint) from error
        try:
            _lock_file(fd, path)
            if _is_named(fd, path, fs):
                return fd
        except BaseException as error:
            _close(fd, fs)
            if isinstance(error, OSError):
                raise StorageError.from_os(error, "lock the directory", path=path) from error
            raise
        _close(fd, fs)


def _close(fd: int, fs: FileSystem) -> None:
    """Close the lock file's descriptor; the lock is released with it, even after an error (close(2))."""
    with suppress(OSError):
        fs.close(fd)


def _is_named(fd: int, path: str, fs: FileSystem) -> bool:
    try:
        return os.path.samestat(fs.fstat(fd), fs.stat(path))
    except FileNotFoundError:
        return False


def _lock_file(fd: int, path: str) -> None:
    """Take the record lock on the whole file; DirectoryLocked if another process has it."""
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        holder = _lock_holder(fd)
        owner = f" by process {holder}" if holder else " by another process"
        raise DirectoryLocked(f"the data directory is locked{owner}", path=path) from None


def _lock_holder(fd: int) -> int | None:
    """Return the id of the other process that holds the lock, 0 if the system has no number for it; None if unlocked.
    """
    request = pack_flock({"type": fcntl.F_WRLCK, "whence": os.SEEK_SET})
    try:
        found = unpack_flock(fcntl.fcntl(fd, fcntl.F_GETLK, request))
    except (OSError, struct.error):
        return None
    return None if found["type"] == fcntl.F_UNLCK else max(0, found["pid"])


def _forget_in_child() -> None:
    """Forget all held directories in a forked child: it does not inherit the parent's locks."""
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)
