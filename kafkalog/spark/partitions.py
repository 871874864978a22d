"""The partitions that a read is for: which directories they lie in, and the offsets these hold."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from time import sleep
from typing import Final, NamedTuple

from kafkalog.engine import end_of, isolation_of, refresh
from kafkalog.errors import (
    IllegalArgument,
    NotAPartition,
    PartitionNotFound,
    StorageError,
    UnknownTopicOrPartition,
)
from kafkalog.spark.subscriptions import Assign, Subscribe, Subscription
from kafkalog.storage.names import PARTITION_METADATA, is_log_file, parse_dir
from kafkalog.storage.view import LogView
from kafkalog.tools.directories import PartitionPath, partitions
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint_cache import CheckpointCache
from kafkalog.util.fileio import OS, FileSystem

__all__ = ["Bounds", "PartitionViews", "bounds_of", "find_partitions"]

LOOKS: Final = 4
LOOK_S: Final = 0.02
"""How often damage must be there, and seconds between two looks, before it is no batch in the writing."""


class Bounds(NamedTuple):
    """The offsets of a partition that can be read: from `earliest` up to (not with) `latest`."""

    earliest: int
    latest: int


def find_partitions(
    paths: Sequence[str], subscription: Subscription | None, *, absent_ok: bool = False, fs: FileSystem = OS
) -> dict[TopicPartition, str]:
    """The partitions that `subscription` names in data directories and partition directories, with their directories.

    In order of topic and number. A pattern that no topic matches gives none. None, for no subscription, means the
    partitions whose own directories `paths` names. Directories that wait for their delete, strays and future replicas
    are no partitions. PartitionNotFound for a path that does not exist, NotAPartition where a partition lies in two
    places, UnknownTopicOrPartition for a topic or partition that is named and absent unless that is `absent_ok`,
    IllegalArgument where topics must be named.
    """
    there = _all_partitions(paths, fs)
    if subscription is None:
        data = [path for path in paths if _own_partition(path, fs) is None]
        if data:
            raise IllegalArgument(
                f"no topic is named, and {data[0]} is a data directory",
                hint=f"set one of subscribe, subscribePattern, assign; topics here: {_listed(_topics(there))}",
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
    """As `_listed_partitions`; a replica that is moved between disks is in both for a moment."""
    for _ in range(LOOKS - 1):
        try:
            return _listed_partitions(paths, fs)
        except _Twice:
            sleep(LOOK_S)
    try:
        return _listed_partitions(paths, fs)
    except _Twice as error:
        raise NotAPartition(error.message, path=error.path, hint=error.hint) from None


class _Twice(NotAPartition):
    """A partition seems to lie in two places."""


def _listed_partitions(paths: Sequence[str], fs: FileSystem) -> dict[TopicPartition, str]:
    found: dict[TopicPartition, str] = {}
    for path in paths:
        own = _own_partition(path, fs)
        for one, directory in [own] if own else partitions([path], fs=fs):
            directory = os.path.realpath(directory)
            other = found.setdefault(one, directory)
            if other != directory:
                raise _Twice(
                    f"{one} lies in {other} too", path=directory, hint="move one of them away, or leave its path out"
                )
    return {one: found[one] for one in sorted(found)}


def _own_partition(path: str, fs: FileSystem) -> PartitionPath | None:
    """The partition whose own directory `path` is; None for a data directory."""
    try:
        names = fs.names(path)
    except FileNotFoundError:
        raise PartitionNotFound("there is no such directory", path=path, hint="check the path, on every node") from None
    except NotADirectoryError:
        raise NotAPartition(
            "a file, where a directory is meant", path=path, hint="give the data directory, or a partition's directory"
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
            f"a directory in transit ({kind}), no live partition", path=path, hint="give a live partition's directory"
        )
    return PartitionPath(topic_partition, real)


def _check_topics(named: Iterable[str], there: Iterable[TopicPartition], paths: Sequence[str]) -> None:
    topics = _topics(there)
    for topic in named:
        if topic not in topics:
            raise UnknownTopicOrPartition(
                f"there is no topic {topic}", path=os.pathsep.join(paths), hint=f"topics here: {_listed(topics)}"
            )


def _topics(there: Iterable[TopicPartition]) -> list[str]:
    return list(dict.fromkeys(one.topic for one in there))


def _listed(topics: list[str]) -> str:
    return ", ".join(topics[:8]) + (", ..." if len(topics) > 8 else "") if topics else "none"


def bounds_of(view: LogView, isolation: str) -> Bounds:
    """Return where reading a view starts and ends with this isolation level."""
    first = view.log_start_offset
    return Bounds(first, max(first, end_of(view, isolation_of(isolation))))


class PartitionViews:
    """Views of the partitions that a plan looks at, opened when they are first asked for; close it after use.

    Threads: one.
    """

    def __init__(self, directories: dict[TopicPartition, str], isolation: str) -> None:
        self.directories = directories
        self.isolation = isolation
        self._checkpoints = CheckpointCache()
        self._views: dict[TopicPartition, LogView] = {}
        self._bounds: dict[TopicPartition, Bounds] = {}

    def __getitem__(self, partition: TopicPartition) -> LogView:
        view = self._views.get(partition)
        if view is None:
            view = self._views[partition] = LogView(self.directories[partition], checkpoints=self._checkpoints)
        return view

    def bounds(self, partition: TopicPartition) -> Bounds:
        """Where the partition starts and ends; looked at once, so that one plan has one answer."""
        found = self._bounds.get(partition)
        if found is None:
            found = bounds_of(self[partition], self.isolation)
            self._bounds[partition] = found
        return found

    def earliest(self, partition: TopicPartition) -> int:
        """The first offset that can be read."""
        return self.bounds(partition).earliest

    def latest(self, partition: TopicPartition) -> int:
        """The offset at which reading ends."""
        return self.bounds(partition).latest

    def at_time(self, partition: TopicPartition, time: int) -> int | None:
        """The first offset whose record's time (ms) is at or after `time`; None where reading ends before it."""
        found = self[partition].offset_for_time(time, isolation_of(self.isolation))
        return None if found is None or found.offset >= self.latest(partition) else found.offset

    def refresh(self) -> None:
        """Looks at the directories again: the next answers are new ones, an error for one that is gone."""
        self._bounds.clear()
        for one, view in list(self._views.items()):
            try:
                refresh(view)
            except (PartitionNotFound, NotAPartition):
                self._give_up(one)

    def follow(self, directories: dict[TopicPartition, str]) -> None:
        """Goes over to these partitions; the views of those that lie where they lay stay open."""
        for one in list(self._views):
            if directories.get(one) != self.directories[one]:
                self._give_up(one)
        self.directories = directories

    def _give_up(self, partition: TopicPartition) -> None:
        self._views.pop(partition).close()
        self._bounds.pop(partition, None)

    def close(self) -> None:
        """Gives up the files."""
        for view in self._views.values():
            view.close()
        self._views.clear()

    def __enter__(self) -> PartitionViews:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
