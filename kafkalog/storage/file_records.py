"""A segment's `.log` file: batches back to back (format.md §5).

Data is read with pread and never mapped: another process may cut the file, which is a short read here
and would be the end of the process on a mapped page.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from kafkalog._core.scan import (
    REASON_SIZE,
    BatchHeader,
    BatchTable,
    HeaderWalk,
    find_max_timestamp,
    find_offset,
    scan,
)
from kafkalog._core.seek import NOT_HERE, find_record_by_time
from kafkalog.errors import IllegalArgument, LogClosed, ReadOnlyLog, StorageError
from kafkalog.records.tables import batch_table
from kafkalog.storage.file_slice import HEADER_BYTES, MAX_FILE_SIZE, FileSlice, bad_size, check_file_size, clamp
from kafkalog.storage.lazy_file import LazyFile
from kafkalog.types import NO_TIMESTAMP, OffsetAndTimestamp, TimestampOffset
from kafkalog.util.descriptors import DESCRIPTORS
from kafkalog.util.fileio import OS, File, FileSystem

FIRST_WINDOW: Final = 4608
"""Bytes read at first by a header walk: one index interval (4096) and the header of the batch after it."""
SMALL_WINDOW: Final = 512
LARGEST_WINDOW: Final = 256 * 1024


class _NotReady(Exception):
    """No descriptor to write to is at hand."""


class FileRecords:
    """One `.log` file. `size` is its logical length in bytes: without a preallocated tail.

    It is opened when it is used, and may be closed in between (`lazy_file.py`). An append writes to the descriptor's
    number, so from the first one on the file stays open, until `end_appends`, or until `lend` finds that its owner, by
    whose lock `guard` appends go, does nothing at the moment.

    Threads: appends, truncation, rename and close belong to the owner's lock; reads and slices may run beside them. A
    slice keeps the file, so `close` and `delete_if_exists` never pull it away.
    """

    __slots__ = (
        "__weakref__", "_appended_to", "_closed", "_cuts", "_fd", "_file", "_fs", "_lent_size", "_mutable", "_pwrite",
        "_synced_size", "guard", "path", "size",
    )  # fmt: skip

    def __init__(self, file: File, size: int, *, fs: FileSystem = OS, mutable: bool = True) -> None:
        self._begin(LazyFile(file.path, fs, "rw" if mutable else "r", file), size, fs, mutable)

    def _begin(self, file: LazyFile, size: int, fs: FileSystem, mutable: bool) -> FileRecords:
        self.path = file.path
        self.size = size
        self.guard: threading.Lock | None = None
        self._file = file
        self._fs = fs
        self._mutable = mutable
        self._closed = False
        self._cuts = 0
        self._synced_size = -1
        self._lent_size = -1
        self._fd = -1  # that of self._appended_to
        self._appended_to: File | None = None
        self._pwrite: Callable[[int, Any, int], int] = _not_ready if mutable else partial(_refuse_write, file.path)
        return self

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        fs: FileSystem = OS,
        mutable: bool = True,
        file_already_exists: bool = False,
        init_file_size: int = 0,
        preallocate: bool = False,
    ) -> FileRecords:
        """The file, open; made if it need not exist yet, at `init_file_size` when preallocating (FILE-11).

        A file that exists is as long as the system says, a preallocated tail included: after an unclean
        stop recovery has to cut that (FILE-12). StorageError when the system fails, FormatError above
        2^31-1 bytes.
        """
        mode = "r" if not mutable else "rw" if file_already_exists else "create"
        DESCRIPTORS.make_room()
        try:
            file = fs.open_file(path, mode)
            size = file.size()
            if preallocate and mode == "create" and size == 0:
                _allocate(file, init_file_size)
        except OSError as error:
            raise StorageError.from_os(error, "open the segment", path=path) from error
        try:
            check_file_size(size, path)
        except BaseException:
            file.close()
            raise
        made = cls(file, size, fs=fs, mutable=mutable)
        made._file.was_written = mutable
        made._file.share()
        return made

    @classmethod
    def listed(cls, path: str, size: int, *, fs: FileSystem = OS, is_on_disk: bool = False) -> FileRecords:
        """An existing file of that many bytes, which is not opened before it is used.

        `is_on_disk` says that a clean shutdown vouches for it: what is not written to needs no sync. FormatError above
        2^31-1 bytes.
        """
        check_file_size(size, path)
        made = cls.__new__(cls)._begin(LazyFile(path, fs), size, fs, True)
        if is_on_disk:
            made._synced_size = size
        return made

    # Writing

    def append(self, data: Any) -> int:
        """The number of bytes written: all of `data`, after the last batch.

        IllegalArgument when the file would pass 2^31-1 bytes; nothing is written. StorageError (errno
        kept) when the write fails: the file is cut back to its old size, so no part of `data` stays.
        """
        position = self.size
        length = len(data)
        if position + length > MAX_FILE_SIZE:
            raise IllegalArgument(
                f"{length} bytes do not fit: a segment has at most 2^31-1, this one {position}",
                path=self.path,
            )
        try:
            written = self._pwrite(self._fd, data, position)
            if written != length:
                length = self._write_rest(data, position, written)
            self.size = position + length
        except _NotReady:
            pass
        except BaseException as error:  # an interrupt too: what it leaves must be the old file
            self._undo_append(position, error)
            raise
        else:
            return length
        self._begin_appends()
        return self.append(data)

    def _begin_appends(self) -> None:
        """Open the file for writing by number; from here on it is closed only by `lend` and `end_appends`."""
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
        """No append is to come soon: the file may be closed without asking. The next one opens it again."""
        self._file.owner = None
        self._fd, self._appended_to = -1, None
        if self._mutable and not self._closed:
            self._pwrite = _not_ready

    def lend(self) -> bool:
        """True when the file was closed for now; False while its owner is at work, or has just been."""
        guard = self.guard
        if guard is None:
            return False
        if not guard.acquire(blocking=False):
            return False
        try:
            if self._lent_size != self.size:  # appended to since it was last asked
                self._lent_size = self.size
                return False
            if self._pwrite == self._cut_then_write or not self._file.put_away():
                return False
            self.end_appends()
            return True
        finally:
            guard.release()

    def _write_rest(self, data: Any, position: int, written: int) -> int:
        """The length of `data` after a first write took only part of it (FILE-15)."""
        view = memoryview(data).cast("B")
        return written + self._file.opened().pwrite(view[written:], position + written)

    def _undo_append(self, position: int, error: BaseException) -> None:
        """Cut the file back to `position`; StorageError for an OSError, else the caller raises on."""
        self.size = position
        if self._mutable and self._fd >= 0:
            try:
                self._file.opened().truncate(position)
            except OSError:
                self._pwrite = self._cut_then_write
        if isinstance(error, OSError) and not isinstance(error, ReadOnlyLog):
            raise self._failure(error, "append", position) from error

    def _cut_then_write(self, fd: int, data: Any, position: int) -> int:
        """The write after an append that failed and could not be cut away: that is made good first."""
        self._file.opened().truncate(position)
        self._pwrite = self._fs.pwrite
        return self._pwrite(fd, data, position)

    def truncate_to(self, size: int) -> int:
        """The number of bytes cut off; the end is then at `size`, and a preallocated tail is gone.

        IllegalArgument when `size` is negative or above the present size. The system is asked only when
        the file really is longer, so that its time stays otherwise (FILE-9).
        """
        old = self.size
        if not 0 <= size <= old:
            raise IllegalArgument(f"cannot truncate to {size}: the segment has {old} bytes", path=self.path)
        if not self._mutable:
            raise ReadOnlyLog("the segment was opened for reading", path=self.path)
        lazy = self._file
        try:
            file = lazy.opened()
            if file.size() > size:
                lazy.was_written = True
                self._cuts += 1
                self._synced_size = -1
                file.truncate(size)
        except OSError as error:
            raise self._failure(error, "truncate", size) from error
        self.size = size
        if self._fd >= 0:
            self._pwrite = self._fs.pwrite
        return old - size

    def trim(self) -> None:
        """Cut what lies after the last batch: the preallocated tail."""
        self.truncate_to(self.size)

    def flush(self) -> None:
        """Return when all appended bytes are on disk; StorageError when the disk says no.

        The system is not asked again about what was on disk before, as long as nothing was written.
        """
        size, cuts = self.size, self._cuts
        if size == self._synced_size and not self._closed:
            return
        try:
            self._file.datasync()
        except OSError as error:
            raise self._failure(error, "flush", None) from error
        if cuts == self._cuts:
            self._synced_size = size

    # Reading

    def read(self, position: int, size: int) -> bytes:
        """The bytes of the range, its end cut at the file's (FILE-4); IllegalArgument as for `slice`."""
        if position < 0 or size < 0 or position > self.size:
            clamp(position, size, self.size, self.path)
        size = min(size, self.size - position)
        file = self._file
        file.used = True
        try:
            return (file.file or file.opened()).pread(size, position)
        except OSError as error:
            raise self._failure(error, "read", position) from error

    def read_into(self, buffer: Any, position: int) -> int:
        """The number of bytes read into the writable `buffer` from `position`, none beyond the end."""
        return self.slice(position, len(buffer)).read_into(buffer)

    def slice(self, position: int, size: int) -> FileSlice:
        """A fixed range, cut at the present end; bytes that come later are not in it (FILE-2, FILE-5).

        IllegalArgument: a negative position or size, or a position beyond the end; StorageError (ENOENT) once the
        file was unlinked.
        """
        if position < 0 or size < 0 or position > self.size:
            clamp(position, size, self.size, self.path)
        file = self._file
        if file.is_gone:
            raise self._failure(file.lost(), "read", position)
        file.used = True
        return FileSlice(file, position, min(size, self.size - position))

    def tables(self, start: int = 0, end: int | None = None, *, check_crc: bool = False) -> Iterator[BatchTable]:
        """Tables of the whole batches in the file from `start` (a batch's position) to `end`."""
        stop = self.size if end is None else end
        return self.slice(start, max(0, stop - start)).tables(check_crc=check_crc)

    def batches(self, start: int = 0, end: int | None = None, *, check_crc: bool = False) -> Iterator[BatchHeader]:
        """The header of each whole batch; errors as for `FileSlice.tables`."""
        for table in self.tables(start, end, check_crc=check_crc):
            yield from table

    def search_for_offset(
        self, target: int, start_position: int = 0, window: int = FIRST_WINDOW
    ) -> tuple[int, int, int] | None:
        """(base offset, position, size) of the first batch that ends at or above offset `target`.

        The walk begins at `start_position`, which is a batch's, and reads `window` bytes at first. None when there is
        no such whole batch. CorruptRecord on a size field below 14.
        """
        found = self._walk(find_offset, target, start_position, window)
        if found is None:
            return None
        _, walk, start = found
        return walk.base_offset, start + walk.position, walk.size

    def search_for_timestamp(
        self, target_ms: int, start_position: int = 0, start_offset: int = 0, window: int = FIRST_WINDOW
    ) -> OffsetAndTimestamp | None:
        """The first record at or after time `target_ms` whose offset is at least `start_offset`.

        First in the file's order, batch by batch from `start_position`, whatever the clocks of the
        producers did. None where there is no such record. InvalidRecord for a batch that does not decode.
        """
        position = start_position
        while (found := self._walk(find_max_timestamp, target_ms, position, window)) is not None:
            data, walk, start = found
            at = start + walk.position
            if walk.position + walk.size > len(data):
                data, start = self.read(at, walk.size), at
            offset, timestamp, epoch = find_record_by_time(data, at - start, target_ms, start_offset)
            if offset >= 0:
                return OffsetAndTimestamp(offset, timestamp, epoch)
            if offset == NOT_HERE:
                position = at + walk.size
                continue
            table = scan(data, at - start, check_crc=False, file_mode=True, base_position=start, max_batches=1)
            if not len(table):
                return None  # cut shorter under our feet
            records = batch_table(data, table, 0, base_position=start, path=self.path)
            row = records.find_timestamp(target_ms, start_offset)
            if row >= 0:
                return OffsetAndTimestamp(records.offsets[row], records.timestamps[row], table.leader_epoch(0))
            position = at + walk.size
        return None

    def largest_timestamp_after(self, position: int) -> TimestampOffset:
        """The largest batch timestamp from `position` on, with the last offset of the first such batch.

        Both are -1 where no batch follows, or none has a time.
        """
        largest, offset = NO_TIMESTAMP, -1
        for table in self.tables(position):
            if table.max_timestamp > largest:
                largest, offset = table.max_timestamp, table.offset_of_max_timestamp
        return TimestampOffset(largest, offset)

    def _walk(
        self, find: Callable[[Any, int], HeaderWalk], target: int, position: int, window: int
    ) -> tuple[bytes, HeaderWalk, int] | None:
        """Where `find` succeeds first: the window's bytes, the walk and the window's position."""
        end = self.size
        file = self._file
        file.used = True
        if position < 0 or position > end:
            clamp(position, 0, end, self.path)
        while end - position >= HEADER_BYTES:
            try:
                data = (file.file or file.opened()).pread(min(window, end - position), position)
            except OSError as error:
                raise self._failure(error, "search", position) from error
            walk = find(data, target)
            if walk.position >= 0:
                return (data, walk, position) if position + walk.position + walk.size <= end else None
            if walk.stop_reason == REASON_SIZE:
                raise bad_size(walk.stop_value, self.path, position + walk.resume_position)
            if walk.resume_position == 0:  # not even one header: the file ends here
                return None
            position += walk.resume_position
            if walk.resume_position <= len(data):
                window = min(window * 4, LARGEST_WINDOW)
            elif find is find_offset:  # a batch longer than the window: the next one probably is too
                window = SMALL_WINDOW
            else:  # its records will be wanted
                window = min(walk.resume_position + SMALL_WINDOW, LARGEST_WINDOW)
        return None

    # The file

    def last_modified_ms(self) -> int:
        """The file's time in ms: a segment's largest timestamp where no index knows one."""
        try:
            return self._file.stat().st_mtime_ns // 1_000_000
        except OSError as error:
            raise self._failure(error, "look at", None) from error

    def rename_to(self, path: str | os.PathLike[str]) -> None:
        """Give the file another name; it stays open."""
        target = os.fspath(path)
        try:
            self._file.rename_to(target)
        except OSError as error:
            raise StorageError.from_os(error, f"rename to {target}", path=self.path) from error
        self.path = target

    def will_be(self, path: str) -> None:
        """Know that the file's directory is about to get another name; `relocate` says that it has it, or has not."""
        self._file.will_be(path)

    def relocate(self, path: str) -> None:
        """Know what the file's name is, now that its directory was renamed."""
        self._file.relocate(path)
        self.path = path

    def close(self) -> None:
        """Trim, then give the descriptor back once no slice holds it. A second call does nothing."""
        try:
            if self._mutable and not self._closed and self._file.was_written:
                self.trim()
        finally:
            self.close_handlers()

    def close_handlers(self) -> None:
        """Give the descriptor back without touching the file; slices keep theirs."""
        self._closed = True
        self._part_with_name(LazyFile(self.path, self._fs, "", File(self.path, -1, self._fs)))
        if self._mutable:
            self._pwrite = self._fs.pwrite

    def _part_with_name(self, instead: LazyFile) -> LazyFile | None:
        """Let go of the file, which may not be looked for by its name any more; slices that are out keep it open.

        Returns it where there are such.
        """
        self.end_appends()
        held = weakref.ref(self._file)
        self._file = instead
        file = held()
        if file is not None:
            file.pin()
        return file

    def unlink(self) -> bool:
        """True when the file was there and is removed; slices still read it.

        Not closed. Where there is no slice, all else that is asked for is StorageError (ENOENT): who comes with an
        old state of the log begins again with the new one.
        """
        if not self._closed:
            gone = LazyFile(self.path, self._fs, "")
            gone.is_gone = True
            self._file = self._part_with_name(gone) or gone
        try:
            return self._fs.unlink_if_exists(self.path)
        except OSError as error:
            raise StorageError.from_os(error, "delete the segment", path=self.path) from error

    @property
    def is_gone(self) -> bool:
        """True once the file was unlinked, and nobody reads it."""
        return self._file.is_gone

    def delete_if_exists(self) -> bool:
        """True when the file was there and is removed; slices still read it."""
        self.close_handlers()
        return self.unlink()

    @property
    def closed(self) -> bool:
        """True after `close`, `close_handlers` or `delete_if_exists`."""
        return self._closed

    def _failure(self, error: OSError, doing: str, position: int | None) -> StorageError | LogClosed:
        if self._closed:
            return LogClosed(f"cannot {doing}: the segment is closed", path=self.path)
        return StorageError.from_os(error, doing, path=self.path, position=position)

    def __repr__(self) -> str:
        return f"<FileRecords {self.path} {self.size} B{' closed' if self._closed else ''}>"


def _refuse_write(path: str, fd: int, data: Any, position: int) -> int:
    # no method: one that is kept would hold its object, and with it the descriptor, until a collection
    raise ReadOnlyLog("the segment was opened for reading", path=path)


def _not_ready(fd: int, data: Any, position: int) -> int:
    raise _NotReady


def _allocate(file: File, size: int) -> None:
    """Reserve `size` bytes for a new file; on failure it is left empty, and the OSError goes on."""
    try:
        file.allocate(0, clamp(0, size, MAX_FILE_SIZE, file.path)[1])
    except OSError:
        file.truncate(0)
        raise
