"""The partition directories in a data directory, found by names alone (format.md section 9, MGR-22)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kafkalog.errors import IllegalState, NotAPartition
from kafkalog.storage.names import (
    DELETE_DIR_SUFFIX,
    FUTURE_DIR_SUFFIX,
    NOT_PARTITIONS,
    STRAY_DIR_SUFFIX,
    parse_dir,
    stray_dir_name,
)
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import FileSystem
from kafkalog.util.os_errors import os_errors

_LOG: Final = logging.getLogger(__name__)
IsStray = Callable[[TopicPartition, str | None], bool]
"""Rule that returns True if a partition with this topic id (None: unknown) belongs to no topic, whatever its name."""


class PartitionPlace(NamedTuple):
    """A partition and its directory."""

    topic_partition: TopicPartition
    path: str

    @property
    def name(self) -> str:
        """The partition directory's name."""
        return os.path.basename(self.path)


class Inventory(NamedTuple):
    """The partition directories of a data directory by kind."""

    live: tuple[PartitionPlace, ...]
    future: tuple[PartitionPlace, ...]
    deleted: tuple[PartitionPlace, ...]
    stray: tuple[PartitionPlace, ...]


def take_inventory(directory: str, fs: FileSystem) -> Inventory:
    """List the partition directories in `directory`. Files are ignored, with a warning if named like partitions.

    NotAPartition for a directory with any other name, as in the reference; StorageError if it cannot be read.
    """
    kinds: dict[str, list[PartitionPlace]] = {kind: [] for kind in ("", FUTURE_DIR_SUFFIX, DELETE_DIR_SUFFIX)}
    kinds[STRAY_DIR_SUFFIX] = []
    for name, is_directory in _entries(directory, fs):
        path = os.path.join(directory, name)
        if name in NOT_PARTITIONS:
            continue
        try:
            topic_partition, kind = parse_dir(name)
        except NotAPartition as error:
            if not is_directory:
                continue
            raise NotAPartition(
                error.message,
                path=path,
                hint="a data directory may contain only partition directories: move this one elsewhere",
            ) from None
        if not is_directory:
            _LOG.warning("ignoring %s: a file with the name of a partition directory", path)
            continue
        kinds[kind].append(PartitionPlace(topic_partition, path))
    live, future, deleted, stray = (tuple(sorted(found)) for found in kinds.values())
    return Inventory(live, future, deleted, stray)


def check_no_duplicates(inventories: Iterable[Inventory]) -> None:
    """Raise IllegalState, naming both directories, if a partition or a future one exists twice."""
    listed = list(inventories)
    live = [place for inventory in listed for place in inventory.live]
    future = [place for inventory in listed for place in inventory.future]
    for what, places in (("partition", live), ("future replica", future)):
        known: dict[TopicPartition, str] = {}
        for topic_partition, path in places:
            other = known.setdefault(topic_partition, path)
            if other is not path:
                raise IllegalState(
                    f"the {what} {topic_partition} is also in {other}",
                    path=path,
                    hint="one of them is left over from an interrupted move between directories: "
                    "keep the complete one and move the other away",
                )


def any_rule(*rules: IsStray | None) -> IsStray | None:
    """Return a rule that is True if one of these rules is; None if there is no rule."""
    active = [rule for rule in rules if rule is not None]
    return (lambda key, topic_id: any(rule(key, topic_id) for rule in active)) if active else None


def without_strays(
    inventory: Inventory, is_stray: IsStray | None, fs: FileSystem
) -> tuple[Inventory, tuple[PartitionPlace, ...]]:
    """Return the inventory without the partitions for which `is_stray` is True, and those partitions (MGR-26).

    StorageError.
    """
    if is_stray is None:
        return inventory, ()
    strays = tuple(
        place
        for place in inventory.live
        if is_stray(place.topic_partition, read_partition_metadata(fs, place.path))
    )
    remaining = tuple(sorted(set(inventory.live) - set(strays)))
    return inventory._replace(live=remaining), strays


def set_aside(inventory: Inventory, strays: Iterable[PartitionPlace], fs: FileSystem) -> Inventory:
    """Rename these partitions to `-stray` and return the updated inventory (MGR-26). StorageError."""
    renamed = []
    for place in strays:
        target = os.path.join(os.path.dirname(place.path), stray_dir_name(place.topic_partition))
        with os_errors("set the partition aside", place.path):
            fs.rename(place.path, target)
            fs.fsync_dir(os.path.dirname(target))
        _LOG.warning("%s belongs to no topic: renamed to %s", place.path, target)
        renamed.append(PartitionPlace(place.topic_partition, target))
    return inventory._replace(stray=(*inventory.stray, *renamed))


def _entries(directory: str, fs: FileSystem) -> list[tuple[str, bool]]:
    """List a directory as (name, True for a directory); links are followed."""
    with os_errors("read the data directory", directory):
        with fs.entries(directory) as entries:
            return [(entry.name, entry.is_dir()) for entry in entries]
