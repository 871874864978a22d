"""Identity of a segment, for files that were made of it: the stamp of its file, or a digest of its batches' headers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog._core.keys.key_walk import SegmentDigest
from kafkalog.errors import CorruptRecord, FormatError, IllegalArgument, InvalidRecord, StorageError
from kafkalog.storage.file_slice import FileSlice
from kafkalog.storage.segment_reader import Chunk, Extent, segment_chunks
from kafkalog.util.os_errors import os_errors

if TYPE_CHECKING:
    from kafkalog.storage.segments import AnySegment

SECRET_BYTES: Final = 16
SETTLED_NS: Final = 2_000_000_000
"""Age (ns) of a file from which on its times tell a later change: they advance in ticks of a few ms."""


class FileStamp(NamedTuple):
    """A segment's file as the system describes it; the same values mean the same content. Times are in ns."""

    device: int
    inode: int
    modified_ns: int
    changed_ns: int


NO_STAMP: Final = FileStamp(0, 0, 0, 0)
UNSOUND: Final = (CorruptRecord, InvalidRecord, FormatError, IllegalArgument)
"""Errors of a segment that is not sound: it gets no file, and the others do."""


def new_secret() -> bytes:
    """Return a secret for hashes and digests."""
    return os.urandom(SECRET_BYTES)


def stamp_of(stat: os.stat_result) -> FileStamp:
    """Return the stamp of a file's status."""
    return FileStamp(stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns)


def settled_stamp(stat: os.stat_result) -> FileStamp:
    """Return the stamp of a file that was not changed lately, else NO_STAMP: another change may leave its times."""
    is_settled = time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) > SETTLED_NS
    return stamp_of(stat) if is_settled else NO_STAMP


def status_of(segment: AnySegment) -> os.stat_result:
    """Return the status of a segment's file; StorageError."""
    with os_errors("get the status of the segment", segment.path):
        return segment.records.opened().stat()


def refuse_changed(segment: AnySegment, before: os.stat_result, after: os.stat_result) -> None:
    """Raise StorageError if the segment was written while it was read."""
    if stamp_of(after) != stamp_of(before) or after.st_size != before.st_size:
        raise StorageError("the segment was changed while it was read", path=segment.path, hint="try again")


def whole_chunks(segment: AnySegment, bound: int, size: int) -> Iterator[Chunk]:
    """Yield the batches in the first `size` bytes of a segment whose offsets are below `bound`."""
    data = FileSlice(segment.records.opened(), 0, size)
    if size:
        data.file.expect_whole_read()
    return segment_chunks(Extent(segment.base_offset, data, bound), segment.base_offset, bound)


def digest_of(segment: AnySegment, secret: bytes, start: int, end: int) -> bytes:
    """Return the digest of the headers of the batches from one position of a segment to another.

    They are read without their checksums. Raises CorruptRecord for a size field that no batch has.
    """
    digest = SegmentDigest(secret)
    for data, table in FileSlice(segment.records.opened(), start, end - start).scanned():
        digest.take(data, table, 0, len(table), table.position(0))
    return digest.value
