"""A segment of a directory that was listed: nothing of it is opened before it is used.

Its indexes are looked at when they are opened for the first time, and again whenever they were closed in between: the
ends of an index show most of what can be wrong with it, and one that is wrong is made anew from the data.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from kafkalog.config import LogConfig
from kafkalog.storage.directory import Directory
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.index import OffsetIndex
from kafkalog.storage.lazy_index import LazyIndex
from kafkalog.storage.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, base_name
from kafkalog.storage.recovery import scan_segment
from kafkalog.storage.segment import LogSegment, open_index
from kafkalog.storage.soundness import offset_ends_fit, time_ends_fit
from kafkalog.storage.time_index import TimeIndex
from kafkalog.storage.transaction_index import TransactionIndex
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem

_LOG: Final = logging.getLogger(__name__)
X = TypeVar("X", OffsetIndex, TimeIndex)


class SegmentData(NamedTuple):
    """What an index is made from: the data of a segment, which has room for so many `offsets`."""

    records: FileRecords
    base_offset: int
    index_interval_bytes: int
    max_index_size: int
    offsets: int


def open_listed(
    directory: Directory,
    base_offset: int,
    config: LogConfig,
    *,
    offsets: int,
    fs: FileSystem,
    clock: Clock,
    is_on_disk: bool,
    believes_indexes: bool = False,
) -> LogSegment:
    """The segment of a directory that begins at `base_offset` and has room for `offsets` offsets.

    `is_on_disk` says that a clean shutdown vouches for its files: a flush has nothing to do before they are changed.
    With `believes_indexes` they are taken as they are, for recovery makes them anew. StorageError, FormatError.
    """
    stem = base_name(base_offset)
    size = directory.size_of(stem + LOG_SUFFIX)
    stem = os.path.join(directory.path, stem)
    records = FileRecords.listed(stem + LOG_SUFFIX, size, fs=fs, is_on_disk=is_on_disk)
    index_size = config.segment_index_bytes
    open_offsets: Callable[[str], OffsetIndex]
    open_times: Callable[[str], TimeIndex]
    if believes_indexes:
        open_offsets = partial(open_index, OffsetIndex, base_offset, index_size, fs)
        open_times = partial(open_index, TimeIndex, base_offset, index_size, fs)
    else:
        data = SegmentData(records, base_offset, config.index_interval_bytes, index_size, offsets)
        open_offsets = partial(open_offset_index, data, fs)
        open_times = partial(open_time_index, data, fs)
    offset_index = LazyIndex(stem + INDEX_SUFFIX, open_offsets, fs)
    time_index = LazyIndex(stem + TIME_INDEX_SUFFIX, open_times, fs)
    aborted = TransactionIndex(stem + TXN_INDEX_SUFFIX, base_offset, fs=fs)
    segment = LogSegment(records, offset_index, time_index, aborted, base_offset, config, clock)
    if is_on_disk:
        segment.indexes_are_on_disk()
    return segment


def open_offset_index(data: SegmentData, fs: FileSystem, path: str) -> OffsetIndex:
    """The offset index at `path`, made anew where it is missing, or cannot be that of the data."""
    index = OffsetIndex(path, data.base_offset, data.max_index_size, fs=fs)
    return index if _offsets_fit(index, data) else _made_anew(index, data)


def open_time_index(data: SegmentData, fs: FileSystem, path: str) -> TimeIndex:
    """The time index at `path`, as `open_offset_index`."""
    index = TimeIndex(path, data.base_offset, data.max_index_size, fs=fs)
    return index if _times_fit(index, data) else _made_anew(index, data)


def _offsets_fit(index: OffsetIndex, data: SegmentData) -> bool:
    """True when the entries rise, as far as the ends show, and point into the data.

    Not with a tail of zeros: such a file was not closed well, or has just been made.
    """
    count, base = index.entries, data.base_offset
    if not count:
        return index.length < index.entry_size
    first, last = ((entry.offset - base, entry.position) for entry in (index.entry(0), index.entry(count - 1)))
    return offset_ends_fit(count, first, last, data.records.size, data.offsets)


def _times_fit(index: TimeIndex, data: SegmentData) -> bool:
    """True when the times rise, as far as the ends show; as `_offsets_fit`."""
    count, base = index.entries, data.base_offset
    if not count:
        return index.length < index.entry_size
    first, last = ((entry.timestamp, entry.offset - base) for entry in (index.entry(0), index.entry(count - 1)))
    return time_ends_fit(count, first, last, data.offsets)


def _made_anew(index: X, data: SegmentData) -> X:
    """The index with the entries that appending would have made, up to the first damage of the data, and on disk."""
    try:
        if data.records.size:
            _LOG.warning("%s is missing or damaged: made anew", index.path)
        found = scan_segment(data).found
        index.refill(found.offset_index if isinstance(index, OffsetIndex) else found.time_index)
        index.flush()
    except BaseException:
        index.close_handler()
        raise
    return index
