"""Forecast of the data that the next opening for writing will cut off a log; changes nothing.

It scans the segments that the loader scans. After an unclean shutdown these are the segments from the recovery point
on. Others are those whose indexes must be rebuilt from their data; no sound batch of these is cut. Files of an
interrupted clean or split are not taken into account.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from kafkalog.errors import FormatError
from kafkalog.storage.directory import Directory, list_directory
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.index.transaction_index import TransactionIndex
from kafkalog.storage.names import (
    INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    base_name,
    is_log_file,
    log_file_name,
    parse_base_offset,
)
from kafkalog.storage.recovery.kept import Loss, find_loss, whole_segments
from kafkalog.storage.recovery.recover_segment import FoundSegment, SegmentData, scan_segment
from kafkalog.util.fileio import FileSystem


class Cut(NamedTuple):
    """The segment at `path` will end at byte `position`, offset `offset`, and lose `size` bytes because of `reason`.

    `later` segments are removed too; `loss` holds the sound batches among all of it, None if there are none.
    """

    path: str
    position: int
    offset: int
    size: int
    reason: str
    later: int
    loss: Loss | None


def foresee_cuts(
    directory: str,
    fs: FileSystem,
    *,
    is_clean: bool,
    recovery_point: int,
    log_start_offset: int,
    ends: Mapping[int, int] = MappingProxyType({}),
) -> list[Cut]:
    """Return the cuts that opening `directory` for writing will make, oldest first. StorageError, NotAPartition.

    `is_clean` says that the shutdown was clean; the offsets are those of the checkpoints. `ends` lists segments
    known to be sound, which are not read: the offset behind each, by base offset.
    """
    listed = list_directory(directory, fs)
    bases = sorted({parse_base_offset(name) or 0 for name in listed.sizes if is_log_file(name)})
    before_point = [at for at, base in enumerate(bases) if base <= recovery_point]
    unflushed = len(bases) if is_clean else max(before_point, default=0)
    cuts: list[Cut] = []
    end = -1
    for at, base in enumerate(bases):
        end = -1
        if at < unflushed and not _is_read(listed, base, fs):
            continue
        if base in ends:
            end = ends[base]
            continue
        found = _scanned(listed, base, fs)
        end = found.end_offset
        if not found.is_cut:
            continue
        following = bases[at + 1 :]
        continues = bool(following) and following[0] == end
        is_end = at >= unflushed and not continues
        cut = _cut_of(listed, base, found, following if is_end else (), fs)
        if at >= unflushed or cut.loss is None and (continues or not following):
            cuts.append(cut)
        if is_end:
            bases = bases[: at + 1]
            break
    if bases and bases[-1] < log_start_offset:
        cuts += _below_start(listed, bases, end, log_start_offset, fs)
    return cuts


def refuse_loss(
    directory: str, fs: FileSystem, *, is_clean: bool, recovery_point: int, log_start_offset: int
) -> None:
    """Raise CorruptRecord if opening the partition for writing would remove sound batches; change nothing."""
    cuts = foresee_cuts(
        directory, fs, is_clean=is_clean, recovery_point=recovery_point, log_start_offset=log_start_offset
    )
    for cut in cuts:
        if cut.loss is not None:
            raise cut.loss.refusal()


def _cut_of(listed: Directory, base: int, found: FoundSegment, later: Sequence[int], fs: FileSystem) -> Cut:
    position, end = found.found.tail.size, found.end_offset
    loss = find_loss(listed.path, base, position, end, found.damage, later, fs)
    path = os.path.join(listed.path, log_file_name(base))
    return Cut(path, position, end, found.found.end - position, found.damage, len(later), loss)


def _below_start(listed: Directory, bases: list[int], end: int, start: int, fs: FileSystem) -> list[Cut]:
    """Return the cut of all segments if the log ends below its start."""
    last = bases[-1]
    end = end if end >= 0 else _scanned(listed, last, fs).end_offset
    if end >= start:
        return []
    reason = f"its log start is {start}, above its end"
    files = whole_segments(listed.path, bases, fs)
    loss = Loss(listed.path, last, 0, end, reason, files) if files else None
    path = os.path.join(listed.path, log_file_name(last))
    return [Cut(path, 0, end, listed.sizes[log_file_name(last)], reason, len(bases) - 1, loss)]


def _is_read(listed: Directory, base: int, fs: FileSystem) -> bool:
    """Return True if the loader rebuilds all indexes of a segment from its data although it was flushed."""
    stem = base_name(base)
    if stem + INDEX_SUFFIX not in listed.names:
        return True
    if stem + TXN_INDEX_SUFFIX not in listed.names:
        return False
    index = TransactionIndex(os.path.join(listed.path, stem + TXN_INDEX_SUFFIX), base, fs=fs)
    try:
        index.sanity_check()
    except FormatError:
        return True
    finally:
        index.close()
    return False


def _scanned(listed: Directory, base: int, fs: FileSystem) -> FoundSegment:
    records = FileRecords.open(os.path.join(listed.path, log_file_name(base)), fs=fs, mutable=False)
    try:
        return scan_segment(SegmentData(records, base))
    finally:
        records.close_handlers()
