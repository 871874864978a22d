"""Files of one segment owned by another process: opened on first use, and closed early if there are many."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from kafkalog.errors import CorruptIndex, StorageError
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE, LOG_SUFFIX, index_file_name, time_index_file_name
from kafkalog.storage.readonly.index import OffsetIndexView, TimeIndexView
from kafkalog.storage.readonly.listing import UnopenedSegment
from kafkalog.util.descriptors import DESCRIPTORS, OpenSet
from kafkalog.util.fileio import File, FileSystem
from kafkalog.util.os_errors import os_errors

V = TypeVar("V", OffsetIndexView, TimeIndexView)

OPEN_SEGMENTS: Final = 256
"""Number of descriptors a view keeps open: a backup may have more segments than a process may open files."""
INDEX_LAG_BYTES: Final = 64 << 10
"""Growth of the last segment after which its index is read again; newer data is scanned."""


class Descriptors(OpenSet):
    """The open data files of a view. Threads: safe; `lock` is held while an index is read."""

    def __init__(self, limit: int = OPEN_SEGMENTS) -> None:
        super().__init__(lambda: limit)
        self.lock = threading.Lock()


def was_closed_cleanly(partition: str, fs: FileSystem) -> bool:
    """Return True if the data directory of a partition was closed cleanly and is not in use. StorageError."""
    marker = os.path.join(os.path.dirname(partition), CLEAN_SHUTDOWN_FILE)
    with os_errors("get the status of the marker of a clean close", marker):
        return fs.exists(marker)


class ViewFiles:
    """The files of the segment in `<directory>/<file_name>`, valid up to byte `size` of the data.

    A slice keeps the data file's descriptor, so it can be read after the owner deleted the file and after `release`.
    `is_elsewhere` returns True if the segments behind this one also hold a batch of it; None if they hold none.
    Threads: safe; the view sets `size`, `is_last` and `is_elsewhere` under its lock.
    """

    __slots__ = (
        "__weakref__", "_descriptors", "_directory", "_fs", "_indexed_size", "_offset_index", "_records",
        "_time_index", "_timed_size", "base_offset", "file_name", "inode", "is_elsewhere", "is_last",
        "measured", "size", "used",
    )  # fmt: skip

    def __init__(
        self, directory: str, listed: UnopenedSegment, *, fs: FileSystem, descriptors: Descriptors
    ) -> None:
        self.base_offset = listed.base_offset
        self.file_name = listed.name
        self.inode = listed.inode
        self.is_last = False
        self.is_elsewhere: Callable[[bytes], bool] | None = None
        self.used = False
        self._directory = directory
        self._fs = fs
        self._descriptors = descriptors
        self.size = -1
        """Bytes of the data file that are part of the log."""
        self.measured = (-1, -1)
        """Size and modification time (ns) of the file when last measured; they change with the file or its content."""
        self._indexed_size = self._timed_size = -1
        self._records: tuple[File, FileRecords] | None = None
        self._offset_index: OffsetIndexView | None = None
        self._time_index: TimeIndexView | None = None

    def was_closed(self) -> bool:
        """Return True if the data directory was closed cleanly. StorageError."""
        return was_closed_cleanly(self._directory, self._fs)

    # The file

    @property
    def path(self) -> str:
        """Path of the data file."""
        return os.path.join(self._directory, self.file_name)

    @property
    def last_known_offset(self) -> int:
        """Always -1: the end of the segment is not determined before it is read."""
        return -1

    def measure(self) -> None:
        """Set `size` to the file's current length, after its owner has rolled to the next segment.

        Discard cached results if the file has changed since the last call.
        """
        stat = self.stat()
        measured = stat.st_size, stat.st_mtime_ns
        if measured != self.measured:
            self.measured = measured
            self.forget_indexes()
        self.set_size(stat.st_size)

    def set_size(self, size: int) -> None:
        """Set the number of valid bytes; in the last segment those up to the end of the last valid batch."""
        self.size = size
        held = self._records
        if held is not None:
            held[1].size = size

    def stat(self) -> os.stat_result:
        """Return the file's status, by descriptor or by name; StorageError if it is missing."""
        held = self._records
        try:
            return self._fs.stat(self.path) if held is None else held[0].stat()
        except OSError as error:
            raise StorageError.from_os(error, "get the status of the segment", path=self.path) from error

    def _held(self) -> tuple[File, FileRecords]:
        held = self._records
        if held is None:
            DESCRIPTORS.make_room()
            self._descriptors.make_room()
            try:
                file = self._fs.open_file(self.path, "r")
                size = file.size() if self.size < 0 else self.size
            except OSError as error:
                raise StorageError.from_os(error, "open the segment", path=self.path) from error
            held = file, FileRecords(file, size, fs=self._fs, mutable=False)
            self.size = size
            self._records = held
            self._descriptors.add(self)
            DESCRIPTORS.add(self)
        self.used = True
        return held

    @property
    def file(self) -> File:
        """The open data file."""
        return self._held()[0]

    @property
    def records(self) -> FileRecords:
        """The data up to `size`, opened on first use; StorageError (ENOENT) after the file was deleted."""
        held = self._records
        return held[1] if held is not None else self._held()[1]

    def release_file(self) -> None:
        """Release the descriptor, which stays open while a slice uses it."""
        self._records = None
        self._descriptors.discard(self)
        DESCRIPTORS.discard(self)

    def try_close(self) -> bool:
        """Release the descriptor because too many are open; current readers keep their file."""
        self.release_file()
        return True

    def release(self) -> None:
        """Release the file and the copies of its indexes."""
        self.release_file()
        self.forget_indexes()

    # The indexes

    @property
    def offset_index(self) -> OffsetIndexView:
        """Entries of the `.index` file; a damaged or missing file has a `problem` and no entries."""
        index = self._offset_index
        if index is None or self._is_behind(self._indexed_size):
            with self._descriptors.lock:
                self._indexed_size = self.size
                self._offset_index = index = self._read(self._offset_index, OffsetIndexView, index_file_name)
        return index

    @property
    def time_index(self) -> TimeIndexView:
        """Entries of the `.timeindex` file; a damaged or missing file has a `problem` and no entries."""
        index = self._time_index
        if index is None or self._is_behind(self._timed_size):
            with self._descriptors.lock:
                self._timed_size = self.size
                self._time_index = index = self._read(self._time_index, TimeIndexView, time_index_file_name)
        return index

    def _is_behind(self, indexed_size: int) -> bool:
        """Return True if an index read at that size of the data should be read again."""
        size = self.size
        return size != indexed_size and (not self.is_last or size - indexed_size > INDEX_LAG_BYTES)

    def _read(self, index: V | None, kind: type[V], name_of: Callable[[int, str], str]) -> V:
        """Return the index as its file is now; its name has the suffix of the data file (`.swap`)."""
        if index is not None:
            index.refresh()
            return index
        name = name_of(self.base_offset, self.file_name.partition(LOG_SUFFIX)[2])
        return kind(os.path.join(self._directory, name), self.base_offset, fs=self._fs)

    def forget_indexes(self) -> None:
        """Discard the copies of the indexes, after the file was truncated or replaced."""
        self._offset_index = None
        self._time_index = None

    @property
    def problems(self) -> tuple[CorruptIndex, ...]:
        """Problems of the indexes read so far that persist on another read.

        Their owner may have been replacing or deleting the segment: if its data file is missing, nothing is
        reported.
        """
        with self._descriptors.lock:
            broken = [one for one in (self._offset_index, self._time_index) if one is not None and one.problem]
            for index in broken:
                index.refresh()
            problems = tuple(index.problem for index in broken if index.problem is not None)
        return problems if problems and self._fs.exists(self.path) else ()
