"""What an interrupted clean, split or delete left in a partition directory, and what becomes of it (LOAD-1 to LOAD-4).

    .deleted   waits for its delete: removed; a transaction index whose segment is still there, once that has another
    .cleaned   unfinished output: removed, and with it each .swap from its lowest offset on (an unfinished split)
    .swap      finished output: the segments that it replaces go, then it loses the suffix
    .snapshot.tmp   a producer snapshot that was being written: removed, nobody else ever would
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import Final, NamedTuple

from kafkalog.errors import CorruptRecord, FormatError, StorageError
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
from kafkalog.storage.recovery import FileData, scan_segment
from kafkalog.util.fileio import TMP_SUFFIX, FileSystem

_LOG: Final = logging.getLogger(__name__)
_DELETED_LOG: Final = LOG_SUFFIX + DELETED_SUFFIX
_SWAPPED_LOG: Final = LOG_SUFFIX + SWAP_SUFFIX
_DELETED_TXNS: Final = TXN_INDEX_SUFFIX + DELETED_SUFFIX
_UNWRITTEN: Final = SNAPSHOT_SUFFIX + TMP_SUFFIX
_IN_TRANSIT: Final = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, _UNWRITTEN)


class Leftovers(NamedTuple):
    """Names of files to remove, and of `.swap` files that take effect."""

    removed: tuple[str, ...]
    swaps: tuple[str, ...]


def renamed_txn_indexes(names: Iterable[str]) -> dict[int, str]:
    """Transaction indexes that wait for a delete while their segments do not: the file's name by base offset.

    Of a delete that was not synced the disk may keep some renames and not others. A segment without `.txnindex` says
    that nothing in it was aborted, so it has to be recovered. The file itself may be of another segment, one that
    began at the same offset before: what is in it is not believed.
    """
    there = frozenset(names)
    found = {}
    for name in there:
        base = parse_base_offset(name) if name.endswith(_DELETED_TXNS) else None
        if base is not None:
            stem = base_name(base)
            has_index = not there.isdisjoint((stem + TXN_INDEX_SUFFIX, stem + TXN_INDEX_SUFFIX + SWAP_SUFFIX))
            if stem + LOG_SUFFIX in there and not has_index:
                found[base] = name
    return found


def plan_leftovers(names: Iterable[str]) -> Leftovers:
    """What is to be removed, and which swaps are valid, by the names of the files alone."""
    files = sorted(names)
    kept = frozenset(renamed_txn_indexes(files).values())
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


def clear_leftovers(directory: Directory, fs: FileSystem, log_start_offset: int = 0) -> bool:
    """Remove and rename what `plan_leftovers` says; False where there was nothing to do.

    Where no segment stays, an empty one is made at the offset behind the last sound batch of what is removed, or at
    the log start: a crash between giving up the last segment and making the next one leaves no other, and a log never
    goes back to offsets that it gave out. StorageError where the system refuses; a second run goes on.
    """
    if not any(name.endswith(_IN_TRANSIT) for name in directory.names):
        return False
    _clear(directory.path, directory.names, fs, log_start_offset)
    return True


def _clear(directory: str, names: tuple[str, ...], fs: FileSystem, log_start_offset: int) -> None:
    plan = plan_leftovers(names)
    if not any(is_log_file(name.removesuffix(SWAP_SUFFIX)) for name in names):
        end = _deleted_end(directory, names, fs)
        if end:  # on disk before what tells of it goes: a second crash would forget it
            _make_file(directory, log_file_name(max(end, log_start_offset)), fs)
    for name in plan.removed:
        remove_file(directory, name, fs)
    plan = plan._replace(swaps=_without_damaged(directory, plan.swaps, set(names), fs))
    if not plan.swaps:
        return
    replaced = _replaced_range(directory, [n for n in plan.swaps if n.endswith(_SWAPPED_LOG)], fs)
    if replaced is not None:
        gone = set(plan.removed)
        for name in names:
            base = parse_base_offset(name)
            if name in gone or name.endswith(SWAP_SUFFIX) or base is None or not replaced[0] <= base < replaced[1]:
                continue
            _LOG.info("%s was replaced by a clean or a split: removed", os.path.join(directory, name))
            remove_file(directory, name, fs)
    # the data file goes last: while its suffix is there, a next start does the same again
    for name in sorted(plan.swaps, key=lambda n: n.endswith(_SWAPPED_LOG)):
        _rename(directory, name, name.removesuffix(SWAP_SUFFIX), fs)


def _without_damaged(directory: str, swaps: tuple[str, ...], names: set[str], fs: FileSystem) -> tuple[str, ...]:
    """`swaps` less those whose data is damaged while the segment they would replace first is still there.

    A replacement is synced before it is called `.swap`, and the oldest segment goes first: so nothing was given up for
    this one yet, and what it was made from is whole. It is removed.
    """
    damaged = set()
    for name in swaps:
        if name.endswith(_SWAPPED_LOG) and name.removesuffix(SWAP_SUFFIX) in names:
            path = os.path.join(directory, name)
            if not _is_whole(path, fs):
                _LOG.warning("%s is damaged: removed, the segments it was made from are still there", path)
                damaged.add(parse_base_offset(name))
    for name in swaps:
        if parse_base_offset(name) in damaged:
            remove_file(directory, name, fs)
    return tuple(name for name in swaps if parse_base_offset(name) not in damaged)


def _deleted_end(directory: str, names: Iterable[str], fs: FileSystem) -> int:
    """The offset behind the last sound batch of the newest `.log.deleted`; 0 where there is no such file."""
    bases = {parse_base_offset(name) or 0: name for name in names if name.endswith(_DELETED_LOG)}
    if not bases:
        return 0
    newest = max(bases)
    try:
        records = FileRecords.open(os.path.join(directory, bases[newest]), fs=fs, file_already_exists=True)
    except FormatError:  # no file of a log is so long
        return newest
    try:  # as recovery looks at it, for offsets lie outside the checksum
        return scan_segment(FileData(records, newest)).end_offset
    finally:
        records.close_handlers()


def _is_whole(path: str, fs: FileSystem) -> bool:
    """True when a file is sound batches from its first byte to its last."""
    records = FileRecords.open(path, fs=fs, file_already_exists=True)
    end = 0
    try:
        for table in records.tables(check_crc=True):
            if table.first_invalid >= 0:
                return False
            end = table.position(len(table) - 1) + table.size(len(table) - 1)
        return end == records.size
    except CorruptRecord:
        return False
    finally:
        records.close_handlers()


def _replaced_range(directory: str, swapped: list[str], fs: FileSystem) -> tuple[int, int] | None:
    """[first base, next offset) of the `.log.swap` files: what they take the place of."""
    low, high = None, -1
    for name in swapped:
        base = parse_base_offset(name) or 0
        low = base if low is None else min(low, base)
        high = max(high, _next_offset(os.path.join(directory, name), base, fs))
    return None if low is None else (low, high)


def _next_offset(path: str, base: int, fs: FileSystem) -> int:
    records = FileRecords.open(path, fs=fs, file_already_exists=True)
    following = base
    try:
        for table in records.tables():
            following = max(following, table.last_offset + 1)
    except CorruptRecord as error:
        _LOG.warning("%s", error)
    finally:
        records.close_handlers()
    return following


def _make_file(directory: str, name: str, fs: FileSystem) -> None:
    """Make an empty file, which is on disk then; one that is there stays."""
    path = os.path.join(directory, name)
    try:
        fs.open_file(path, "create").close()
        fs.fsync_dir(directory)
    except OSError as error:
        raise StorageError.from_os(error, "make the file", path=path) from error


def remove_file(directory: str, name: str, fs: FileSystem) -> None:
    """Remove a file; one that is gone already is fine. StorageError."""
    path = os.path.join(directory, name)
    try:
        fs.unlink_if_exists(path)
    except OSError as error:
        raise StorageError.from_os(error, "delete the file", path=path) from error


def _rename(directory: str, old: str, new: str, fs: FileSystem) -> None:
    path = os.path.join(directory, old)
    try:
        fs.rename(path, os.path.join(directory, new))
    except OSError as error:
        raise StorageError.from_os(error, f"rename to {new}", path=path) from error
