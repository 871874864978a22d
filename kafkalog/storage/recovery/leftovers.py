"""Clearing files left by an interrupted clean, split or delete in a partition directory (LOAD-1 to LOAD-4).

    .deleted   pending delete: removed; a transaction index whose segment still exists only after that has a new one
    .cleaned   unfinished output: removed, with each .swap from its lowest offset on (an unfinished split)
    .swap      finished output: the segments it replaces are removed, then it loses the suffix
    .snapshot.tmp   unfinished producer snapshot: removed, since nothing else removes it
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from kafkalog.errors import FormatError
from kafkalog.storage.directory import Directory
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.names import (
    CHECKPOINT_DELETED_SUFFIX,
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TXN_INDEX_SUFFIX,
    base_name,
    is_log_file,
    log_file_name,
    parse_base_offset,
)
from kafkalog.storage.recovery.kept import Loss, whole_segments
from kafkalog.storage.recovery.recover_segment import SegmentData, scan_segment
from kafkalog.util.fileio import TMP_SUFFIX, FileSystem
from kafkalog.util.os_errors import os_errors

_LOG: Final = logging.getLogger(__name__)
_DELETED_LOG: Final = LOG_SUFFIX + DELETED_SUFFIX
_SWAPPED_LOG: Final = LOG_SUFFIX + SWAP_SUFFIX
_DELETED_TXNS: Final = TXN_INDEX_SUFFIX + DELETED_SUFFIX
_UNWRITTEN: Final = SNAPSHOT_SUFFIX + TMP_SUFFIX
_IN_TRANSIT: Final = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, _UNWRITTEN)


class Leftovers(NamedTuple):
    """Names of the files to remove, and of the `.swap` files that take effect."""

    removed: tuple[str, ...]
    swaps: tuple[str, ...]


def renamed_txn_indexes(names: Iterable[str], clean: bool) -> dict[int, str]:
    """Return transaction indexes renamed for deletion whose segments were not: file name by base offset.

    After a delete that was not synced, the disk may have only some of the renames. A segment without `.txnindex`
    would mean that nothing in it was aborted, so it has to be recovered. The file may belong to another segment, one
    that began at the same offset before, so its content is not trusted. After a `clean` shutdown it does belong to
    that one if its `.log` was renamed too.
    """
    existing = frozenset(names)
    found = {}
    for name in existing:
        base = parse_base_offset(name) if name.endswith(_DELETED_TXNS) else None
        if base is not None:
            stem = base_name(base)
            has_index = not existing.isdisjoint((stem + TXN_INDEX_SUFFIX, stem + TXN_INDEX_SUFFIX + SWAP_SUFFIX))
            is_complete = clean and stem + _DELETED_LOG in existing
            if stem + LOG_SUFFIX in existing and not has_index and not is_complete:
                found[base] = name
    return found


def plan_leftovers(names: Iterable[str], clean: bool) -> Leftovers:
    """Decide by file names alone which files to remove and which swaps are valid."""
    files = sorted(names)
    kept = frozenset(renamed_txn_indexes(files, clean).values())
    cleaned = [name for name in files if name.endswith(CLEANED_SUFFIX)]
    bases = [base for base in map(parse_base_offset, cleaned) if base is not None]
    first_cleaned = min(bases, default=None)
    deleted = [n for n in files if n.endswith(DELETED_SUFFIX) and not n.endswith(CHECKPOINT_DELETED_SUFFIX)]
    removed = [name for name in deleted if name not in kept]
    removed += [name for name in files if name.endswith(_UNWRITTEN) and parse_base_offset(name) is not None]
    swaps = []
    for name in files:
        base = parse_base_offset(name)
        if not name.endswith(SWAP_SUFFIX) or base is None:
            continue
        if first_cleaned is not None and base >= first_cleaned:
            removed.append(name)
        else:
            swaps.append(name)
    return Leftovers((*removed, *cleaned), tuple(swaps))


def clear_leftovers(
    directory: Directory, fs: FileSystem, keep: Callable[[Loss], object], log_start_offset: int, clean: bool
) -> bool:
    """Remove and rename files as `plan_leftovers` decides; return False if there was nothing to do.

    If no segment remains, an empty one is created at the offset behind the last sound batch of the removed files, or
    at the log start. A crash between removing the last segment and creating the next one leaves none, and a log
    never returns to offsets that it has assigned. `keep` is called with segments to be removed whose replacement may
    be damaged. StorageError if the system refuses; a second run continues.
    """
    if not any(name.endswith(_IN_TRANSIT) for name in directory.names):
        return False
    plan = plan_leftovers(directory.names, clean)
    _clear(directory.path, directory.names, plan, fs, keep, log_start_offset)
    return True


def _clear(
    directory: str,
    names: tuple[str, ...],
    plan: Leftovers,
    fs: FileSystem,
    keep: Callable[[Loss], object],
    log_start_offset: int,
) -> None:
    if not any(is_log_file(name.removesuffix(SWAP_SUFFIX)) for name in names):
        end = _deleted_end(directory, names, fs)
        if end:  # on disk before its evidence is removed: a second crash would lose it
            _make_file(directory, log_file_name(max(end, log_start_offset)), fs)
    existing = set(names) - set(plan.removed)
    found = [_swap_of(directory, name, names, fs) for name in plan.swaps if name.endswith(_SWAPPED_LOG)]
    # the oldest segment is removed first: if it exists, nothing was removed for its replacement yet
    refused = {swap.base_offset for swap in found if not swap.is_whole and log_file_name(swap.base_offset) in existing}
    used = [swap for swap in found if swap.base_offset not in refused]
    _keep_replaced(directory, used, existing, fs, keep)
    for name in plan.removed:
        remove_file(directory, name, fs)
    for name in plan.swaps:
        if parse_base_offset(name) in refused:
            if name.endswith(_SWAPPED_LOG):
                path = os.path.join(directory, name)
                _LOG.warning("removed %s, which is damaged; the segments it was built from still exist", path)
            remove_file(directory, name, fs)
    for name in _replaced(used, existing):
        _LOG.info("removed %s, which a clean or a split replaced", os.path.join(directory, name))
        remove_file(directory, name, fs)
    # the data file is renamed last: while it has its suffix, the next start repeats all of this
    for name in sorted(plan.swaps, key=lambda n: n.endswith(_SWAPPED_LOG)):
        if parse_base_offset(name) not in refused:
            _rename(directory, name, name.removesuffix(SWAP_SUFFIX), fs)


class _Swap(NamedTuple):
    """A `.log.swap` file, which replaces the segments from `base_offset` up to `next_offset`.

    It is sound up to byte `position`; `is_whole` if that is its end. The last batch may lie behind a gap in which
    another segment begins. Its base offset may then be damaged: the file is whole, but not `is_sure`.
    """

    base_offset: int
    next_offset: int
    position: int
    is_whole: bool
    is_sure: bool


def _swap_of(directory: str, name: str, names: Iterable[str], fs: FileSystem) -> _Swap:
    base = parse_base_offset(name) or 0
    records = FileRecords.open(os.path.join(directory, name), fs=fs, file_already_exists=True)
    try:
        scanned = scan_segment(SegmentData(records, base))
        before, end, position = base, base, scanned.found.tail.size
        for table in records.slice(0, position if scanned.is_cut else records.size).tables():
            row = len(table) - 1
            before = table.last_offset_of(row - 1) + 1 if row else end
            end = table.last_offset_of(row) + 1
    finally:
        records.close_handlers()
    bases = (parse_base_offset(name) or 0 for name in names if is_log_file(name))
    return _Swap(base, end, position, not scanned.is_cut, not any(before < other < end for other in bases))


def _replaced(swaps: Sequence[_Swap], names: Iterable[str]) -> list[str]:
    """Return the files of the segments that the swaps replace."""
    low = min((swap.base_offset for swap in swaps), default=0)
    high = max((swap.next_offset for swap in swaps), default=0)
    found = ((name, parse_base_offset(name)) for name in names if not name.endswith(SWAP_SUFFIX))
    return sorted(name for name, base in found if base is not None and low <= base < high)


def _keep_replaced(
    directory: str, swaps: Sequence[_Swap], names: Iterable[str], fs: FileSystem, keep: Callable[[Loss], object]
) -> None:
    """Call `keep` with the replaced segments if one of the swaps may be damaged."""
    doubtful = next((swap for swap in swaps if not (swap.is_whole and swap.is_sure)), None)
    if doubtful is not None:
        bases = [parse_base_offset(name) or 0 for name in _replaced(swaps, names) if is_log_file(name)]
        files = whole_segments(directory, bases, fs)
        if files:
            reason = "the file that replaces segments behind it may be damaged"
            keep(Loss(directory, doubtful.base_offset, doubtful.position, doubtful.next_offset, reason, files))


def _deleted_end(directory: str, names: Iterable[str], fs: FileSystem) -> int:
    """Return the offset behind the last sound batch of the newest `.log.deleted`; 0 if there is no such file."""
    bases = {parse_base_offset(name) or 0: name for name in names if name.endswith(_DELETED_LOG)}
    if not bases:
        return 0
    newest = max(bases)
    try:
        records = FileRecords.open(os.path.join(directory, bases[newest]), fs=fs, file_already_exists=True)
    except FormatError:  # longer than any file of a log
        return newest
    try:  # scanned as in recovery, since checksums do not cover offsets
        return scan_segment(SegmentData(records, newest)).end_offset
    finally:
        records.close_handlers()


def _make_file(directory: str, name: str, fs: FileSystem) -> None:
    """Create an empty file and sync its directory; an existing file stays."""
    path = os.path.join(directory, name)
    with os_errors("create the file", path):
        fs.open_file(path, "create").close()
        fs.fsync_dir(directory)


def remove_file(directory: str, name: str, fs: FileSystem) -> None:
    """Remove a file; a missing one is ignored. StorageError."""
    path = os.path.join(directory, name)
    with os_errors("delete the file", path):
        fs.unlink_if_exists(path)


def _rename(directory: str, old: str, new: str, fs: FileSystem) -> None:
    path = os.path.join(directory, old)
    with os_errors(f"rename to {new}", path):
        fs.rename(path, os.path.join(directory, new))
