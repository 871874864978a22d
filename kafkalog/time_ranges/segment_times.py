"""The times of one segment, piece by piece, and their file (docs/sql.md).

    header    magic, version, CRC-32C of the version and of all that follows it, the segment's identity, count of pieces
    pieces    offset after the last record, smallest and largest time in ms, 24 bytes a piece

All numbers are little-endian. A file that is cut, flipped, of another version or of another segment is never used.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog._core.bytes.crc import crc32c
from kafkalog._core.keys.key_walk import SegmentDigest
from kafkalog.errors import CorruptIndex
from kafkalog.records.column_reader import ColumnReader, kinds_of
from kafkalog.sidecars.identity import (
    NO_STAMP,
    FileStamp,
    digest_of,
    new_secret,
    refuse_changed,
    settled_stamp,
    stamp_of,
    status_of,
    whole_chunks,
)  # fmt: skip

if TYPE_CHECKING:
    from kafkalog.storage.lazy_file import DataFile
    from kafkalog.storage.segment_reader import Chunk
    from kafkalog.storage.segments import AnySegment

MAGIC: Final = b"KLTIMERG"
VERSION: Final = 1
MOST_FILE_BYTES: Final = 64 << 20
"""A segment of 2 GiB whose batches are as small as can be, each read by itself, stays below."""
_HEADER: Final = struct.Struct("<8sIIqqQ16s16sQQqqQ")
_PIECE: Final = struct.Struct("<qqq")
_CHECKED_FROM: Final = 16
_TIME: Final = kinds_of(["timestamp"])


class SegmentTimes(NamedTuple):
    """Smallest and largest time of the pieces of a segment, which are packed in `pieces` in the order of offsets.

    A piece reaches from the end of the one before it to its own; the first begins at `base_offset`. `digest` is that of
    the headers of all batches; `stamp` is NO_STAMP if the file had just been written.
    """

    base_offset: int
    segment_bytes: int
    digest: bytes
    secret: bytes
    stamp: FileStamp
    pieces: bytes

    @property
    def next_offset(self) -> int:
        """Offset after the last record."""
        return self.base_offset if not self.pieces else int(_PIECE.unpack(self.pieces[-_PIECE.size :])[0])

    @property
    def piece_count(self) -> int:
        """Number of pieces."""
        return len(self.pieces) // _PIECE.size

    def possible(self, start: int, stop: int, since_ms: int, until_ms: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of [start, stop) whose pieces may hold a time in [since_ms, until_ms), rising."""
        first = last = begin = self.base_offset
        for end, least, largest in _PIECE.iter_unpack(self.pieces):
            if least < until_ms and largest >= since_ms:
                if last != begin:
                    yield from _within(first, last, start, stop)
                    first = begin
                last = end
            begin = end
            if begin >= stop:
                break
        yield from _within(first, last, start, stop)


def _within(first: int, last: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    first, last = max(first, start), min(last, stop)
    if first < last:
        yield first, last


def read_times(segment: AnySegment, bound: int) -> SegmentTimes:
    """Return the times of a segment, whose offsets are below `bound`, from its records.

    Raises CorruptRecord, InvalidRecord or IllegalArgument (an unknown codec) for a segment that is not sound,
    StorageError.
    """
    size, before = segment.size, status_of(segment)
    secret = new_secret()
    digest = SegmentDigest(secret)
    pieces = []
    for chunk in whole_chunks(segment, bound, size):
        digest.take(chunk.data, chunk.batches, chunk.first, chunk.last, chunk.position)
        pieces.append(_PIECE.pack(chunk.next_offset, *least_and_largest(chunk)))
    after = status_of(segment)
    refuse_changed(segment, before, after)
    stamp = settled_stamp(after) if after.st_size == size else NO_STAMP
    return SegmentTimes(segment.base_offset, size, digest.value, secret, stamp, b"".join(pieces))


def least_and_largest(chunk: Chunk) -> tuple[int, int]:
    """Return the smallest and the largest time of all records of a chunk, control records too; (0, -1) for none."""
    from kafkalog.records.arrays import numpy

    reader = ColumnReader(_TIME)
    least, largest = None, -1
    read = reader.read(
        chunk.data, chunk.batches, chunk.first, chunk.last, base_position=chunk.position, path=chunk.path
    )
    for columns in chain(read, reader.rest()):
        times = numpy.asarray(columns.fixed(_TIME[0]))
        low, high = int(times.min()), int(times.max())
        least, largest = (low, high) if least is None else (min(least, low), max(largest, high))
    return (0, -1) if least is None else (least, largest)


def fitting(times: SegmentTimes, segment: AnySegment) -> SegmentTimes | None:
    """Return the times if they were made of exactly this segment, with its present stamp; None if they do not fit.

    The headers of the batches are read if the stamp does not decide it. Raises CorruptRecord, StorageError.
    """
    if times.base_offset != segment.base_offset or times.segment_bytes != segment.size:
        return None
    status = status_of(segment)
    if stamp_of(status) == times.stamp:
        return times
    if digest_of(segment, times.secret, 0, segment.size) != times.digest:
        return None
    return times._replace(stamp=settled_stamp(status) if status.st_size == segment.size else NO_STAMP)


def packed(times: SegmentTimes) -> bytes:
    """Return the content of a file of time ranges."""
    fields = _HEADER.pack(
        MAGIC, VERSION, 0, times.base_offset, times.next_offset, times.segment_bytes, times.digest, times.secret,
        *times.stamp, times.piece_count,
    )  # fmt: skip
    checked = fields[_CHECKED_FROM:] + times.pieces
    return MAGIC + struct.pack("<II", VERSION, crc32c(struct.pack("<I", VERSION) + checked)) + checked


def unpacked(file: DataFile) -> SegmentTimes:
    """Return the times in a file; raise CorruptIndex for one that is not whole, not sound or of another version.

    Raises OSError if it cannot be read.
    """
    size = file.stat().st_size
    if not _HEADER.size <= size <= MOST_FILE_BYTES:
        raise _unsound(f"has {size} bytes", file)
    data = file.pread(size, 0)
    if len(data) != size or data[:8] != MAGIC:
        raise _unsound("does not begin as time ranges do", file)
    version, checksum = struct.unpack_from("<II", data, 8)
    if version != VERSION:
        raise _unsound(f"has version {version}", file)
    if crc32c(struct.pack("<I", version) + data[_CHECKED_FROM:]) != checksum:
        raise _unsound("does not match its checksum", file)
    _, _, _, base, following, segment_bytes, digest, secret, *stamp, count = _HEADER.unpack_from(data)
    pieces = data[_HEADER.size :]
    if len(pieces) != count * _PIECE.size:
        raise _unsound("has sizes that contradict each other", file)
    times = SegmentTimes(base, segment_bytes, digest, secret, FileStamp(*stamp), pieces)
    ends = [base, *(end for end, _, _ in _PIECE.iter_unpack(pieces))]
    if following != ends[-1] or any(one > other for one, other in zip(ends, ends[1:], strict=False)):
        raise _unsound("has offsets that fall", file)
    return times


def _unsound(what: str, file: DataFile) -> CorruptIndex:
    return CorruptIndex(f"the file of time ranges {what}", path=file.path, hint="the segment is read instead")
