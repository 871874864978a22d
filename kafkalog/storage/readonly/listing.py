"""Segments of a partition directory, read from its names while another process changes it."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, cast

from kafkalog.errors import NotAPartition, PartitionNotFound, StorageError
from kafkalog.storage.names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SWAP_SUFFIX,
    is_log_file,
    parse_base_offset,
    parse_topic_partition_dir,
)
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import FileSystem


class UnopenedSegment(NamedTuple):
    """A segment's data file in a listing; another `inode` under the same name is another file."""

    base_offset: int
    name: str
    inode: int


def list_segments(fs: FileSystem, directory: str) -> tuple[UnopenedSegment, ...]:
    """Return the segments in order of base offset, without `.deleted` and `.cleaned` files.

    A `.log.swap` is used if its `.log` is missing: the cleaner completes such a file before it removes the old ones,
    so it is briefly the only live copy. PartitionNotFound or StorageError.
    """
    live: dict[int, UnopenedSegment] = {}
    swapped: dict[int, UnopenedSegment] = {}
    try:
        with cast(Any, fs).scandir(directory) as entries:
            for entry in entries:
                name = entry.name
                base_offset = parse_base_offset(name)
                if base_offset is None:
                    continue
                if is_log_file(name):
                    live[base_offset] = UnopenedSegment(base_offset, name, entry.inode())
                elif _is_swap(name):
                    swapped[base_offset] = UnopenedSegment(base_offset, name, entry.inode())
    except OSError as error:
        raise unreadable(directory, error) from error
    return tuple(sorted({**swapped, **live}.values()))


def _is_swap(name: str) -> bool:
    return name.endswith(LOG_SUFFIX + SWAP_SUFFIX) and is_log_file(name.removesuffix(SWAP_SUFFIX))


def unreadable(directory: str, error: OSError) -> PartitionNotFound | NotAPartition | StorageError:
    """Return the typed error for a partition directory that cannot be listed."""
    if isinstance(error, FileNotFoundError):
        return PartitionNotFound(
            "the partition directory does not exist",
            path=directory,
            hint="check the path; a partition directory is named <topic>-<number>",
        )
    if isinstance(error, NotADirectoryError):
        return not_a_directory(directory)
    return StorageError.from_os(error, "list the partition directory", path=directory)


def not_a_directory(path: str) -> NotAPartition:
    """Return the error for a file given instead of a partition directory."""
    hint = "use the partition's directory, <data directory>/<topic>-<number>"
    if is_log_file(os.path.basename(path)):
        hint = f"this is one segment of a partition: open its directory, {os.path.dirname(path) or '.'}"
    return NotAPartition("a file was given instead of a partition directory", path=path, hint=hint)


def is_being_changed(fs: FileSystem, directory: str) -> bool:
    """Return True if a directory without segments looks like a partition that was just created or emptied."""
    try:
        return any(name == PARTITION_METADATA or DELETED_SUFFIX in name for name in fs.listdir(directory))
    except OSError as error:
        raise unreadable(directory, error) from error


def no_segments(fs: FileSystem, directory: str) -> NotAPartition:
    """Return the error for a directory without segments; it names any partitions inside."""
    try:
        inside = sorted(
            name
            for name in fs.listdir(directory)
            if name.rpartition("-")[2].isdecimal() and list_segments(fs, os.path.join(directory, name))
        )
    except (OSError, StorageError, PartitionNotFound, NotAPartition):
        inside = []
    hint = (
        "a partition directory contains files such as 00000000000000000000.log; "
        "if this one lost them, restore it from a replica or a backup, or move it away"
    )
    if inside:
        shown = ", ".join(inside[:5]) + (" ..." if len(inside) > 5 else "")
        hint = f"this is a data directory; open one of the partitions in it: {shown}"
    return NotAPartition("the directory contains no segment files", path=directory, hint=hint)


def partition_of(fs: FileSystem, path: str) -> TopicPartition:
    """Return the partition named by the directory, after checking that it is a directory."""
    try:
        fs.stat(os.path.join(path, ""))
    except NotADirectoryError:
        raise not_a_directory(path) from None
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        return parse_topic_partition_dir(os.path.basename(path))
    except NotAPartition as error:
        if not list_segments(fs, path):
            raise no_segments(fs, path) from None
        raise NotAPartition(error.message, path=path, hint=error.hint) from None
