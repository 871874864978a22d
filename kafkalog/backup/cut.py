"""The copy of a log's last segment: cut at the end of its last complete batch, with matching indexes."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from kafkalog.backup.in_progress import BackupInProgress, Changed, open_listed
from kafkalog.errors import StorageError
from kafkalog.storage.batch_search import BatchSearch, Budget
from kafkalog.storage.damage import MisplacedBatch
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.index.aborted_txns import ENTRY_BYTES, LAST_OFFSET_AT
from kafkalog.storage.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, base_name
from kafkalog.storage.readonly.end import SegmentEnd, empty_end, extend_end, find_end, has_last_batch
from kafkalog.storage.recovery.recover_segment import SegmentData, scan_segment
from kafkalog.util.fileio import File, FileSystem
from kafkalog.util.os_errors import os_errors

INTERVAL_BYTES: Final = 4096
INDEX_BYTES: Final = 10 << 20
_ZEROS_BYTES: Final = 4096
_MAX_TXN_INDEX_BYTES: Final = 1 << 31


class Cut(NamedTuple):
    """The end of the last segment's copy; `file` is its original, open, and `note` describes any irregularity."""

    base_offset: int
    file: File
    inode: int
    end: SegmentEnd
    note: str | None


def cut_segment(
    backup: BackupInProgress, source: File, name: str, base_offset: int, limit: int | None, *, patient: bool
) -> Cut:
    """Copy a segment that its owner may be appending to, up to the last complete batch.

    `name` is the partition's directory in the backup. All bytes after damage are kept if they may hide sound batches,
    and so is a batch at wrong offsets: they may be of value. With `patient` this raises Changed instead, since the
    writer may be about to repair it. Bytes after the first `limit` are ignored.
    """
    limit = _trim_zeros(source, base_offset, limit)
    copy, stored = backup.store_cut(source, f"{name}/{base_name(base_offset)}{LOG_SUFFIX}", limit)
    with copy:
        end = extend_end(copy, base_offset, empty_end(base_offset), stored.size)
        note, size = None, end.size
        is_misplaced = isinstance(end.problem, MisplacedBatch)  # a complete batch at wrong offsets
        if end.problem is not None and (is_misplaced or hides_batches(copy, end, stored.size)):
            if patient:
                raise Changed
            size = stored.size
            note = f"{source.path}: {end.problem.message} at position {end.size}; kept with all bytes after it"
            end = find_end(copy, base_offset, end, stored.size)
        backup.cut(copy, stored, size)
    return Cut(base_offset, source, source.stat().st_ino, end, note)


def _trim_zeros(source: File, base_offset: int, limit: int | None) -> int | None:
    """Return `limit`, or the start of a preallocated file's zeros, which need not be copied."""
    with os_errors("read the segment", source.path):
        size = source.size() if limit is None else min(limit, source.size())
        tail = source.pread(min(size, _ZEROS_BYTES), max(0, size - _ZEROS_BYTES))
    if not tail or any(tail):
        return limit
    end = extend_end(source, base_offset, empty_end(base_offset), size)
    return end.size if end.problem is None else limit


def hides_batches(file: File, end: SegmentEnd, size: int) -> bool:
    """Return True if a sound batch follows the damage, or if the search for one was abandoned."""
    found = BatchSearch(file, Budget(size)).find(end.size + 1, size, end.next_offset)
    return found.position >= 0


def is_unchanged(cut: Cut) -> bool:
    """Return True if the original still has all copied bytes in place; it may have grown."""
    with os_errors("examine the segment", cut.file.path):
        if cut.file.size() < cut.end.size:
            return False
    return has_last_batch(cut.file, cut.end)


def index_cut(backup: BackupInProgress, directory: str, name: str, cut: Cut, listed: list[str], fs: FileSystem) -> None:
    """Build the indexes of the copy: offsets and times from its data, aborted transactions that end in it.

    Those of the original are being written, have room after their entries, and may cover more than the copy has.
    """
    stem = base_name(cut.base_offset)
    contents = index_contents(backup.path_of(f"{name}/{stem}{LOG_SUFFIX}"), cut.base_offset, fs)
    for suffix, content in contents.items():
        backup.put(f"{name}/{stem}{suffix}", content, cut.file.stat())
    txn_name = stem + TXN_INDEX_SUFFIX
    if txn_name in listed:
        content, status = read_whole(os.path.join(directory, txn_name), fs, _MAX_TXN_INDEX_BYTES)
        backup.put(f"{name}/{txn_name}", aborted_before(content, cut.end.next_offset), status)


def index_contents(path: str, base_offset: int, fs: FileSystem) -> dict[str, bytes]:
    """Return the offset and time index of the segment file `path`, built from its data, by their suffixes."""
    with fs.open_file(path, "r") as file:
        records = FileRecords(file, file.size(), fs=fs, mutable=False)
        found = scan_segment(SegmentData(records, base_offset, INTERVAL_BYTES, INDEX_BYTES)).found
    return {INDEX_SUFFIX: found.offset_index, TIME_INDEX_SUFFIX: found.time_index}


def aborted_before(content: bytes, end_offset: int) -> bytes:
    """Return the complete entries of a transaction index before the first that ends at or after `end_offset`."""
    for at in range(0, len(content) - ENTRY_BYTES + 1, ENTRY_BYTES):
        last = int.from_bytes(content[at + LAST_OFFSET_AT : at + LAST_OFFSET_AT + 8], "big", signed=True)
        if last >= end_offset:
            return content[:at]
    return content[: len(content) // ENTRY_BYTES * ENTRY_BYTES]


def read_whole(path: str, fs: FileSystem, limit: int) -> tuple[bytes, os.stat_result]:
    """Return a small file's content and status; Changed if it is gone. StorageError."""
    with os_errors("read", path), open_listed(fs, path) as file:
        status = file.stat()
        if status.st_size > limit:
            raise StorageError(f"{status.st_size} bytes long, at most {limit} expected", path=path)
        return file.pread(status.st_size, 0), status
