"""Redaction of the segments of an open log: rewritten as `.cleaned` files, then swapped as by a cleaner.

A crash at any call leaves the old segment or the new one (storage/replace.py).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafkalog.cleaner.pass_ import IO_BUFFER_BYTES
from kafkalog.cleaner.segment_writer import SegmentWriter
from kafkalog.errors import CorruptRecord
from kafkalog.keys.build import build_segment
from kafkalog.keys.manage import common_secret
from kafkalog.keys.place import KeyIndexPlace
from kafkalog.redact.batches import NewChunk, redact_chunk
from kafkalog.redact.wanted import Change
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.log_walk import bound_of
from kafkalog.storage.segment import LogSegment
from kafkalog.storage.segment_reader import Extent, segment_chunks
from kafkalog.util.os_errors import os_errors


class Rewritten(NamedTuple):
    """A segment that was rewritten: its path, the number of records redacted, and its bytes before and after."""

    path: str
    base_offset: int
    records: int
    size: int
    size_after: int


def redact_log(log: UnifiedLog, offsets: array[int], change: Change, place: KeyIndexPlace) -> Iterator[Rewritten]:
    """Redact the records at `offsets` (rising), and yield each segment after it was replaced.

    The active segment is rolled first if it holds one of them. A segment that is damaged is left as it was, and
    CorruptRecord or InvalidRecord raised. IllegalState while another thread cleans the log; StorageError.
    """
    if offsets and offsets[-1] >= log.active_segment.base_offset and log.active_segment.size:
        log.roll()
    writer = SegmentWriter(IO_BUFFER_BYTES)
    with log.being_cleaned() as truncations:
        for segment in _closed(log):
            bound = bound_of(log.segments, segment.base_offset)
            own = offsets[bisect_left(offsets, segment.base_offset) : bisect_left(offsets, bound)]
            if own:
                yield _rewrite(log, segment, own, change, place, writer, truncations)


def _closed(log: UnifiedLog) -> Sequence[LogSegment]:
    return tuple(segment for segment in log.segments if segment is not log.active_segment)


def _rewrite(
    log: UnifiedLog,
    segment: LogSegment,
    offsets: array[int],
    change: Change,
    place: KeyIndexPlace,
    writer: SegmentWriter,
    truncations: int,
) -> Rewritten:
    replacer, path, size, base = log.replacer, segment.path, segment.size, segment.base_offset
    cleaned = replacer.new_cleaned_segment(base)
    try:
        writer.begin(cleaned)
        records = _copy(log, segment, offsets, change, writer)
        writer.finish()
        for entry in segment.txn_index.entries():
            cleaned.add_aborted(entry)
        cleaned.on_become_inactive()
        cleaned.set_last_modified(segment.records.last_modified_ns(), log.fs)
        cleaned.flush()
        secret = _drop_index(base, place)
        replacer.replace_segments((cleaned,), (segment,), truncations)
    except BaseException:
        replacer.drop_unused((cleaned,))
        raise
    if secret is not None:
        build_segment(cleaned, bound_of(log.segments, base), place, secret)
    return Rewritten(path, base, records, size, cleaned.size)


def _copy(log: UnifiedLog, segment: LogSegment, offsets: array[int], change: Change, writer: SegmentWriter) -> int:
    """Write the batches of a segment to the new one, those with the records redacted; return the number of records."""
    bound = bound_of(log.segments, segment.base_offset)
    extent = Extent(segment.base_offset, segment.records.slice(0, segment.size), bound)
    records = 0
    for new in redacted_chunks(extent, segment.size, offsets, change, segment.path):
        records += new.records
        writer.append(new.data, new.table)
    return records


def redacted_chunks(
    extent: Extent, size: int, offsets: array[int], change: Change, path: str
) -> Iterator[NewChunk]:
    """Yield all chunks of a segment of `size` bytes, with its records at `offsets` (rising) redacted.

    CorruptRecord for bytes that belong to no batch, at the end; other errors as for `redact_chunk`.
    """
    read, next_offset = 0, extent.base_offset
    for chunk in segment_chunks(extent, extent.base_offset, extent.bound):
        start, next_offset = next_offset, chunk.next_offset
        yield redact_chunk(chunk, offsets[bisect_left(offsets, start) : bisect_left(offsets, next_offset)], change)
        last = chunk.last - 1
        read += chunk.batches.position(last) + chunk.batches.size(last) - chunk.batches.position(chunk.first)
    if read != size:
        raise CorruptRecord(
            f"{size - read} bytes behind the last batch belong to none", path=path, position=read,
            hint="the segment is unchanged: run `kafkalog repair --excise --apply` first",
        )  # fmt: skip


def _drop_index(base_offset: int, place: KeyIndexPlace) -> bytes | None:
    """Remove the key index of a segment, which names keys by their hashes; return its secret, None without one."""
    path = place.path_of(base_offset)
    with os_errors("remove the key index", path):
        if not place.fs.exists(path):
            return None
        secret = common_secret(place)
        place.fs.unlink_if_exists(path)
    return secret
