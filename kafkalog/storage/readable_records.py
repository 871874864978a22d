"""Reading a segment's `.log` file: ranges, header walks, searches by offset and by time.

Data is read with pread and never mapped. If another process truncates the file, a read returns fewer bytes; on a
mapped page it would kill this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from kafkalog._core.batch.pick import NOT_HERE, find_record_by_time
from kafkalog._core.batch.scan import (
    REASON_SIZE,
    BatchHeader,
    BatchTable,
    HeaderWalk,
    find_max_timestamp,
    find_offset,
    scan,
)
from kafkalog.errors import CorruptRecord, LogClosed, StorageError
from kafkalog.records.tables import batch_table
from kafkalog.storage.file_slice import HEADER_BYTES, HINT, FileSlice, bad_size, clamp, is_worth_reading
from kafkalog.storage.lazy_file import LazyFile
from kafkalog.types import NO_TIMESTAMP, OffsetAndTimestamp, TimestampOffset
from kafkalog.util.fileio import File
from kafkalog.util.waiting import AT_ONCE

if TYPE_CHECKING:
    from kafkalog.util.buffers import Data

FIRST_WINDOW: Final = 4608
"""Bytes read first by a header walk: one index interval (4096) and the header of the following batch."""
SMALL_WINDOW: Final = 512
LARGEST_WINDOW: Final = 256 * 1024


class ReadableRecords:
    """Read methods of `FileRecords`: `size` bytes of consecutive batches, in a file that may be closed and reopened.

    Threads: any, in parallel with the owner.
    """

    __slots__ = ("_closed", "_file", "path", "size")
    path: str
    size: int
    _closed: bool
    _file: LazyFile

    def read(self, position: int, size: int) -> bytes:
        """Return the bytes of the range, up to the file's end (FILE-4); IllegalArgument as for `slice`."""
        if position < 0 or size < 0 or position > self.size:
            clamp(position, size, self.size, self.path)
        size = min(size, self.size - position)
        file = self._file
        file.used = True
        try:
            return (file.file or file.opened()).pread(size, position)
        except OSError as error:
            raise self._failure(error, "read", position) from error

    def read_into(self, buffer: Data, position: int) -> int:
        """Read into `buffer` from `position`, up to the end; return the number of bytes. Raises as `slice` does.

        A scan calls it once for each chunk, each time with a cold instruction cache.
        """
        if position < 0 or position > self.size:
            clamp(position, 0, self.size, self.path)
        file, room = self._file, self.size - position
        if file.is_gone:
            raise self._failure(file.lost(), "read", position)
        file.used = True
        try:
            target_buffer = buffer if len(buffer) <= room else memoryview(buffer)[:room]
            return (file.file or file.opened()).pread_into(target_buffer, position)
        except OSError as error:
            raise self._failure(error, "read", position) from error

    def slice(self, position: int, size: int) -> FileSlice:
        """Return a fixed range, up to the current end; later bytes are not included (FILE-2, FILE-5).

        IllegalArgument for a negative position or size, or a position beyond the end; StorageError (ENOENT) after
        the file was unlinked.
        """
        if position < 0 or size < 0 or position > self.size:
            clamp(position, size, self.size, self.path)
        file = self._file
        if file.is_gone:
            raise self._failure(file.lost(), "read", position)
        file.used = True
        return FileSlice(file, position, min(size, self.size - position))

    def opened(self) -> File:
        """Return the open file, for a reader of the whole file; StorageError."""
        try:
            return self._file.opened()
        except OSError as error:
            raise self._failure(error, "open", None) from error

    def tables(self, start: int = 0, end: int | None = None, *, check_crc: bool = False) -> Iterator[BatchTable]:
        """Yield tables of the complete batches in the file from `start` (a batch's position) to `end`."""
        stop = self.size if end is None else end
        return self.slice(start, max(0, stop - start)).tables(check_crc=check_crc)

    def batches(self, start: int = 0, end: int | None = None, *, check_crc: bool = False) -> Iterator[BatchHeader]:
        """Yield the header of each complete batch; raises as `FileSlice.tables` does."""
        for table in self.tables(start, end, check_crc=check_crc):
            yield from table

    def search_for_offset(
        self, target: int, start_position: int = 0, window: int = FIRST_WINDOW
    ) -> tuple[int, int, int] | None:
        """Return (base offset, position, size) of the first batch that ends at or above offset `target`.

        The walk begins at `start_position`, which is a batch's, and reads `window` bytes first. None if there is no
        such complete batch. CorruptRecord for a size field below 14.
        """
        found = self._walk(find_offset, target, start_position, window)
        if found is None:
            return None
        _, walk, start = found
        return walk.base_offset, start + walk.position, walk.size

    def search_for_timestamp(
        self, target_ms: int, start_position: int = 0, start_offset: int = 0
    ) -> OffsetAndTimestamp | None:
        """Return the first record at or after time `target_ms` whose offset is at least `start_offset`.

        First means in file order, batch by batch from `start_position`, even if the producers' clocks differ. None
        if there is no such record. InvalidRecord for a batch that cannot be decoded, CorruptRecord for one of more
        than 16 MiB that does not match its checksum.
        """
        position = start_position
        while (found := self._walk(find_max_timestamp, target_ms, position, FIRST_WINDOW)) is not None:
            data, walk, start = found
            at = start + walk.position
            if walk.position + walk.size > len(data):
                if not is_worth_reading(self._file, at, walk.size):
                    what = f"the batch of {walk.size} bytes does not match its CRC"
                    raise CorruptRecord(what, path=self.path, offset=walk.base_offset, position=at, hint=HINT)
                data, start = self.read(at, walk.size), at
            offset, timestamp, epoch = find_record_by_time(data, at - start, target_ms, start_offset)
            if offset >= 0:
                return OffsetAndTimestamp(offset, timestamp, epoch)
            if offset == NOT_HERE:
                position = at + walk.size
                continue
            table = scan(data, at - start, check_crc=False, file_mode=True, base_position=start, max_batches=1)
            if not len(table):
                return None  # truncated during the read
            records = batch_table(data, table, 0, base_position=start, path=self.path)
            row = records.find_timestamp(target_ms, start_offset)
            if row >= 0:
                return OffsetAndTimestamp(records.offsets[row], records.timestamps[row], table.leader_epoch(0))
            position = at + walk.size
        return None

    def largest_timestamp_after(self, position: int) -> TimestampOffset:
        """Return the largest batch timestamp from `position` on, with the last offset of the first such batch.

        Both are -1 if no batch follows or none has a time.
        """
        largest, offset = NO_TIMESTAMP, -1
        for table in self.tables(position):
            if table.max_timestamp > largest:
                largest, offset = table.max_timestamp, table.offset_of_max_timestamp
        return TimestampOffset(largest, offset)

    def _walk(
        self, find: Callable[[Data, int], HeaderWalk], target: int, position: int, window: int
    ) -> tuple[bytes, HeaderWalk, int] | None:
        """Return the window's bytes, the walk and the window's position for the first success of `find`."""
        end = self.size
        file = self._file
        file.used = True
        if position < 0 or position > end:
            clamp(position, 0, end, self.path)
        while end - position >= HEADER_BYTES:
            try:
                if AT_ONCE:
                    data = (file.file or file.opened()).pread_at_once(min(window, end - position), position)
                else:
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
            else:  # its records will be needed
                window = min(walk.resume_position + SMALL_WINDOW, LARGEST_WINDOW)
        return None

    def last_modified_ms(self) -> int:
        """Return the file's modification time in ms: a segment's largest timestamp if no index has one."""
        return self.last_modified_ns() // 1_000_000

    def last_modified_ns(self) -> int:
        """Return the file's modification time in ns."""
        try:
            return self._file.stat().st_mtime_ns
        except OSError as error:
            raise self._failure(error, "get the status", None) from error

    @property
    def closed(self) -> bool:
        """True after `close`, `close_handlers` or `delete_if_exists`."""
        return self._closed

    def _failure(self, error: OSError, doing: str, position: int | None) -> StorageError | LogClosed:
        if self._closed:
            return LogClosed(f"cannot {doing}: the segment is closed", path=self.path)
        return StorageError.from_os(error, doing, path=self.path, position=position)
