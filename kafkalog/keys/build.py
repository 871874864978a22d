"""Building the key index of one closed segment, and checking that an index belongs to a segment."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kafkalog._core.keys.key_builder import KeyBuilder
from kafkalog._core.keys.key_index import KeyIndex
from kafkalog._core.keys.key_walk import SegmentDigest
from kafkalog.errors import CorruptIndex, CorruptRecord, InvalidRecord, StorageError
from kafkalog.keys.format import NO_STAMP, SECRET_BYTES, Block, FileStamp, KeyIndexHeader, packed, read_header, stamp_of
from kafkalog.keys.place import KeyIndexPlace
from kafkalog.records.plain_runs import plain_runs
from kafkalog.storage.file_slice import FileSlice
from kafkalog.storage.lazy_file import LazyFile
from kafkalog.storage.segment_reader import Extent, segment_chunks

if TYPE_CHECKING:
    from kafkalog._core.keys.key_walk import KeyWalk
    from kafkalog.reading.chunks import Chunk
    from kafkalog.storage.file_records import FileRecords

MOST_OFFSETS: Final = 1 << 31
"""Offsets of a segment reach so far above its base offset; those from there up to the next segment hold nothing."""
MOST_BLOCK_RECORDS: Final = 1 << 24
"""Records of one block, which is built in memory: 20 bytes each."""
SETTLED_NS: Final = 2_000_000_000
"""Age (ns) of a file from which on its times tell a later change: they advance in ticks of a few ms."""


class Segment(Protocol):
    """A segment to index; LogSegment and ViewSegment implement it."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def path(self) -> str: ...
    @property
    def records(self) -> FileRecords: ...


class OpenedIndex(NamedTuple):
    """A key index that belongs to a segment."""

    header: KeyIndexHeader
    pages: KeyIndex


def take_keys(walk: KeyWalk, chunk: Chunk) -> None:
    """Give the keys of a chunk's batches to `walk`; raise InvalidRecord or CorruptRecord for damage inside a batch."""
    runs = plain_runs(chunk.data, chunk.batches, chunk.first, chunk.last, base_position=chunk.position)
    for run in runs:
        if not walk.take(run.data, run.table, run.first, run.last, run.base_position):
            run.record_damage(walk)
        run.raise_failure(chunk.path)


def new_secret() -> bytes:
    """Return a secret for the hash of keys."""
    return os.urandom(SECRET_BYTES)


def build_segment(segment: Segment, bound: int, place: KeyIndexPlace, secret: bytes) -> KeyIndexHeader:
    """Write the key index of a closed segment, whose offsets are below `bound`, and return its header.

    Raises CorruptRecord, InvalidRecord or IllegalArgument (an unknown codec) for a segment that is not sound,
    StorageError.
    """
    base_offset, size = segment.base_offset, segment.size
    bound = min(bound, base_offset + MOST_OFFSETS)
    before = _status(segment)
    builder, digest = KeyBuilder(secret, base_offset, bound), SegmentDigest(secret)
    blocks: list[Block] = []
    next_offset = base_offset
    for chunk in _chunks(segment, bound, size):
        digest.take(chunk.data, chunk.batches, chunk.first, chunk.last, chunk.position)
        builder.mark(chunk.batches, chunk.first, chunk.last)
        take_keys(builder, chunk)
        next_offset = chunk.next_offset
        if builder.count >= MOST_BLOCK_RECORDS:
            blocks.append(Block(*builder.finish()))
    blocks.append(Block(*builder.finish()))
    after = _status(segment)
    if stamp_of(after) != stamp_of(before) or after.st_size != before.st_size:
        raise StorageError("the segment was changed while its keys were read", path=segment.path, hint="try again")
    stamp = _settled_stamp(after) if after.st_size == size else NO_STAMP
    header = KeyIndexHeader(base_offset, next_offset, size, digest.value, secret, stamp, builder.records)
    data = packed(header, blocks)
    place.write(base_offset, data)
    return header._replace(file_bytes=len(data))


def _chunks(segment: Segment, bound: int, size: int) -> Iterator[Chunk]:
    data = FileSlice(segment.records.opened(), 0, size)
    if size:
        data.file.expect_whole_read()
    return segment_chunks(Extent(segment.base_offset, data, bound), segment.base_offset, bound)


def _status(segment: Segment) -> os.stat_result:
    try:
        return segment.records.opened().stat()
    except OSError as error:
        raise StorageError.from_os(error, "get the status of the segment", path=segment.path) from error


def _settled_stamp(stat: os.stat_result) -> FileStamp:
    """Return the stamp of a file that was not changed lately, else NO_STAMP: another change may leave its times."""
    is_settled = time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) > SETTLED_NS
    return stamp_of(stat) if is_settled else NO_STAMP


def open_index(segment: Segment, place: KeyIndexPlace) -> OpenedIndex | None:
    """Return the key index of a closed segment, None if there is none.

    Raises CorruptIndex for one that is damaged, or made of another segment or of what the segment was before.
    """
    path = place.path_of(segment.base_offset)
    file = LazyFile(path, place.fs, "r")
    try:
        header, index = read_header(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError.from_os(error, "read the key index", path=path) from error
    if header.base_offset != segment.base_offset or header.segment_bytes != segment.size:
        raise _stale(path)
    status = _status(segment)
    try:
        if stamp_of(status) != header.stamp and digest_of(segment, header.secret, 0, segment.size) != header.digest:
            raise _stale(path)
    except (CorruptRecord, InvalidRecord) as error:  # in the segment, which is read where it is needed
        raise _stale(path) from error
    return OpenedIndex(header, index)


def digest_of(segment: Segment, secret: bytes, start: int, end: int) -> bytes:
    """Return the digest of the headers of the batches from one position of a segment to another.

    They are read without their checksums. Raises CorruptRecord for a size field that no batch has.
    """
    digest = SegmentDigest(secret)
    for data, table in FileSlice(segment.records.opened(), start, end - start).scanned():
        digest.take(data, table, 0, len(table), table.position(0))
    return digest.value


def _stale(path: str) -> CorruptIndex:
    return CorruptIndex(
        "the key index is not that of its segment", path=path, hint="the segment is searched; build the index again"
    )
