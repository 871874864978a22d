"""What the next opening for writing will cut off a log, found without changing anything.

It looks where the loader does: after an unclean end at each segment from the recovery point on, besides at those whose
indexes have to be made from their data. What an interrupted clean or split left is not put in place for it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from kafkalog.errors import FormatError
from kafkalog.storage.directory import Directory, list_directory
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.kept import Loss, find_loss, whole_segments
from kafkalog.storage.names import (
    INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    base_name,
    is_log_file,
    log_file_name,
    parse_base_offset,
)
from kafkalog.storage.recovery import FileData, FoundSegment, scan_segment
from kafkalog.storage.transaction_index import TransactionIndex
from kafkalog.util.fileio import FileSystem


class Cut(NamedTuple):
    """The segment at `path` will end at byte `position`, offset `offset`, and lose `size` bytes, since `reason`.

    `later` segments go too; `loss` is what is sound of all that goes, None for nothing.
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
    recovery_point: int = 0,
    log_start_offset: int = 0,
    ends: Mapping[int, int] = MappingProxyType({}),
) -> list[Cut]:
    """What opening the partition in `directory` for writing will cut, oldest first. StorageError, NotAPartition.

    `is_clean` says that a mark of a clean shutdown vouches for it; the offsets are those of the checkpoints. `ends` has
    the segments that are known to be sound, which are not read: the offset behind each, by base offset.
    """
    listed = list_directory(directory, fs)
    bases = sorted({parse_base_offset(name) or 0 for name in listed.sizes if is_log_file(name)})
    before_point = [at for at, base in enumerate(bases) if base <= recovery_point]
    unflushed = len(bases) if is_clean else max(before_point, default=0)
    cuts: list[Cut] = []
    end = -1
    for at, base in enumerate(bases):
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
        is_end = at >= unflushed and not (following and following[0] == end)
        cuts.append(_cut_of(listed, base, found, following if is_end else (), fs))
        if is_end:
            bases = bases[: at + 1]
            break
    if bases and bases[-1] < log_start_offset:
        cuts += _below_start(listed, bases, end, log_start_offset, fs)
    return cuts


def refuse_loss(
    directory: str, fs: FileSystem, *, is_clean: bool, recovery_point: int = 0, log_start_offset: int = 0
) -> None:
    """CorruptRecord where opening the partition for writing would give sound batches up; nothing is changed."""
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
    """The cut of all segments, where the log ends below its start."""
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
    """True where the loader makes all indexes of a segment from its data, though it was flushed."""
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
        return scan_segment(FileData(records, base))
    finally:
        records.close_handlers()
