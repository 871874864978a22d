"""A segment's `.log` file: batches back to back (format.md §5).

Data is read with pread and never mapped: another process may cut the file, which is a short read here
and would be the end of the process on a mapped page.
"""

from __future__ import annotations

import os
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
from kafkalog.errors import FormatError, IllegalArgument, LogClosed, ReadOnlyLog, StorageError
from kafkalog.records.tables import batch_table
from kafkalog.storage.file_slice import HEADER_BYTES, FileSlice, bad_size, clamp
from kafkalog.types import NO_TIMESTAMP, OffsetAndTimestamp, TimestampOffset
from kafkalog.util.fileio import OS, File, FileSystem

MAX_FILE_SIZE: Final = 2**31 - 1
FIRST_WINDOW: Final = 4608
"""Bytes read at first by a header walk: one index interval (4096) and the header of the batch after it."""
SMALL_WINDOW: Final = 512
LARGEST_WINDOW: Final = 256 * 1024


class FileRecords:
    """One open `.log` file. `size` is its logical length in bytes: without a preallocated tail.

    Threads: appends, truncation, rename and close belong to the owner's lock; reads and slices may run
    beside them. A slice keeps the descriptor, so `close` and `delete_if_exists` never pull it away.
    """

    __slots__ = ("_fd", "_file", "_fs", "_mutable", "_pwrite", "path", "size")

    def __init__(self, file: File, size: int, *, fs: FileSystem = OS, mutable: bool = True) -> None:
        self.path = file.path
        self.size = size
        self._file = file
        self._fs = fs
        self._mutable = mutable
        self._fd = file.fileno()
        self._pwrite: Callable[[int, Any, int], int] = fs.pwrite if mutable else partial(_refuse_write, file.path)

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
        try:
            file = fs.open_file(path, mode)
            size = file.size()
            if preallocate and mode == "create" and size == 0:
                _allocate(file, init_file_size)
        except OSError as error:
            raise StorageError.from_os(error, "open the segment", path=path) from error
        if size > MAX_FILE_SIZE:
            file.close()
            raise FormatError(
                f"the file has {size} bytes, a segment at most 2^31-1",
                path=path,
                hint="it is no Kafka segment",
            )
        return cls(file, size, fs=fs, mutable=mutable)

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
        except BaseException as error:  # an interrupt too: what it leaves must be the old file
            self._undo_append(position, error)
            raise
        return length

    def _write_rest(self, data: Any, position: int, written: int) -> int:
        """The length of `data` after a first write took only part of it (FILE-15)."""
        view = memoryview(data).cast("B")
        return written + self._file.pwrite(view[written:], position + written)

    def _undo_append(self, position: int, error: BaseException) -> None:
        """Cut the file back to `position`; StorageError for an OSError, else the caller raises on."""
        self.size = position
        if self._mutable and self._fd >= 0:
            try:
                self._file.truncate(position)
            except OSError:
                self._pwrite = self._cut_then_write
        if isinstance(error, OSError) and not isinstance(error, ReadOnlyLog):
            raise self._failure(error, "append", position) from error

    def _cut_then_write(self, fd: int, data: Any, position: int) -> int:
        """The write after an append that failed and could not be cut away: that is made good first."""
        self._file.truncate(position)
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
        try:
            if self._file.size() > size:
                self._file.truncate(size)
        except OSError as error:
            raise self._failure(error, "truncate", size) from error
        self.size = size
        self._pwrite = self._fs.pwrite
        return old - size

    def trim(self) -> None:
        """Cut what lies after the last batch: the preallocated tail."""
        self.truncate_to(self.size)

    def flush(self) -> None:
        """Return when all appended bytes are on disk; StorageError when the disk says no."""
        try:
            self._file.datasync()
        except OSError as error:
            raise self._failure(error, "flush", None) from error

    # Reading

    def read(self, position: int, size: int) -> bytes:
        """The bytes of the range, its end cut at the file's (FILE-4); IllegalArgument as for `slice`."""
        if position < 0 or size < 0 or position > self.size:
            clamp(position, size, self.size, self.path)
        size = min(size, self.size - position)
        try:
            return self._file.pread(size, position)
        except OSError as error:
            raise self._failure(error, "read", position) from error

    def read_into(self, buffer: Any, position: int) -> int:
        """The number of bytes read into the writable `buffer` from `position`, none beyond the end."""
        return self.slice(position, len(buffer)).read_into(buffer)

    def slice(self, position: int, size: int) -> FileSlice:
        """A fixed range, cut at the present end; bytes that come later are not in it (FILE-2, FILE-5).

        IllegalArgument: a negative position or size, or a position beyond the end.
        """
        if position < 0 or size < 0 or position > self.size:
            clamp(position, size, self.size, self.path)
        return FileSlice(self._file, position, min(size, self.size - position))

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
        pread = self._file.pread
        if position < 0 or position > end:
            clamp(position, 0, end, self.path)
        while end - position >= HEADER_BYTES:
            try:
                data = pread(min(window, end - position), position)
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
        try:
            self._fs.rename(self.path, path)
        except OSError as error:
            raise StorageError.from_os(error, f"rename to {os.fspath(path)}", path=self.path) from error
        self.path = self._file.path = os.fspath(path)

    def relocate(self, path: str) -> None:
        """Know that the file's directory has another name."""
        self.path = self._file.path = path

    def close(self) -> None:
        """Trim, then give the descriptor back once no slice holds it. A second call does nothing."""
        try:
            if self._mutable and self._fd >= 0:
                self.trim()
        finally:
            self.close_handlers()

    def close_handlers(self) -> None:
        """Give the descriptor back without touching the file; slices keep theirs."""
        self._fd = -1
        self._file = File(self.path, -1, self._fs)

    def delete_if_exists(self) -> bool:
        """True when the file was there and is removed; slices still read it."""
        self.close_handlers()
        try:
            return self._fs.unlink_if_exists(self.path)
        except OSError as error:
            raise StorageError.from_os(error, "delete the segment", path=self.path) from error

    @property
    def closed(self) -> bool:
        """True after `close`, `close_handlers` or `delete_if_exists`."""
        return self._fd < 0

    def _failure(self, error: OSError, doing: str, position: int | None) -> StorageError | LogClosed:
        if self._fd < 0:
            return LogClosed(f"cannot {doing}: the segment is closed", path=self.path)
        return StorageError.from_os(error, doing, path=self.path, position=position)

    def __repr__(self) -> str:
        return f"<FileRecords {self.path} {self.size} B{' closed' if self._fd < 0 else ''}>"


def _refuse_write(path: str, fd: int, data: Any, position: int) -> int:
    # no method: one that is kept would hold its object, and with it the descriptor, until a collection
    raise ReadOnlyLog("the segment was opened for reading", path=path)


def _allocate(file: File, size: int) -> None:
    """Reserve `size` bytes for a new file; on failure it is left empty, and the OSError goes on."""
    try:
        file.allocate(0, clamp(0, size, MAX_FILE_SIZE, file.path)[1])
    except OSError:
        file.truncate(0)
        raise
