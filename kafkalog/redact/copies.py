"""Other copies of a partition's records in its data directory, which a redaction of the log does not change."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafkalog._core.keys.given_keys import hash_keys
from kafkalog._core.keys.key_finder import KeyFinder
from kafkalog.backup.copies import COPIES
from kafkalog.backup.create import STAGING as PREPARED
from kafkalog.backup.remote.local_copy import DOWNLOADS
from kafkalog.backup.restore import STAGING
from kafkalog.errors import NotAPartition
from kafkalog.manager.deletion import remove_tree
from kafkalog.records.plain_runs import plain_runs
from kafkalog.redact.report import Copy
from kafkalog.redact.wanted import Wanted
from kafkalog.sidecars.identity import new_secret
from kafkalog.storage.file_slice import FileSlice
from kafkalog.storage.names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX, parse_dir
from kafkalog.storage.recovery.kept import Kept, list_kept, unlisted_kept
from kafkalog.storage.recovery.sound_runs import sound_runs
from kafkalog.tools.kept import remove_kept
from kafkalog.util.os_errors import os_errors, walk

if TYPE_CHECKING:
    from kafkalog.tools.directories import PartitionPath
    from kafkalog.util.fileio import File, FileSystem

_PIECE_BYTES = 1 << 20
STAGED_PREFIX = "kafkalog-stage."
"""Beginning of the names of files in a data directory with records that are not in a log yet."""
_LEFTOVERS = (CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX)


_BESIDE = {
    PREPARED: "a backup that a killed run prepared for an object store: the next one uploads it",
    DOWNLOADS: "a backup that a killed restore downloaded",
    COPIES: "copies that a killed restore made",
}
"""Suffixes of directories beside a data directory with copies of partitions."""


def leftovers_in(path: str, fs: FileSystem) -> list[str]:
    """Return the names of files that a delete, a clean or a redaction left; the next opening removes them."""
    with os_errors("list the partition directory", path):
        return sorted(name for name in fs.names(path) if name.endswith(_LEFTOVERS))


def copies_of(place: PartitionPath, wanted: Wanted, fs: FileSystem, *, remove: bool) -> list[Copy]:
    """Return the copies that may hold records wanted; those that recovery kept are removed with `remove`."""
    found = [Copy(os.path.join(place.path, name), "a file to be deleted") for name in leftovers_in(place.path, fs)]
    listed = list_kept(place.path, fs)
    kept = [one for one in listed if _may_hold(one, wanted, fs)]
    unlisted = unlisted_kept(place.path, listed, fs)
    if remove and kept:
        remove_kept([place.path], apply=True, entries=[one.name for one in kept], fs=fs)
    if remove:
        for path in unlisted:
            with os_errors("remove the kept records", path):
                remove_tree(path, fs)
    ending = "" if remove else ", which `kafkalog redact --remove-kept` removes"
    found += [Copy(one.path, f"records that recovery kept{ending}", remove) for one in kept]
    what = f"files without a manifest, of a recovery or a removal that was stopped{ending}"
    found += [Copy(path, what, remove) for path in unlisted]
    return found + _other_directories(place, fs)


def staged_in(directory: str, topic: str, fs: FileSystem) -> list[Copy]:
    """Return the staged files of a data directory, which the next commit there may append, and what killed runs left.
    """
    with os_errors("list the data directory", directory):
        names = sorted(name for name in fs.names(directory) if name.startswith(STAGED_PREFIX))
    what = "records that a write has staged: if it is decided, the next commit to the directory appends them"
    return [*(Copy(os.path.join(directory, name), what) for name in names), *_unfinished(directory, topic, fs)]


def _unfinished(directory: str, topic: str, fs: FileSystem) -> list[Copy]:
    """Return what killed backups, restores and imports left of a topic in a data directory, and beside it."""
    places = {os.path.join(directory, STAGING): "partitions that a killed restore or import left"}
    places |= {os.path.realpath(directory) + suffix: what for suffix, what in _BESIDE.items()}
    return [Copy(path, what) for path, what in places.items() if fs.exists(path) and _has_partition(path, topic)]


def _has_partition(path: str, topic: str) -> bool:
    with os_errors("list the directory", path):
        return any(_topic_of(name) == topic for _, below, _ in walk(path) for name in below)


def _topic_of(name: str) -> str | None:
    try:
        return parse_dir(name).topic_partition.topic
    except NotAPartition:
        return None


def _may_hold(kept: Kept, wanted: Wanted, fs: FileSystem) -> bool:
    """Return True if kept files may have a record with a key that is wanted; they are not searched for anything else.

    Damaged bytes between their sound batches may hold any key.
    """
    if wanted.where is not None or any(wanted.offsets.values()):
        return True
    secret = new_secret()
    hashes = hash_keys(secret, sorted(wanted.keys))
    for one in kept.files:
        path = os.path.join(kept.path, one.name)
        with os_errors("read the kept records", path), fs.open_file(path, "r") as file:
            runs = list(sound_runs(file, 0, file.size(), one.base_offset))
            ends = [0, *(run.end for run in runs)]
            starts = [*(run.start for run in runs), file.size()]
            if not all(_is_blank(file, end, start) for end, start in zip(ends, starts, strict=True)):
                return True
            for run in runs:
                finder = KeyFinder(secret, hashes, 0, 2**63 - 1, True)
                for data, table in FileSlice(file, run.start, run.end - run.start).scanned():
                    for plain in plain_runs(data, table, base_position=table.position(0)):
                        finder.take(plain.data, plain.table, plain.first, plain.last, plain.base_position)
                        if plain.failed or finder.status or finder.take_found():
                            return True
    return False


def _is_blank(file: File, start: int, stop: int) -> bool:
    """Return True if a part of a file has only zeros, as space that was never written."""
    pieces = (file.pread(min(_PIECE_BYTES, stop - at), at) for at in range(start, stop, _PIECE_BYTES))
    return not any(piece.strip(b"\0") for piece in pieces)


def _other_directories(place: PartitionPath, fs: FileSystem) -> list[Copy]:
    """Return the deleted, future and stray directories of the partition."""
    parent = os.path.dirname(place.path)
    found = []
    with os_errors("list the data directory", parent):
        names = sorted(fs.names(parent))
    for name in names:
        try:
            other = parse_dir(name)
        except NotAPartition:
            continue
        if other.kind and other.topic_partition == place.topic_partition:
            found.append(Copy(os.path.join(parent, name), f"the partition's {other.kind.strip('-')} directory"))
    return found
