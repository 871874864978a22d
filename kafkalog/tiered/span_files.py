"""Files of a log directory made of the part of a tiered segment that a span uses.

A copy may hold more than its span: offsets that another copy or the local log supplies, or that a later leader
truncated. The data is then cut at batches, and the indexes are cut and moved to the new base offset.
"""

from __future__ import annotations

import os
import struct
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from errno import ENOENT
from typing import Final, Protocol

from kafkalog._core.batch.scan import scan
from kafkalog.errors import StorageError
from kafkalog.storage.damage import first_offset
from kafkalog.storage.file_slice import HEADER_BYTES, claimed_size
from kafkalog.storage.index.aborted_txns import ENTRY_BYTES
from kafkalog.storage.names import base_name, snapshot_file_name
from kafkalog.tiered.plan import Span
from kafkalog.tiered.segment_bytes import LOG, SegmentContent
from kafkalog.tiered.segment_metadata import RemoteSegment

_WINDOW_BYTES: Final = 64 << 10
_MOST_RELATIVE: Final = 2**31 - 1
"""Largest offset in an index, from its segment's first one."""
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_TXN_LAST_OFFSET: Final = struct.Struct(">hqqqq")
GAP_BYTES: Final = HEADER_BYTES
"""Size of the data file of a gap, which cannot be read."""


class VirtualFile(Protocol):
    """A file that is made of objects of a store. Threads: safe."""

    @property
    def identity(self) -> str:
        """Text that differs for another content."""

    @property
    def mtime_ns(self) -> int:
        """Time of the content, in ns."""

    def size(self) -> int:
        """Return the number of bytes; raise StorageError, FileNotFoundError."""

    def read(self, position: int, size: int) -> bytes:
        """Return bytes from `position`; fewer only at the end. Raises StorageError, FileNotFoundError."""


class SpanFiles:
    """The data and the indexes of a span with a copy, cut to the span. Threads: safe."""

    def __init__(self, span: Span, segment: RemoteSegment, content: SegmentContent) -> None:
        self.span = span
        self.segment = segment
        self.content = content
        self._lock = threading.Lock()
        self._bounds: tuple[int, int] | None = None  # guarded by self._lock
        self._indexes: dict[str, bytes | None] = {}  # of a cut span; guarded by self._lock

    def named(self) -> dict[str, VirtualFile]:
        """Return the span's files by name; that of a transaction index may turn out to be missing."""
        span, segment = self.span, self.segment
        stem = base_name(span.start)
        names = {stem + LOG: LOG, stem + ".index": ".index", stem + ".timeindex": ".timeindex"}
        if not segment.is_txn_index_empty:
            names[stem + ".txnindex"] = ".txnindex"
        if span.stop == segment.end + 1:
            names[snapshot_file_name(span.stop)] = ".snapshot"  # producers at the end of the segment
        return {name: _SpanFile(self, suffix) for name, suffix in names.items()}

    @property
    def bounds(self) -> tuple[int, int]:
        """Positions in the segment at which the span's data begins and ends."""
        with self._lock:
            if self._bounds is None:
                self._bounds = self._position_of(self.span.start), self._position_of(self.span.stop)
            return self._bounds

    def _position_of(self, offset: int) -> int:
        """Return where the batch at `offset` begins, which has to be a batch's first offset."""
        size = self.content.log_bytes
        if offset <= self.segment.start:
            return 0
        if offset > self.segment.end:
            return size
        return self._walk(indexed_position(self.content, self.segment.start, offset), size, offset)

    def _walk(self, position: int, size: int, offset: int) -> int:
        window_bytes = _WINDOW_BYTES
        while position < size:
            data = self.content.read_log(position, min(window_bytes, size - position))
            table = scan(data, file_mode=True, check_crc=False)
            for row in range(table.count):
                if table.last_offset_of(row) >= offset:
                    begin = table.position(row)
                    batch = data[begin : begin + table.size(row)]
                    if first_offset(batch, scan(batch, check_crc=False), 0) < offset:
                        raise self._error(f"a batch holds offsets on both sides of {offset}", position + begin)
                    return position + begin
            if table.count:
                position += table.position(table.count - 1) + table.size(table.count - 1)
                continue
            wanted = claimed_size(data)
            if not window_bytes < wanted <= size - position:
                raise self._error(f"there is no batch before offset {offset}", position)
            window_bytes = wanted
        return size

    def _error(self, text: str, position: int) -> StorageError:
        return StorageError(
            f"the segment cannot be cut to offsets {self.span.start} to {self.span.stop - 1}: {text}",
            path=self.content.url, offset=self.segment.start, position=position,
            hint="the copy is damaged, or not of this log",
        )  # fmt: skip

    def size(self, suffix: str) -> int:
        """Return the size of one of the files."""
        if suffix == LOG:
            begin, end = self.bounds
            return end - begin
        return len(self.index(suffix))

    def read(self, suffix: str, position: int, size: int) -> bytes:
        """Return bytes of one of the files."""
        if suffix != LOG:
            return self.index(suffix)[position : position + size]
        begin, end = self.bounds
        return self.content.read_log(begin + position, max(0, min(size, end - begin - position)))

    def index(self, suffix: str) -> bytes:
        """Return the content of an index; raise FileNotFoundError if the segment has none."""
        if self._is_whole or suffix == ".snapshot":
            found = self.content.index(suffix)
        else:
            found = self._cut_index(suffix)
        if found is None:
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), base_name(self.span.start) + suffix)
        return found

    @property
    def _is_whole(self) -> bool:
        return self.span.start <= self.segment.start and self.span.stop > self.segment.end

    def _cut_index(self, suffix: str) -> bytes | None:
        with self._lock:
            is_known, found = suffix in self._indexes, self._indexes.get(suffix)
        if is_known:
            return found
        content = self.content.index(suffix)
        found = None if content is None else self._cut(suffix, content)
        with self._lock:
            self._indexes[suffix] = found
        return found

    def _cut(self, suffix: str, content: bytes) -> bytes:
        span, segment = self.span, self.segment
        if suffix == ".txnindex":
            return _cut_transactions(content, span)
        begin, end = self.bounds
        moved = span.start - segment.start

        def is_inside(relative: int) -> bool:
            return span.start <= segment.start + relative < span.stop

        if suffix == ".index":
            entries = _whole_entries(_OFFSET_ENTRY, content)
            kept = ((r - moved, at - begin) for r, at in entries if is_inside(r) and begin < at < end)
            return b"".join(_OFFSET_ENTRY.pack(*entry) for entry in kept)
        times = ((time, r - moved) for time, r in _whole_entries(_TIME_ENTRY, content) if is_inside(r))
        return b"".join(_TIME_ENTRY.pack(*entry) for entry in times)


def indexed_position(content: SegmentContent, start: int, offset: int) -> int:
    """Return the position of a sound batch at or before `offset` that the offset index names; 0 if it names none.

    An index that cannot be read names none: the data has all that it says.
    """
    try:
        index = content.index(".index") or b""
    except StorageError:
        return 0
    rows = range(len(index) // _OFFSET_ENTRY.size)
    row = bisect_right(rows, offset - start, key=lambda n: int(_OFFSET_ENTRY.unpack_from(index, n * 8)[0]))
    position = _OFFSET_ENTRY.unpack_from(index, row * 8 - 8)[1] if row else 0
    return position if _is_before(content, position, offset) else 0


def end_of(content: SegmentContent, start: int) -> int | None:
    """Return the offset behind the last one of a segment; None if its data does not end with a whole batch."""
    position, size, found = indexed_position(content, start, start + _MOST_RELATIVE), content.log_bytes, None
    window_bytes = _WINDOW_BYTES
    while position < size:
        data = content.read_log(position, min(window_bytes, size - position))
        table = scan(data, file_mode=True, check_crc=False)
        if table.count:
            last = table.count - 1
            found, position = table.last_offset_of(last) + 1, position + table.position(last) + table.size(last)
            continue
        window_bytes = claimed_size(data)
        if not len(data) < window_bytes <= size - position:
            return None
    return found


def _is_before(content: SegmentContent, position: int, offset: int) -> bool:
    """Return True if a sound batch with this or a lower first offset begins at `position`."""
    left = content.log_bytes - position
    if position < 0 or left <= 0:
        return False
    wanted = claimed_size(content.read_log(position, min(HEADER_BYTES, left)))
    if not 0 < wanted <= left:
        return False
    batch = content.read_log(position, wanted)
    table = scan(batch, file_mode=True)
    return bool(table.count and table[0].is_valid and first_offset(batch, table, 0) <= offset)


def spans_files(
    spans: Iterable[Span], known: Mapping[Span, SpanFiles], content_of: Callable[[RemoteSegment], SegmentContent]
) -> dict[Span, SpanFiles]:
    """Return the files of the spans that have a copy, taken from `known` where they are the same."""
    return {
        span: known.get(span) or SpanFiles(span, span.segment, content_of(span.segment))
        for span in spans
        if span.segment is not None
    }


def named_files(
    spans: Iterable[Span], files: Mapping[Span, SpanFiles], directory: str
) -> dict[str, VirtualFile]:
    """Return all files of the spans by name, for the directory of their partition; a gap has one that is unreadable."""
    found: dict[str, VirtualFile] = {}
    for span in spans:
        if span.segment is None:
            found[base_name(span.start) + LOG] = GapFile(span, directory)
        else:
            found |= files[span].named()
    return found


def _whole_entries(entry: struct.Struct, content: bytes) -> list[tuple[int, int]]:
    return list(entry.iter_unpack(content[: len(content) // entry.size * entry.size]))


def _cut_transactions(content: bytes, span: Span) -> bytes:
    """Return the entries of a transaction index whose marker is in the span."""
    entries = (content[at : at + ENTRY_BYTES] for at in range(0, len(content) - ENTRY_BYTES + 1, ENTRY_BYTES))
    return b"".join(one for one in entries if span.start <= _TXN_LAST_OFFSET.unpack_from(one)[3] < span.stop)


class _SpanFile:
    """One of the files of a span."""

    def __init__(self, files: SpanFiles, suffix: str) -> None:
        self._files = files
        self._suffix = suffix
        span = files.span
        self.identity = f"{files.segment.segment_id} {span.start} {span.stop} {suffix}"
        self.mtime_ns = max(files.segment.max_timestamp, 0) * 1_000_000

    def size(self) -> int:
        """Return the number of bytes."""
        return self._files.size(self._suffix)

    def read(self, position: int, size: int) -> bytes:
        """Return bytes from `position`."""
        return self._files.read(self._suffix, position, size)


class GapFile:
    """The data file of offsets that no copy has: reading it raises an error."""

    mtime_ns = 0

    def __init__(self, span: Span, path: str) -> None:
        self._span = span
        self._path = path
        self.identity = f"gap {span.start} {span.stop}"

    def size(self) -> int:
        """Return a size that a segment with a batch may have."""
        return GAP_BYTES

    def read(self, position: int, size: int) -> bytes:
        """Raise StorageError."""
        raise StorageError(
            f"no finished copy in the tiered store has offsets {self._span.start} to {self._span.stop - 1}, and the "
            "local log begins behind them",
            path=self._path, offset=self._span.start,
            hint="give all of `__remote_log_metadata`: name the data directories of the brokers that have it; if the "
            "topic is not tiered, omit the store, or give the directory with `__cluster_metadata` too",
        )  # fmt: skip


