"""File systems in which tiered partitions are whole, by the text that a caller gives as `tiered`."""

from __future__ import annotations

import os
from collections.abc import Iterable

from kafkalog.storage.readonly.view import LogView
from kafkalog.storage.remote import is_url, locate, locate_directories
from kafkalog.tiered.description import Description, read_description
from kafkalog.tiered.metadata_topic import MetadataTopic
from kafkalog.tiered.place import PlaceFileSystem, TieredPlace, tiered_place
from kafkalog.tiered.segment_bytes import ObjectStore
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
    own = [os.path.dirname(one) if partition_in(one) else one for one in directories]
    fs, places = located(description.metadata) if description.metadata else (base, own)
    return TieredTopics(base, ObjectStore(description), MetadataTopic(fs, places), own)


def tiered_view(path: str | bytes | os.PathLike[str], tiered: Text) -> LogView:
    """Open a partition directory, local or at a URL, with its tiered segments; errors as for `tiered_file_system`."""
    text = os.fsdecode(path)
    if is_url(text):
        view = place_view(text, tiered)
        if view is not None:
            return view
    fs, (where,) = located([text], tiered)
    return LogView(where, fs=fs)


def place_view(url: str, tiered: Text | None = None) -> LogView | None:
    """Open the partition in a tiered store at `url`; return None if the URL is not that of one.

    tiered: a description with the keys of the store, and directories of metadata. Errors as for `tiered_file_system`.
    """
    place = tiered_place("/" + url.partition("://")[2])
    if place is None:
        return None
    description = Description(url) if tiered is None else read_description(tiered)
    store = ObjectStore(description)
    path, partition = locate(url, description.options)[1], place.partition
    place = TieredPlace(path, partition._replace(topic=store.topic_in(path, partition.topic)), place.has_manifests)
    metadata = MetadataTopic(*located(description.metadata)) if description.metadata else None
    fs = PlaceFileSystem(store, place, metadata)
    return LogView(fs.path, fs=fs)


def located(given: Iterable[str], tiered: Text | None = None) -> tuple[FileSystem, list[str]]:
    """Return the file system of data directories, local or at URLs, and their paths; with `tiered`, whole topics."""
    directories = list(given)
    fs, paths = locate_directories(directories) if any(map(is_url, directories)) else (OS, directories)
    if tiered is None:
        return fs, paths
    paths = [real_path(one) for one in paths]
    return tiered_file_system(fs, paths, tiered), paths
