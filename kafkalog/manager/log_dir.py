"""A data directory held for writing: its `.lock`, and the marker of a clean shutdown (format.md §8).

The lock is a POSIX record lock, the kind a broker takes; flock would not exclude one. The system drops
such a lock when *any* descriptor of the file closes in the process, so a process opens the file once for
each directory: the first `LogDir.acquire` does, the later ones count, the last `release` closes it. It is
not inherited over a fork either, so everything here refuses to work in a forked child.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from typing import Final

from kafkalog.errors import DirectoryLocked, IllegalState, NotAPartition, StorageError
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE, LOCK_FILE, NOT_PARTITIONS, parse_dir
from kafkalog.util.descriptors import with_room
from kafkalog.util.fileio import OS, FileSystem, atomic_write, make_directories
from kafkalog.util.guards import guard
from kafkalog.util.system_calls import pack_flock, unpack_flock

MARKER: Final = b'{"version":0,"brokerEpoch":-1}'
"""Content of the marker we write: clean, by nobody who has a broker epoch."""

_OF_A_BACKUP: Final = "this is a backup, which nobody writes to: `kafkalog restore` makes a data directory of it"

_registry_lock: Final = guard()  # over taking a directory's lock, and giving it back with its marker synced
_state_lock: Final = guard()  # of all directories; over the sync of a marker that goes or comes, else for moments
_held: dict[tuple[int, int], LogDir] = {}  # by device and inode; guarded by _registry_lock


class LogDir:
    """One data directory that this process holds for writing; made by `acquire`, ended by `release`.

    The marker vouches for what lies in the directory. It goes before the first change, and the last release
    writes it again if every partition was closed well and the rest is vouched for: the marker was there, or
    every partition in the directory was made by this process. Who loads all partitions says so (`loading_begins`,
    `loading_done`): in between nothing is vouched for, afterwards everything is.

    Threads: safe. Fork: a child's calls raise IllegalState; its `release` does nothing.
    """

    def __init__(self, path: str, fd: int, key: tuple[int, int], fs: FileSystem) -> None:
        self.path = path
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
        self._whole: bool | None = None  # all partitions are open here; False: not yet, or not any more
        self.marker_found = False
        self.is_exclusive = False

    @classmethod
    def acquire(
        cls, path: str | os.PathLike[str], *, fs: FileSystem = OS, create: bool = False, exclusive: bool = False
    ) -> LogDir:
        """The directory, locked for this process; each `acquire` needs one `release`.

        `create` makes the directory (and its parents) where it is missing. `exclusive`: for one who answers for all
        partitions, beside whom nobody in this process has the directory. DirectoryLocked: another process, or one
        such, holds it. StorageError: it is missing, no directory, or cannot be written to.
        """
        real = os.path.realpath(path)
        with _registry_lock:
            key = _directory_key(real, fs, create)
            held = _held.get(key)
            if held is not None:
                if exclusive or held.is_exclusive:
                    raise _held_as_a_whole(held)
                held._holders += 1
                return held
            lock_path = os.path.join(real, LOCK_FILE)
            fd = _open_locked(lock_path, fs)
            try:
                made = cls(real, fd, key, fs)
                made.marker_found = made._marker_present = fs.exists(made.marker_path)
                made.is_exclusive = exclusive
            except BaseException as error:
                _close(fd, fs)
                if isinstance(error, OSError):
                    raise StorageError.from_os(error, "lock the directory", path=lock_path) from error
                raise
            _held[key] = made
            return made

    def release(self) -> None:
        """Give up one hold. The last one writes the marker where that is due, then unlocks.

        StorageError when the marker cannot be written: the data is whole, but the next open finds no
        voucher. The lock is given back all the same.
        """
        self._give_up(())

    def discard(self, worthless: tuple[str, ...]) -> None:
        """`release` for one who made the directory and could not use it: the last hold takes it away again.

        It stays where it holds more than lock file, marker and the `worthless` files.
        """
        self._give_up((LOCK_FILE, CLEAN_SHUTDOWN_FILE, *worthless))

    def _give_up(self, worthless: tuple[str, ...]) -> None:
        if os.getpid() != self._pid:
            return
        with _registry_lock:
            if self._holders == 0:
                return
            self._holders -= 1
            if self._holders:
                return
            try:
                if not (worthless and self._emptied(worthless)):
                    self._write_marker()
            finally:
                del _held[self._key]
                fd, self._fd = self._fd, -1
                _close(fd, self._fs)
                if worthless:
                    remove_empty_directory(self.path, self._fs)

    def _emptied(self, worthless: tuple[str, ...]) -> bool:
        """True when there was nothing but `worthless` files in the directory, and they are gone."""
        try:
            if not frozenset(self._fs.names(self.path)) <= frozenset(worthless):
                return False
            for name in worthless:
                self._fs.unlink_if_exists(os.path.join(self.path, name))
        except OSError:
            return False
        return True

    def vouches_for(self, name: str) -> bool:
        """True when the partition's files are known to be whole.

        That is: the marker was there when the directory was locked and no close of the partition failed
        since; or this process closed it well; or has it open (which `partition_opened` then says).
        """
        self._check_owner()
        with _state_lock:
            if name in self._unclean:
                return False
            return self.marker_found or name in self._clean or name in self._open

    def loading_begins(self) -> None:
        """Return when no marker is on disk: a crash while partitions load must not look clean (LOAD-30)."""
        self.before_first_write()
        with _state_lock:
            self._whole = False

    def loading_done(self) -> None:
        """All partitions of the directory are open: when all are closed well, the marker may come back."""
        with _state_lock:
            self._whole = True

    def forsake(self) -> None:
        """Write no marker any more: the directory is given up as it is."""
        with _state_lock:
            self._whole = False

    def before_first_write(self) -> None:
        """Return when no marker is on disk: call it before anything in the directory changes.

        Once removed it is not looked for again. StorageError: it cannot be removed, so nothing may be written.
        """
        self._check_owner()
        with _state_lock:
            if not self._marker_present:
                return
            try:
                self._fs.unlink_if_exists(self.marker_path)
                self._fs.fsync_dir(self.path)
            except OSError as error:
                raise StorageError.from_os(error, "remove the clean-shutdown marker", path=self.marker_path) from error
            self._marker_present = False

    def partition_opened(self, name: str, created: bool) -> None:
        """Note that the partition is open for writing; `created` when its directory was made for that.

        Call it before its files change: it removes the marker. DirectoryLocked when this process has the
        partition open for writing already.
        """
        self.before_first_write()
        with _state_lock:
            if name in self._open:
                raise DirectoryLocked(
                    f"{name} is open for writing in this process already",
                    path=os.path.join(self.path, name),
                    hint="use the log that is open (it is thread-safe), or close it first",
                )
            # what was made here and closed well stays ours when it is opened again
            self._open[name] = created or name in self._created
            self._clean.discard(name)
            self._created.discard(name)

    def partition_closed(self, name: str, clean: bool) -> None:
        """Note that the partition is closed; `clean` when all of it is on disk and no error was met.

        One unclean close, and the marker is not written any more by this holder.
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
            touched = self._whole or (self._whole is None and bool(self._clean))
            if self._marker_present or not touched or self._open or self._unclean:
                return
            try:
                if self._whole or self.marker_found or self._all_made_here_locked():
                    atomic_write(self._fs, self.marker_path, MARKER)
                    self._marker_present = True
            except OSError as error:
                raise StorageError.from_os(error, "write the clean-shutdown marker", path=self.marker_path) from error

    def _all_made_here_locked(self) -> bool:
        """True when every partition directory in the data directory was made and closed well by this process."""
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


def _held_as_a_whole(held: LogDir) -> DirectoryLocked:
    if held.is_exclusive:
        return DirectoryLocked(
            "this process has the data directory open as a whole", path=held.path, hint="use the logs that it has open"
        )
    return DirectoryLocked(
        "this process has partitions of the data directory open", path=held.path, hint="close those logs first"
    )


def is_locked(path: str | os.PathLike[str], *, fs: FileSystem = OS) -> bool:
    """True while a process, this one or another, holds the data directory; asked without taking the lock.

    False where there is no lock file, or none that may be read. The system drops this process's lock when any
    descriptor of the file closes, so the file is opened only where this process has no lock on it.
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
    """Takes a directory away if nothing is in it; one that stays is no harm."""
    try:
        fs.rmdir(path)
    except OSError:
        pass


def _directory_key(path: str, fs: FileSystem, create: bool) -> tuple[int, int]:
    """Device and inode of the directory, made with its parents where `create` says so."""
    try:
        if create:
            make_directories(fs, path)
        status = fs.stat(path)
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    except OSError as error:
        raise StorageError.from_os(error, "open the data directory", path=path) from error
    return status.st_dev, status.st_ino


def _open_locked(path: str, fs: FileSystem) -> int:
    """The descriptor of the lock file, locked; DirectoryLocked, StorageError.

    A broker that stops removes its lock file, which may happen between our open and our lock: then what we locked
    has no name any more and excludes nobody, so it is opened anew.
    """
    while True:
        try:
            fd = with_room(fs.open, path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            hint = _OF_A_BACKUP if error.errno == errno.EISDIR else None
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
    """Give the lock file's descriptor back; the lock goes with it, whatever the system says (close(2))."""
    try:
        fs.close(fd)
    except OSError:
        pass


def _is_named(fd: int, path: str, fs: FileSystem) -> bool:
    try:
        return os.path.samestat(fs.fstat(fd), fs.stat(path))
    except FileNotFoundError:
        return False


def _lock_file(fd: int, path: str) -> None:
    """Take the record lock on the whole file; DirectoryLocked when another process has it."""
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        holder = _lock_holder(fd)
        by = f" by process {holder}" if holder else " by another process"
        raise DirectoryLocked(f"the data directory is locked{by}", path=path) from None


def _lock_holder(fd: int) -> int | None:
    """The id of the other process that holds the lock, 0 where the system has no number for it; None: nobody does."""
    asked = pack_flock({"type": fcntl.F_WRLCK, "whence": os.SEEK_SET})
    try:
        found = unpack_flock(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    except (OSError, struct.error):
        return None
    return None if found["type"] == fcntl.F_UNLCK else max(0, found["pid"])


def _forget_in_child() -> None:
    """In a forked child: none of the parent's locks on files are held."""
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)
