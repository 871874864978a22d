"""A segment of a listed directory: no file of it is opened before it is used.

Its indexes are checked on their first opening, and again after each time they were closed. The first and last
entries of an index reveal most damage; a damaged index is rebuilt from the data.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from kafkalog.config.topic import LogConfig
from kafkalog.storage.directory import Directory
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.index.offset_index import OffsetIndex
from kafkalog.storage.index.time_index import TimeIndex
from kafkalog.storage.names import LOG_SUFFIX, base_name
from kafkalog.storage.recovery.recover_segment import SegmentData, scan_segment
from kafkalog.storage.recovery.soundness import offset_ends_fit, time_ends_fit
from kafkalog.storage.segment import LogSegment, index_files, open_index
from kafkalog.storage.segment_files import Indexes
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem

_LOG: Final = logging.getLogger(__name__)
X = TypeVar("X", OffsetIndex, TimeIndex)


def open_listed(
    directory: Directory,
    base_offset: int,
    config: LogConfig,
    *,
    offsets: int,
    fs: FileSystem,
    clock: Clock,
    is_on_disk: bool,
    trust_indexes: bool = False,
) -> LogSegment:
    """Return the segment of a directory that begins at `base_offset` and has room for `offsets` offsets.

    `is_on_disk` says that a clean shutdown has synced its files: a flush has nothing to do until they are changed.
    With `trust_indexes` the indexes are not checked, since recovery rebuilds them. StorageError, FormatError.
    """
    stem = base_name(base_offset)
    size = directory.size_of(stem + LOG_SUFFIX)
    stem = os.path.join(directory.path, stem)
    records = FileRecords.listed(stem + LOG_SUFFIX, size, fs=fs, is_on_disk=is_on_disk)
    if trust_indexes:
        make_indexes = partial(index_files, stem, "", base_offset, config.segment_index_bytes, fs)
    else:
        data = SegmentData(records, base_offset, config.index_interval_bytes, config.segment_index_bytes)
        make_indexes = partial(_checked_indexes, stem, data, offsets, fs)
    segment = LogSegment(records, make_indexes, base_offset, config, clock)
    if is_on_disk:
        segment.indexes_are_on_disk()
    return segment


def _checked_indexes(stem: str, data: SegmentData, offsets: int, fs: FileSystem) -> Indexes:
    """Return the index files whose names begin with `stem`; each opening checks them."""
    open_offsets = partial(_open_checked, OffsetIndex, _offsets_fit, data, offsets, fs)
    open_times = partial(_open_checked, TimeIndex, _times_fit, data, offsets, fs)
    return Indexes.at(stem, "", data.base_offset, open_offsets, open_times, fs)


def _open_checked(
    kind: type[X], fits: Callable[[X, SegmentData, int], bool], data: SegmentData, offsets: int, fs: FileSystem,
    path: str,
) -> X:  # fmt: skip
    """Open the index at `path`; rebuild it if it is missing, too long, or does not match the data."""
    index = open_index(kind, data.base_offset, data.max_index_size, fs, path)
    return index if fits(index, data, offsets) else _rebuild(index, data)


def _offsets_fit(index: OffsetIndex, data: SegmentData, offsets: int) -> bool:
    """Return True if the entries rise and point into the data, judging by the first and last one.

    False for a tail of zeros: such a file is new, or was not trimmed when it was closed.
    """
    count, base = index.entries, data.base_offset
    if not count:
        return index.length < index.entry_size
    first, last = ((entry.offset - base, entry.position) for entry in (index.entry(0), index.entry(count - 1)))
    return offset_ends_fit(count, first, last, data.records.size, offsets)


def _times_fit(index: TimeIndex, data: SegmentData, offsets: int) -> bool:
    """Return True if the times rise, judging by the first and last entry; otherwise as `_offsets_fit`."""
    count, base = index.entries, data.base_offset
    if not count:
        return index.length < index.entry_size
    first, last = ((entry.timestamp, entry.offset - base) for entry in (index.entry(0), index.entry(count - 1)))
    return time_ends_fit(count, first, last, offsets)


def _rebuild(index: X, data: SegmentData) -> X:
    """Rebuild the index with the entries that appends would write, up to the first damage, and sync it."""
    try:
        size = data.records.size
        if isinstance(index, OffsetIndex) and index.entries and index.entry(index.entries - 1).position >= max(size, 1):
            _LOG.warning(
                "rebuilding %s, which has entries behind the end of its segment: it is damaged, or the segment's last "
                "batches are lost", index.path,
            )  # fmt: skip
        elif size:
            _LOG.warning("rebuilding %s, which is missing, damaged or was not trimmed", index.path)
        found = scan_segment(data).found
        index.refill(found.offset_index if isinstance(index, OffsetIndex) else found.time_index)
        index.flush()
    except BaseException:
        index.close_handler()
        raise
    return index
