"""The files of one segment as a unit: synced, renamed, removed and closed together."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from kafkalog.errors import IllegalArgument, KafkalogError, StorageError
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.index.lazy_index import LazyIndex
from kafkalog.storage.index.offset_index import OffsetIndex
from kafkalog.storage.index.time_index import TimeIndex
from kafkalog.storage.index.transaction_index import TransactionIndex
from kafkalog.storage.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from kafkalog.util.fileio import FileSystem
from kafkalog.util.guards import guard

_creation_lock: Final = guard()


class Indexes(NamedTuple):
    """The index files of a segment."""

    offsets: LazyIndex[OffsetIndex]
    times: LazyIndex[TimeIndex]
    txns: TransactionIndex

    @classmethod
    def at(
        cls,
        stem: str,
        suffix: str,
        base_offset: int,
        offsets: Callable[[str], OffsetIndex],
        times: Callable[[str], TimeIndex],
        fs: FileSystem,
    ) -> Indexes:
        """Return the files named `stem`, a suffix each, and `suffix`; `offsets` and `times` open two of them."""
        return cls(
            LazyIndex(stem + INDEX_SUFFIX + suffix, offsets, fs),
            LazyIndex(stem + TIME_INDEX_SUFFIX + suffix, times, fs),
            TransactionIndex(stem + TXN_INDEX_SUFFIX + suffix, base_offset, fs=fs),
        )

    def close_handlers(self) -> None:
        """Release descriptors and memory without writing anything."""
        _run_all(self.offsets.close_handler, self.times.close_handler, self.txns.close)


_SegmentFile = FileRecords | LazyIndex[OffsetIndex] | LazyIndex[TimeIndex] | TransactionIndex


class SegmentFiles:
    """The `.log` file (`records`) of a segment and its index files, which have only names before they are used.

    `index_factory` returns the objects for the index files under their current names. Most segments of an open log
    are never used, so it is called once, before the files are renamed, or never.
    """

    __slots__ = (
        "_index_factory", "_indexes_changed", "_is_closed", "_offset_index", "_time_index", "_txn_index", "records",
    )  # fmt: skip

    def __init__(self, records: FileRecords, index_factory: Callable[[], Indexes]) -> None:
        self.records = records
        self._index_factory = index_factory
        self._offset_index: LazyIndex[OffsetIndex] | None = None  # these three are set once, under _creation_lock
        self._time_index: LazyIndex[TimeIndex] | None = None
        self._txn_index: TransactionIndex | None = None
        self._indexes_changed = True
        self._is_closed = False  # True if closed before the indexes were created: they are then closed at once

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, opened on first use."""
        lazy = self._offset_index or self._index_files().offsets
        return lazy.index or lazy.get()

    @property
    def time_index(self) -> TimeIndex:
        """The time index, opened on first use."""
        lazy = self._time_index or self._index_files().times
        return lazy.index or lazy.get()

    @property
    def txn_index(self) -> TransactionIndex:
        """The transaction index; its file is opened on first use."""
        return self._txn_index or self._index_files().txns

    def _index_files(self) -> Indexes:
        """Return the objects for the index files; the first call creates them."""
        files = self._created_indexes()
        if files is None:
            with _creation_lock:
                files = self._created_indexes()
                if files is None:
                    files = self._index_factory()
                    if self._is_closed:
                        files.close_handlers()
                    self._offset_index, self._time_index, self._txn_index = files
        return files

    def _created_indexes(self) -> Indexes | None:
        """Return the objects for the index files; None if they were not created."""
        offsets, times, txns = self._offset_index, self._time_index, self._txn_index
        return None if offsets is None or times is None or txns is None else Indexes(offsets, times, txns)

    @property
    def size(self) -> int:
        """Bytes of complete batches in the `.log` file."""
        return self.records.size

    @property
    def path(self) -> str:
        """Path of the `.log` file."""
        return self.records.path

    def pin_indexes(self) -> None:
        """Keep both indexes open, since they are about to be written."""
        indexes = self._index_files()
        indexes.offsets.pin()
        indexes.times.pin()

    def unpin_indexes(self) -> None:
        """Allow both indexes to be dropped when there are too many; their files hold all entries."""
        indexes = self._index_files()
        indexes.offsets.unpin()
        indexes.times.unpin()

    def files_changed(self) -> None:
        """Make the next flush sync the indexes as well."""
        self._indexes_changed = True

    def indexes_are_on_disk(self) -> None:
        """Make flushes skip the indexes until they are changed."""
        self._indexes_changed = False

    def flush(self) -> None:
        """Sync the data, then the offset, time and transaction index (SEG-32).

        Indexes without a new entry since the last flush are skipped: a flush after each append costs one sync.
        """
        self.records.flush()
        self.records.serial_sync.run(self._flush_indexes)  # also if another thread is syncing the last changes

    def _flush_indexes(self) -> None:
        if self._indexes_changed:
            self._indexes_changed = False
            try:
                for index in self._index_files():
                    index.flush()
            except BaseException:
                self._indexes_changed = True
                raise

    def make_indexes(self) -> None:
        """Create missing index files: a broker leaves empty ones beside a segment without a record."""
        indexes = self._index_files()
        indexes.offsets.make()
        indexes.times.make()

    def set_last_modified(self, time_ns: int, fs: FileSystem) -> None:
        """Set the modification time of the `.log` file and the existing indexes; StorageError."""
        for part in (self.records, *self._index_files()[:2]):
            try:
                fs.utime(part.path, ns=(time_ns, time_ns))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StorageError.from_os(error, "set the modification time", path=part.path) from error

    def close_handlers(self) -> None:
        """Release all descriptors without writing anything."""
        indexes = self._mark_closed()
        _run_all(*(() if indexes is None else (indexes.close_handlers,)), self.records.close_handlers)

    def close_files(self) -> None:
        """Trim and close all files, even if one fails."""
        _run_all(*(index.close for index in self._mark_closed() or ()), self.records.close)

    def _mark_closed(self) -> Indexes | None:
        """Return the indexes, if they were created; later ones will be closed at once."""
        with _creation_lock:
            self._is_closed = True
            return self._created_indexes()

    def change_file_suffixes(self, old: str, new: str) -> None:
        """Rename all existing files from suffix `old` to `new` (SEG-27).

        StorageError if one cannot be renamed: those before it get their old names back. IllegalArgument for a name
        that does not end in `old`.
        """
        done: list[tuple[_SegmentFile, str]] = []
        try:
            for part in self._parts():
                before = part.path
                part.rename_to(_with_suffix(before, old, new))
                done.append((part, before))
        except BaseException:
            for part, before in done:
                part.rename_to(before)
            raise

    def will_be_in(self, directory: str) -> None:
        """Record that the directory of all files is about to be renamed, so that reads continue meanwhile."""
        self.records.will_be(os.path.join(directory, os.path.basename(self.records.path)))

    def relocate(self, directory: str) -> None:
        """Set the current directory of all files, after it was renamed or could not be."""
        for part in self._parts():
            part.relocate(os.path.join(directory, os.path.basename(part.path)))

    def unlink_files(self) -> None:
        """Delete all files. Current readers of the segment continue; any other access raises StorageError (ENOENT)."""
        _run_all(self.records.unlink, self._keep_for_readers, *(part.unlink for part in self._parts()[1:]))

    def _keep_for_readers(self) -> None:
        if self.records.is_gone or self.records.closed:
            return
        self.pin_indexes()
        with suppress(KafkalogError):  # already missing
            self.offset_index, self.time_index  # noqa: B018 - opens them

    def delete_if_exists(self) -> None:
        """Delete all files; missing ones are ignored. Readers keep their open files."""
        _run_all(*(part.delete_if_exists for part in self._parts()))

    def _parts(self) -> tuple[_SegmentFile, ...]:
        return self.records, *self._index_files()


def _with_suffix(path: str, old: str, new: str) -> str:
    if not path.endswith(old):
        raise IllegalArgument(f"the file name does not end in {old!r}", path=path)
    return path[: len(path) - len(old)] + new


def _run_all(*steps: Callable[[], object]) -> None:
    """Run every step; raise the first error after the last one."""
    failure: BaseException | None = None
    for step in steps:
        try:
            step()
        except BaseException as error:
            failure = failure or error
    if failure is not None:
        raise failure
