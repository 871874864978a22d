"""Files of a partition's directory, grouped for a backup into those to copy and those to leave out."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Final, NamedTuple

from kafkalog.keys.place import KeyIndexPlace
from kafkalog.storage.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    base_name,
    parse_base_offset,
)
from kafkalog.storage.readonly.listing import unreadable
from kafkalog.time_ranges.place import TimeRangesPlace
from kafkalog.util.fileio import TMP_SUFFIX, FileSystem
from kafkalog.util.os_errors import os_errors

_SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, *INDEX_SUFFIXES)
_METADATA_SNAPSHOT: Final = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint")
_REPLACED_WHOLE: Final = frozenset({LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, "quorum-state"})
_TEMPORARY: Final = (DELETED_SUFFIX, CLEANED_SUFFIX, TMP_SUFFIX, ".part")
_SIDECARS: Final = (KeyIndexPlace.suffix, TimeRangesPlace.suffix)


class Listing(NamedTuple):
    """The files of a partition's directory by kind.

    `segments` are the base offsets of `.log` files, rising; `inodes` those of all segment files, by name; `swaps` files
    that are about to replace others, with the files that they are made from; `snapshots` producer snapshots by offset;
    `small` files that are replaced as a whole; `unknown` files that are neither Kafka's nor sidecars of segments.
    """

    segments: tuple[int, ...]
    inodes: dict[str, int]
    swaps: tuple[str, ...]
    snapshots: dict[int, str]
    small: tuple[str, ...]
    unknown: tuple[str, ...]

    def files_of(self, base_offset: int) -> list[str]:
        """Return the files of a segment, the data first."""
        return [name for name in names_of(base_offset) if name in self.inodes]


def names_of(base_offset: int) -> list[str]:
    """Return all possible file names of a segment, the data's first."""
    return [base_name(base_offset) + suffix for suffix in _SEGMENT_SUFFIXES]


def list_partition(path: str, fs: FileSystem) -> Listing:
    """List the directory `path`. PartitionNotFound, NotAPartition, StorageError."""
    segments: list[int] = []
    inodes: dict[str, int] = {}
    swaps: list[str] = []
    snapshots: dict[int, str] = {}
    small: list[str] = []
    unknown: list[str] = []
    try:
        with fs.entries(path) as entries:
            found = [(entry.name, entry.inode()) for entry in entries]
    except OSError as error:
        raise unreadable(path, error) from error
    for name, inode in sorted(found):
        base = parse_base_offset(name)
        if base is not None and name.endswith(_SEGMENT_SUFFIXES):
            inodes[name] = inode
            if name.endswith(LOG_SUFFIX):
                segments.append(base)
        elif base is not None and name.endswith((SWAP_SUFFIX, CLEANED_SUFFIX)):
            swaps.append(name)
        elif base is not None and name.endswith(SNAPSHOT_SUFFIX):
            snapshots[base] = name
        elif name in _REPLACED_WHOLE or _METADATA_SNAPSHOT.fullmatch(name):
            small.append(name)
        elif not name.endswith(_TEMPORARY) and not _is_sidecar(name, base):
            unknown.append(name)
    is_swapped = any(name.endswith(SWAP_SUFFIX) for name in swaps)
    pending = tuple(swaps) if is_swapped else ()  # without one, files being cleaned are not part of the log yet
    return Listing(tuple(sorted(segments)), inodes, pending, snapshots, tuple(small), tuple(unknown))


def _is_sidecar(name: str, base: int | None) -> bool:
    """Return True for a key index or time ranges of a segment, complete or being written: they can be rebuilt."""
    return base is not None and name.startswith(tuple(base_name(base) + suffix for suffix in _SIDECARS))


def status_of(path: str, fs: FileSystem) -> os.stat_result | None:
    """Return the status of a file; None if it is gone. StorageError."""
    with os_errors("examine", path), suppress(FileNotFoundError):
        return fs.stat(path)
    return None
