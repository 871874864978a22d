"""A segment's `.log` file: consecutive batches (format.md §5), written, truncated, renamed and closed."""

from __future__ import annotations

import copy
import os
import threading
import weakref
from collections.abc import Callable
from errno import ENOENT
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkalog._core.log.log_lock import LogLock
from kafkalog.errors import IllegalArgument, ReadOnlyLog, StorageError
from kafkalog.storage.file_slice import MAX_FILE_SIZE, check_file_size, clamp
from kafkalog.storage.lazy_file import LazyFile
from kafkalog.storage.readable_records import ReadableRecords
from kafkalog.util.descriptors import DESCRIPTORS, TOO_MANY_FILES
from kafkalog.util.fileio import OS, File, FileSystem
from kafkalog.util.guards import guard
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.system_calls import CANNOT

if TYPE_CHECKING:
    from kafkalog.util.buffers import Data

_FILL_BYTES: Final = 1 << 20
_creation_lock: Final = guard()


class _NotReady(Exception):
    """No descriptor is open for writing."""


class FileRecords(ReadableRecords):
    """One `.log` file. `size` is its logical length in bytes, without a preallocated tail.

    It is opened on use and may be closed in between (`lazy_file.py`). An append writes by descriptor number, so from
    the first one on the file stays open until `end_appends`, or until `try_close` closes it while its owner is idle.
    Appends run under the owner's lock, `guard`.

    Threads: appends, truncation, rename and close need the owner's lock; reads and slices may run in parallel. A
    slice holds the file, so it stays readable after `close` and `delete_if_exists`.
    """

    __slots__ = (
        "__weakref__", "_appended_to", "_fd", "_fs", "_idle_size", "_mutable", "_pwrite", "_serial_sync",
        "_synced_size", "_truncations", "guard",
    )  # fmt: skip

    def __init__(self, file: File, size: int, *, fs: FileSystem = OS, mutable: bool = True) -> None:
        self._begin(LazyFile(file.path, fs, "rw" if mutable else "r", file), size, fs, mutable)

    def _begin(self, file: LazyFile, size: int, fs: FileSystem, mutable: bool) -> FileRecords:
        self.path = file.path
        self.size = size
        self.guard: LogLock | None = None
        self._file = file
        self._fs = fs
        self._mutable = mutable
        self._closed = False
        self._truncations = 0
        self._serial_sync: SerialSync | None = None  # most segments are never synced
        self._synced_size = -1
        self._idle_size = -1
        self._fd = -1  # descriptor of self._appended_to
        self._appended_to: File | None = None
        self._pwrite: Callable[[int, Data, int], int] = _not_ready if mutable else partial(_refuse_write, file.path)
        return self

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        fs: FileSystem = OS,
        mutable: bool = True,
        file_already_exists: bool = False,
        preallocated_bytes: int = 0,
    ) -> FileRecords:
        """Open the file; create it unless it must exist, with `preallocated_bytes` of space (FILE-11).

        The size of an existing file is its length, including a preallocated tail: after an unclean shutdown recovery
        has to cut that (FILE-12). StorageError if the system fails, FormatError above 2^31-1 bytes.
        """
        mode = "r" if not mutable else "rw" if file_already_exists else "create"
        DESCRIPTORS.make_room()
        try:
            file = fs.open_file(path, mode)
            size = file.size()
            if preallocated_bytes and mode == "create" and size == 0:
                _allocate(file, preallocated_bytes)
        except OSError as error:
            raise StorageError.from_os(error, "open the segment", path=path) from error
        try:
            check_file_size(size, path)
        except BaseException:
            file.close()
            raise
        records = cls(file, size, fs=fs, mutable=mutable)
        records._file.was_written = mutable
        records._file.share()
        return records

    @classmethod
    def create(cls, path: str, *, fs: FileSystem = OS, preallocated_bytes: int = 0) -> FileRecords:
        """Create an empty file, which stays closed until it is used.

        Parameters and errors as for `open`; StorageError (EEXIST) if the file exists.
        """
        try:
            with fs.open_file(path, "exclusive") as file:
                if preallocated_bytes:
                    _allocate(file, preallocated_bytes)
        except OSError as error:
            raise StorageError.from_os(error, "create the segment", path=path) from error
        return cls.listed(path, 0, fs=fs)

    @classmethod
    def listed(cls, path: str, size: int, *, fs: FileSystem = OS, is_on_disk: bool = False) -> FileRecords:
        """Return an existing file of `size` bytes, which is not opened before it is used.

        `is_on_disk` says that a clean shutdown has synced it: it needs no sync until it is written. FormatError
        above 2^31-1 bytes.
        """
        check_file_size(size, path)
        records = cls.__new__(cls)._begin(LazyFile(path, fs), size, fs, True)
        if is_on_disk:
            records._synced_size = size
        return records

    # Writing

    def append(self, data: Data) -> int:
        """Append all of `data` after the last batch and return the number of bytes written.

        IllegalArgument if the file would exceed 2^31-1 bytes; nothing is written. StorageError (errno kept) if the
        write fails: the file is truncated to its old size, so no part of `data` stays.
        """
        position = self.size
        length = len(data)
        if position + length > MAX_FILE_SIZE:
            raise IllegalArgument(
                f"{length} bytes do not fit: the segment has {position} of at most 2^31-1",
                path=self.path,
            )
        try:
            written = self._pwrite(self._fd, data, position)
            if written != length:
                length = self._write_rest(data, position, written)
            self.size = position + length
        except _NotReady:
            pass
        except BaseException as error:  # also an interrupt: it must leave the old file
            self._undo_append(position, error)
            raise
        else:
            return length
        self._begin_appends()
        return self.append(data)

    def _begin_appends(self) -> None:
        """Open the file for writes by descriptor number; from here on only `try_close` and `end_appends` close it."""
        file = self._file
        file.owner = weakref.ref(self)
        file.was_written = True
        try:
            self._appended_to = opened = file.opened()
        except OSError as error:
            raise self._failure(error, "open", None) from error
        self._fd = opened.fileno()
        self._pwrite = self._fs.pwrite

    def end_appends(self) -> None:
        """Allow the file to be closed without asking the owner; the next append opens it again."""
        self._file.owner = None
        self._fd, self._appended_to = -1, None
        if self._mutable and not self._closed:
            self._pwrite = _not_ready

    def try_close(self) -> bool:
        """Close the file for now; return False if its owner is using it or has used it since the last call."""
        guard = self.guard
        if guard is None:
            return False
        if not guard.acquire(blocking=False):
            return False
        try:
            if self._idle_size != self.size:  # appended to since the last call
                self._idle_size = self.size
                return False
            if self._pwrite == self._truncate_then_write or not self._file.close_for_now():
                return False
            self.end_appends()
            return True
        finally:
            guard.release()

    def _write_rest(self, data: Data, position: int, written: int) -> int:
        """Write the rest of `data` after a partial write, and return the total length (FILE-15)."""
        view = memoryview(data).cast("B")
        return written + self._file.opened().pwrite(view[written:], position + written)

    def _undo_append(self, position: int, error: BaseException) -> None:
        """Truncate the file to `position`; raise StorageError for an OSError, else the caller re-raises `error`."""
        self.size = position
        if self._mutable and self._fd >= 0:
            try:
                self._file.opened().truncate(position)
            except OSError:
                self._pwrite = self._truncate_then_write
        if isinstance(error, OSError) and not isinstance(error, ReadOnlyLog):
            raise self._failure(error, "append", position) from error

    def _truncate_then_write(self, fd: int, data: Data, position: int) -> int:
        """Remove the remains of a failed append, then write `data`."""
        self._file.opened().truncate(position)
        self._pwrite = self._fs.pwrite
        return self._pwrite(fd, data, position)

    def truncate_to(self, size: int) -> int:
        """Truncate the file to `size`, with any preallocated tail, and return the number of bytes cut off.

        IllegalArgument if `size` is negative or above the current size. The system call is made only if the file
        really is longer, so that its modification time stays otherwise (FILE-9).
        """
        old = self.size
        if not 0 <= size <= old:
            raise IllegalArgument(f"cannot truncate to {size}: the segment has {old} bytes", path=self.path)
        if not self._mutable:
            raise ReadOnlyLog("the segment is open for reading only", path=self.path)
        lazy = self._file
        try:
            file = lazy.opened()
            if file.size() > size:
                lazy.was_written = True
                self._truncations += 1
                self._synced_size = -1
                file.truncate(size)
        except OSError as error:
            raise self._failure(error, "truncate", size) from error
        self.size = size
        if self._fd >= 0:
            self._pwrite = self._fs.pwrite
        return old - size

    def trim(self) -> None:
        """Cut off the preallocated tail after the last batch."""
        self.truncate_to(self.size)

    def flush(self) -> None:
        """Sync all appended bytes to disk; StorageError if that fails.

        Return without a system call if nothing was written since the last sync. After a failed sync every later one
        fails.
        """
        if not self._is_synced():
            self.serial_sync.run(self._sync)

    @property
    def serial_sync(self) -> SerialSync:
        """Runs the syncs of the segment's files one at a time."""
        found = self._serial_sync
        if found is None:
            with _creation_lock:
                found = self._serial_sync
                if found is None:
                    self._serial_sync = found = SerialSync()
        return found

    def _is_synced(self) -> bool:
        return self.size == self._synced_size and not self._closed

    def _sync(self) -> None:
        if self._is_synced():  # by the thread that this one has waited for
            return
        size, truncations = self.size, self._truncations
        try:
            self._file.datasync()
        except OSError as error:
            raise self._failure(error, "flush", None) from error
        if truncations == self._truncations:
            self._synced_size = size
            if self._file.has_probe:
                self._dismiss_probe(size)

    def _dismiss_probe(self, size: int) -> None:
        """Release the probe's mapping if all data is synced and no one writes, since rolled segments are numerous."""
        guard = self.guard
        if guard is None:
            return
        with deferred_interrupts():
            if guard.acquire(blocking=False):
                try:
                    if self.size == size and self._appended_to is None:
                        self._file.dismiss_probe()
                finally:
                    guard.release()

    # The file

    def rename_to(self, path: str | os.PathLike[str]) -> None:
        """Rename the file; it stays open."""
        target = os.fspath(path)
        try:
            self._file.rename_to(target)
        except OSError as error:
            raise StorageError.from_os(error, f"rename to {target}", path=self.path) from error
        self.path = target

    def will_be(self, path: str) -> None:
        """Record that the file's directory is about to be renamed; `relocate` reports the outcome."""
        self._file.will_be(path)

    def relocate(self, path: str) -> None:
        """Set the file's path after its directory was renamed."""
        self._file.relocate(path)
        self.path = path

    def close(self) -> None:
        """Trim the file; its descriptor is closed when no slice holds it. A second call does nothing."""
        try:
            if self._mutable and not self._closed and self._file.was_written:
                self.trim()
        finally:
            self.close_handlers()

    def close_handlers(self) -> None:
        """Release the descriptor without changing the file; slices keep theirs."""
        self._release(has_name=True)

    def _release(self, *, has_name: bool) -> None:
        self._closed = True
        self._detach(LazyFile(self.path, self._fs, "", File(self.path, -1, self._fs)), has_name=has_name)
        if self._mutable:
            self._pwrite = self._fs.pwrite

    def _detach(self, instead: LazyFile, *, has_name: bool) -> LazyFile | None:
        """Detach the file, which must no longer be opened by name; existing slices keep it open.

        Return it if such slices exist.
        """
        self.end_appends()
        held = weakref.ref(self._file)
        self._file = instead
        file = held()
        if file is not None:
            file.pin(has_name=has_name)
        return file

    def unlink(self) -> bool:
        """Delete the file and return True if it existed; existing slices can still read it.

        The object is not closed. Without slices, every further access raises StorageError (ENOENT): a reader with an
        old state of the log retries with the new one.
        """
        if not self._closed:
            unlinked = LazyFile(self.path, self._fs, "")
            unlinked.is_gone = True
            self._file = self._detach(unlinked, has_name=False) or unlinked
        try:
            return self._fs.unlink_if_exists(self.path)
        except OSError as error:
            raise StorageError.from_os(error, "delete the segment", path=self.path) from error

    @property
    def is_gone(self) -> bool:
        """True if the file was unlinked and no one reads it."""
        return self._file.is_gone

    def delete_if_exists(self) -> bool:
        """Close and delete the file; return True if it existed. Existing slices can still read it."""
        self._release(has_name=False)
        return self.unlink()

    def __repr__(self) -> str:
        return f"<FileRecords {self.path} {self.size} B{' closed' if self._closed else ''}>"


def _refuse_write(path: str, fd: int, data: Data, position: int) -> int:
    # a function, since a stored method would hold its object, and with it the descriptor, until a collection
    raise ReadOnlyLog("the segment is open for reading only", path=path)


def _not_ready(fd: int, data: Data, position: int) -> int:
    raise _NotReady


def _allocate(file: File, size: int) -> None:
    """Reserve `size` bytes for a new file; on failure leave it empty and re-raise the OSError.

    Zeros are written where space cannot be reserved: macOS, and musl on a file system without fallocate.
    """
    reserved = clamp(0, size, MAX_FILE_SIZE, file.path)[1]
    try:
        try:
            file.allocate(0, reserved)
        except OSError as error:
            if error.errno not in CANNOT:
                raise
            for position in range(0, reserved, _FILL_BYTES):
                file.pwrite(bytes(min(_FILL_BYTES, reserved - position)), position)
    except OSError:
        file.truncate(0)
        raise


_NOTHING_LOST: Final = TOO_MANY_FILES | {ENOENT}  # the file could not be opened


class SerialSync:
    """Runs one sync of the same files at a time; after a failed one, every later one raises its error.

    Of two threads that sync a file at once, Linux reports a failed write to the first that asks, and success to the
    other, whose records are lost as well. A later sync succeeds, too.

    Threads: any. The lock is reentrant, since a signal handler may flush while the main thread does.
    """

    __slots__ = ("_failure", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._failure: OSError | None = None  # guarded by self._lock

    def run(self, sync: Callable[[], None]) -> None:
        """Call `sync` after those in progress; raise the error of the first that failed."""
        with self._lock:
            if self._failure is not None:
                raise copy.copy(self._failure)
            try:
                sync()
            except OSError as error:
                if error.errno not in _NOTHING_LOST:
                    self._failure = copy.copy(error)  # without the traceback, which holds open files
                raise
