"""File systems in which tiered partitions are whole, by the text that a caller gives as `tiered`."""

from __future__ import annotations

import os
from collections.abc import Iterable

from kafkalog.storage.readonly.view import LogView
from kafkalog.storage.remote import is_url, locate_directories
from kafkalog.tiered.description import read_description
from kafkalog.tiered.metadata_topic import MetadataTopic
from kafkalog.tiered.objects import ObjectStore
from kafkalog.tiered.topics import TieredTopics, partition_in
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.paths import real_path

Text = str | os.PathLike[str]


def tiered_file_system(base: FileSystem, directories: Iterable[str], tiered: Text) -> TieredTopics:
    """Return `base` with the tiered segments of the partitions in its data directories.

    tiered: URL of the store, or path of a description. Which copies count is read from `__remote_log_metadata` in the
    description's `metadata`, else in `directories`. Raises IllegalArgument, MissingPackage, StorageError.
    """
    description = read_description(tiered)
    if description.metadata:
        fs, places = located(description.metadata)
    else:
        fs, places = base, [os.path.dirname(one) if partition_in(one) else one for one in directories]
    return TieredTopics(base, ObjectStore(description), MetadataTopic(fs, places))


def tiered_view(path: str | bytes | os.PathLike[str], tiered: Text) -> LogView:
    """Open a partition directory, local or at a URL, with its tiered segments; errors as for `tiered_file_system`."""
    fs, (where,) = located([os.fsdecode(path)], tiered)
    return LogView(where, fs=fs)


def located(given: Iterable[str], tiered: Text | None = None) -> tuple[FileSystem, list[str]]:
    """Return the file system of data directories, local or at URLs, and their paths; with `tiered`, whole topics."""
    directories = list(given)
    fs, paths = locate_directories(directories) if any(map(is_url, directories)) else (OS, directories)
    if tiered is None:
        return fs, paths
    paths = [real_path(one) for one in paths]
    return tiered_file_system(fs, paths, tiered), paths
