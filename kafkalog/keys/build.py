"""Building the key index of one closed segment, and checking that an index belongs to a segment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog._core.keys.key_builder import KeyBuilder
from kafkalog._core.keys.key_index import KeyIndex
from kafkalog._core.keys.key_walk import SegmentDigest
from kafkalog.errors import CorruptIndex, CorruptRecord, InvalidRecord, StorageError
from kafkalog.keys.format import Block, KeyIndexHeader, packed, read_header
from kafkalog.keys.place import KeyIndexPlace
from kafkalog.records.plain_runs import plain_runs
from kafkalog.sidecars.identity import (
    NO_STAMP,
    digest_of,
    refuse_changed,
    settled_stamp,
    stamp_of,
    status_of,
    whole_chunks,
)
from kafkalog.storage.lazy_file import LazyFile

if TYPE_CHECKING:
    from kafkalog._core.keys.key_picker import KeyPicker
    from kafkalog._core.keys.key_walk import KeyWalk
    from kafkalog.storage.segment_reader import Chunk
    from kafkalog.storage.segments import AnySegment

MOST_OFFSETS: Final = 1 << 31
"""Offsets of a segment reach so far above its base offset; those from there up to the next segment hold nothing."""
MOST_BLOCK_RECORDS: Final = 1 << 24
"""Records of one block, which is built in memory: 20 bytes each."""


class OpenedIndex(NamedTuple):
    """A key index that belongs to a segment."""

    header: KeyIndexHeader
    pages: KeyIndex


def take_keys(walk: KeyWalk | KeyPicker, chunk: Chunk) -> None:
    """Give a chunk's batches to what takes their keys or records; raise InvalidRecord or CorruptRecord for damage."""
    runs = plain_runs(chunk.data, chunk.batches, chunk.first, chunk.last, base_position=chunk.position)
    for run in runs:
        if not walk.take(run.data, run.table, run.first, run.last, run.base_position):
            run.record_damage(walk)
        run.raise_failure(chunk.path)


def build_segment(segment: AnySegment, bound: int, place: KeyIndexPlace, secret: bytes) -> KeyIndexHeader:
    """Write the key index of a closed segment, whose offsets are below `bound`, and return its header.

    Raises CorruptRecord, InvalidRecord or IllegalArgument (an unknown codec) for a segment that is not sound,
    StorageError.
    """
    base_offset, size = segment.base_offset, segment.size
    bound = min(bound, base_offset + MOST_OFFSETS)
    before = status_of(segment)
    builder, digest = KeyBuilder(secret, base_offset, bound), SegmentDigest(secret)
    blocks: list[Block] = []
    next_offset = base_offset
    for chunk in whole_chunks(segment, bound, size):
        digest.take(chunk.data, chunk.batches, chunk.first, chunk.last, chunk.position)
        builder.mark(chunk.batches, chunk.first, chunk.last)
        take_keys(builder, chunk)
        next_offset = chunk.next_offset
        if builder.count >= MOST_BLOCK_RECORDS:
            blocks.append(Block(*builder.finish()))
    blocks.append(Block(*builder.finish()))
    after = status_of(segment)
    refuse_changed(segment, before, after)
    stamp = settled_stamp(after) if after.st_size == size else NO_STAMP
    header = KeyIndexHeader(base_offset, next_offset, size, digest.value, secret, stamp, builder.records)
    data = packed(header, blocks)
    place.write(base_offset, *data)
    return header._replace(file_bytes=sum(map(len, data)))


def open_index(segment: AnySegment, place: KeyIndexPlace) -> OpenedIndex | None:
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
    status = status_of(segment)
    try:
        if stamp_of(status) != header.stamp and digest_of(segment, header.secret, 0, segment.size) != header.digest:
            raise _stale(path)
    except (CorruptRecord, InvalidRecord) as error:  # in the segment, which is read where it is needed
        raise _stale(path) from error
    return OpenedIndex(header, index)


def _stale(path: str) -> CorruptIndex:
    return CorruptIndex(
        "the key index is not that of its segment", path=path, hint="the segment is searched; build the index again"
    )
