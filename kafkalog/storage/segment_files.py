"""The files of one segment as one thing: synced, renamed, removed and closed together."""

from __future__ import annotations

import os
from typing import Any

from kafkalog.errors import IllegalArgument, KafkalogError, StorageError
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.index import OffsetIndex
from kafkalog.storage.lazy_index import LazyIndex
from kafkalog.storage.time_index import TimeIndex
from kafkalog.storage.transaction_index import TransactionIndex
from kafkalog.util.fileio import FileSystem


class SegmentFiles:
    """The `.log` file (`records`) of a segment, its two indexes, and its transaction index (`txn_index`)."""

    __slots__ = ("_indexes_changed", "_offset_index", "_time_index", "records", "txn_index")

    def __init__(
        self,
        records: FileRecords,
        offset_index: LazyIndex[OffsetIndex],
        time_index: LazyIndex[TimeIndex],
        txn_index: TransactionIndex,
    ) -> None:
        self.records = records
        self.txn_index = txn_index
        self._offset_index = offset_index
        self._time_index = time_index
        self._indexes_changed = True

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, opened by the first use."""
        return self._offset_index.index or self._offset_index.get()

    @property
    def time_index(self) -> TimeIndex:
        """The time index, opened by the first use."""
        return self._time_index.index or self._time_index.get()

    @property
    def size(self) -> int:
        """Bytes of whole batches in the `.log` file."""
        return self.records.size

    @property
    def path(self) -> str:
        """The `.log` file."""
        return self.records.path

    def pin_indexes(self) -> None:
        """Keep both indexes open: they are about to be written."""
        self._offset_index.pin()
        self._time_index.pin()

    def unpin_indexes(self) -> None:
        """Let both indexes be dropped when there are too many: they are as they are on disk."""
        self._offset_index.unpin()
        self._time_index.unpin()

    def files_changed(self) -> None:
        """The next flush syncs the indexes as well."""
        self._indexes_changed = True

    def indexes_are_on_disk(self) -> None:
        """A flush leaves the indexes alone, until they are changed."""
        self._indexes_changed = False

    def flush(self) -> None:
        """Return when the data, then the offset, time and transaction index are on disk (SEG-32).

        Indexes without a new entry since the last flush are left alone: a flush after each append costs one sync.
        """
        self.records.flush()
        if self._indexes_changed:
            self._indexes_changed = False
            try:
                self._offset_index.flush()
                self._time_index.flush()
                self.txn_index.flush()
            except BaseException:
                self._indexes_changed = True
                raise

    def make_indexes(self) -> None:
        """Return when both index files are there: a broker leaves empty ones beside a segment without a record."""
        self._offset_index.make()
        self._time_index.make()

    def set_last_modified(self, time_ns: int, fs: FileSystem) -> None:
        """Give the `.log` file and the indexes this time, where they are there; StorageError."""
        for part in (self.records, self._offset_index, self._time_index):
            try:
                fs.utime(part.path, ns=(time_ns, time_ns))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StorageError.from_os(error, "set the time", path=part.path) from error

    def close_handlers(self) -> None:
        """Give all descriptors back without writing anything."""
        _all(
            self._offset_index.close_handler,
            self._time_index.close_handler,
            self.txn_index.close,
            self.records.close_handlers,
        )

    def close_files(self) -> None:
        """Trim and close all files; every one is closed even if one fails."""
        _all(self._offset_index.close, self._time_index.close, self.txn_index.close, self.records.close)

    def change_file_suffixes(self, old: str, new: str) -> None:
        """Rename all files that exist from suffix `old` to `new` (SEG-27).

        StorageError when one cannot be renamed: those before it get their old names back. IllegalArgument for a name
        that does not end in `old`.
        """
        done: list[tuple[Any, str]] = []
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
        """Know that the directory of all files is about to get another name, so that reads go on meanwhile."""
        self.records.will_be(os.path.join(directory, os.path.basename(self.records.path)))

    def relocate(self, directory: str) -> None:
        """Know what the directory of all files is called, now that it was renamed, or could not be."""
        for part in self._parts():
            part.relocate(os.path.join(directory, os.path.basename(part.path)))

    def unlink_files(self) -> None:
        """Remove all files. Who reads from the segment goes on; StorageError (ENOENT) for all else that is asked."""
        _all(self.records.unlink, self._keep_for_readers, *(part.unlink for part in self._parts()[1:]))

    def _keep_for_readers(self) -> None:
        if self.records.is_gone or self.records.closed:
            return
        self.pin_indexes()
        try:
            self.offset_index, self.time_index  # noqa: B018 - opens them
        except KafkalogError:  # missing already
            pass

    def delete_if_exists(self) -> None:
        """Remove all files; one that is gone already is fine. Readers keep what they hold open."""
        _all(*(part.delete_if_exists for part in self._parts()))

    def _parts(self) -> tuple[Any, ...]:
        return self.records, self._offset_index, self._time_index, self.txn_index


def _with_suffix(path: str, old: str, new: str) -> str:
    if not path.endswith(old):
        raise IllegalArgument(f"the file name does not end in {old!r}", path=path)
    return path[: len(path) - len(old)] + new


def _all(*steps: Any) -> None:
    """Take every step; the first error is raised after the last one."""
    failure: BaseException | None = None
    for step in steps:
        try:
            step()
        except BaseException as error:
            failure = failure or error
    if failure is not None:
        raise failure
