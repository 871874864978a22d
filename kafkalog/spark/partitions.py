"""Partitions of a read: their directories and their offsets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from time import sleep
from typing import Final, NamedTuple

from kafkalog.errors import (
    IllegalArgument,
    NotAPartition,
    PartitionNotFound,
    StorageError,
    UnknownTopicOrPartition,
)
from kafkalog.reading.source import end_of, isolation_of, refresh
from kafkalog.spark.limits import Limit, resolve
from kafkalog.spark.subscriptions import Assign, Subscribe, Subscription
from kafkalog.storage.names import PARTITION_METADATA, is_log_file, parse_dir
from kafkalog.storage.readonly.view import LogView
from kafkalog.tools.directories import PartitionPath, partitions
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint_cache import CheckpointCache
from kafkalog.util.closing import Closing
from kafkalog.util.fileio import OS, FileSystem

MAX_TRIES: Final = 4
RETRY_S: Final = 0.02
"""Looks, and seconds between them, before a partition in two directories is an error: it may be moving."""


class Bounds(NamedTuple):
    """Offsets of a partition that can be read: from `earliest` up to `latest`, exclusive."""

    earliest: int
    latest: int


def find_partitions(
    paths: Sequence[str], subscription: Subscription | None, *, absent_ok: bool = False, fs: FileSystem = OS
) -> dict[TopicPartition, str]:
    """Return the partitions that `subscription` names in data directories and partition directories, with their paths.

    They are in order of topic and number. A pattern that matches no topic returns none. Without a subscription, `paths`
    are the partitions' own directories. Directories marked for deletion, strays and future replicas are not partitions.
    Raises PartitionNotFound for a path that does not exist, NotAPartition for a partition in two places,
    UnknownTopicOrPartition for a named topic or partition that is absent (unless `absent_ok`), IllegalArgument if
    topics must be named.
    """
    there = _all_partitions(paths, fs)
    if subscription is None:
        data = [path for path in paths if _own_partition(path, fs) is None]
        if data:
            raise IllegalArgument(
                f"no topic is named, and {data[0]} is a data directory",
                hint=f"set one of subscribe, subscribePattern, assign; topics here: {_format_list(_topics(there))}",
            )
        return there
    if isinstance(subscription, Subscribe):
        _check_topics(() if absent_ok else subscription.topics, there, paths)
        return {one: path for one, path in there.items() if one.topic in subscription.topics}
    if isinstance(subscription, Assign):
        _check_topics(() if absent_ok else subscription.topics, there, paths)
        missing = [one for one in subscription.partitions if one not in there and not absent_ok]
        if missing:
            numbers = ", ".join(str(one.partition) for one in there if one.topic == missing[0].topic)
            raise UnknownTopicOrPartition(
                f"topic {missing[0].topic} has no partition {missing[0].partition}",
                path=os.pathsep.join(paths),
                hint=f"it has {numbers}",
            )
        wanted = set(subscription.partitions)
        return {one: path for one, path in there.items() if one in wanted}
    return {one: path for one, path in there.items() if subscription.matches(one.topic)}


def _all_partitions(paths: Sequence[str], fs: FileSystem) -> dict[TopicPartition, str]:
    """List partitions; retry while a replica that moves between disks is in both directories."""
    for _ in range(MAX_TRIES - 1):
        try:
            return _listed_partitions(paths, fs)
        except _DuplicatePartition:
            sleep(RETRY_S)
    try:
        return _listed_partitions(paths, fs)
    except _DuplicatePartition as error:
        raise NotAPartition(error.message, path=error.path, hint=error.hint) from None


class _DuplicatePartition(NotAPartition):
    """A partition appears to be in two places."""


def _listed_partitions(paths: Sequence[str], fs: FileSystem) -> dict[TopicPartition, str]:
    found: dict[TopicPartition, str] = {}
    for path in paths:
        own = _own_partition(path, fs)
        for one, directory in [own] if own else partitions([path], fs=fs):
            directory = os.path.realpath(directory)
            other = found.setdefault(one, directory)
            if other != directory:
                raise _DuplicatePartition(
                    f"{one} is also in {other}", path=directory, hint="move one of them away, or omit its path"
                )
    return {one: found[one] for one in sorted(found)}


def _own_partition(path: str, fs: FileSystem) -> PartitionPath | None:
    """Return the partition whose own directory `path` is; None for a data directory."""
    try:
        names = fs.names(path)
    except FileNotFoundError:
        raise PartitionNotFound("there is no such directory", path=path, hint="check the path, on every node") from None
    except NotADirectoryError:
        raise NotAPartition(
            "a file, not a directory", path=path, hint="give the data directory, or a partition's directory"
        ) from None
    except OSError as error:
        raise StorageError.from_os(error, "read the directory", path=path) from error
    if not any(is_log_file(name) or name == PARTITION_METADATA for name in names):
        return None
    real = os.path.realpath(path)
    try:
        topic_partition, kind = parse_dir(os.path.basename(real))
    except NotAPartition as error:
        raise NotAPartition(error.message, path=path, hint=error.hint) from None
    if kind:
        raise NotAPartition(
            f"a directory in transit ({kind}), not a live partition", path=path, hint="give the directory of a live one"
        )
    return PartitionPath(topic_partition, real)


def _check_topics(named: Iterable[str], there: Iterable[TopicPartition], paths: Sequence[str]) -> None:
    topics = _topics(there)
    for topic in named:
        if topic not in topics:
            raise UnknownTopicOrPartition(
                f"there is no topic {topic}", path=os.pathsep.join(paths), hint=f"topics here: {_format_list(topics)}"
            )


def _topics(there: Iterable[TopicPartition]) -> list[str]:
    return list(dict.fromkeys(one.topic for one in there))


def _format_list(topics: list[str]) -> str:
    return ", ".join(topics[:8]) + (", ..." if len(topics) > 8 else "") if topics else "none"


def bounds_of(view: LogView, isolation: str) -> Bounds:
    """Return the start and end of a read of this view with this isolation level."""
    first = view.log_start_offset
    return Bounds(first, max(first, end_of(view, isolation_of(isolation))))


class PartitionViews(Closing):
    """Views of a plan's partitions, opened on first use; close it after use.

    Only one thread may use it.
    """

    def __init__(self, directories: dict[TopicPartition, str], isolation: str, fs: FileSystem = OS) -> None:
        self.directories = directories
        self.isolation = isolation
        self._fs = fs
        self._checkpoints = CheckpointCache(fs=fs)
        self._views: dict[TopicPartition, LogView] = {}
        self._bounds: dict[TopicPartition, Bounds] = {}

    def __getitem__(self, partition: TopicPartition) -> LogView:
        view = self._views.get(partition)
        if view is None:
            view = self._views[partition] = LogView(
                self.directories[partition], fs=self._fs, checkpoints=self._checkpoints
            )
        return view

    def bounds(self, partition: TopicPartition) -> Bounds:
        """Return the partition's start and end, read once so that they stay the same within a plan."""
        found = self._bounds.get(partition)
        if found is None:
            found = bounds_of(self[partition], self.isolation)
            self._bounds[partition] = found
        return found

    def earliest(self, partition: TopicPartition) -> int:
        """Return the first readable offset."""
        return self.bounds(partition).earliest

    def latest(self, partition: TopicPartition) -> int:
        """Return the offset at which reading ends."""
        return self.bounds(partition).latest

    def at_time(self, partition: TopicPartition, time: int) -> int | None:
        """Return the first offset whose record's time (ms) is at or after `time`; None if reading ends before it."""
        found = self[partition].offset_for_time(time, isolation_of(self.isolation))
        return None if found is None or found.offset >= self.latest(partition) else found.offset

    def resolve(
        self, limit: Limit, side: str, among: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset of `limit` in each partition, of all or of those `among` them; see `limits.resolve`."""
        return resolve(
            limit, self.directories if among is None else among, side=side, earliest=self.earliest,
            latest=self.latest, at_time=self.at_time,
        )  # fmt: skip

    def refresh(self) -> None:
        """Refresh the views from the directories; a view of a missing directory is closed, and its next use raises."""
        self._bounds.clear()
        for one, view in list(self._views.items()):
            try:
                refresh(view)
            except (PartitionNotFound, NotAPartition):
                self._close_view(one)

    def switch_to(self, directories: dict[TopicPartition, str]) -> None:
        """Switch to these partitions; views of partitions whose directory is unchanged stay open."""
        for one in list(self._views):
            if directories.get(one) != self.directories[one]:
                self._close_view(one)
        self.directories = directories

    def _close_view(self, partition: TopicPartition) -> None:
        self._views.pop(partition).close()
        self._bounds.pop(partition, None)

    def close(self) -> None:
        """Close the files."""
        for view in self._views.values():
            view.close()
        self._views.clear()
