"""The partitions of data directories, and their paths."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kafkalog.errors import IllegalArgument, NotAPartition, PartitionNotFound, StorageError, UnknownTopicOrPartition
from kafkalog.storage.names import NOT_PARTITIONS, is_log_file, parse_dir, validate_topic
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS, FileSystem

Path = str | os.PathLike[str]


class PartitionPath(NamedTuple):
    """A partition and its directory."""

    topic_partition: TopicPartition
    path: str


def path_list(paths: Path | Iterable[Path]) -> list[str]:
    """Return the given path or paths as a list."""
    return [os.fspath(path) for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)]


def partitions(dirs: Iterable[str], *, topic: str | None = None, fs: FileSystem = OS) -> list[PartitionPath]:
    """Return the live partitions of the data directories, of one topic or of all, by topic and number.

    Deleted, future and stray directories and other files are left out. PartitionNotFound for a data directory that does
    not exist, IllegalArgument for a partition's own directory, NotAPartition if the same partition is in two of them.
    """
    found: dict[TopicPartition, str] = {}
    for directory in dirs:
        for topic_partition, path in _in_directory(directory, fs):
            if topic is not None and topic_partition.topic != topic:
                continue
            other = found.setdefault(topic_partition, path)
            if other != path and os.path.realpath(other) != os.path.realpath(path):
                raise NotAPartition(f"{topic_partition} is also in {other}", path=path, hint="move one of them away")
    return [PartitionPath(key, found[key]) for key in sorted(found)]


def refuse_partition(directory: str, names: Iterable[str]) -> None:
    """Raise IllegalArgument if `names` has segment files: the directory is a partition's own."""
    if any(is_log_file(name) for name in names):
        raise IllegalArgument(
            "this is a partition directory, not a data directory", path=directory,
            hint=f"give its parent directory, {os.path.dirname(os.path.realpath(directory))}",
        )  # fmt: skip


def _in_directory(directory: str, fs: FileSystem, prefix: str = "") -> list[PartitionPath]:
    try:
        names = fs.names(directory)
    except FileNotFoundError:
        raise PartitionNotFound("the data directory does not exist", path=directory, hint="check the path") from None
    except OSError as error:
        raise StorageError.from_os(error, "read the data directory", path=directory) from error
    refuse_partition(directory, names)
    paths = []
    for name in names:
        if not name.startswith(prefix) or name in NOT_PARTITIONS or "-" not in name:
            continue
        path = os.path.join(directory, name)
        if not fs.is_directory(path):
            continue
        try:
            topic_partition, kind = parse_dir(name)
        except NotAPartition:
            continue
        if not kind:
            paths.append(PartitionPath(topic_partition, path))
    return paths


def partitions_of(directory: str, topic: str, fs: FileSystem = OS) -> list[PartitionPath]:
    """Return the live partitions of one topic in one data directory."""
    return [one for one in _in_directory(directory, fs, f"{topic}-") if one.topic_partition.topic == topic]


def find(
    dirs: Sequence[str], topic: str, numbers: Sequence[int] = (), *, fs: FileSystem = OS
) -> list[PartitionPath]:
    """Return the given partitions of a topic, or all; UnknownTopicOrPartition if one is absent."""
    validate_topic(topic)
    existing = partitions(dirs, topic=topic, fs=fs)
    if not existing:
        known = sorted({one.topic_partition.topic for one in partitions(dirs, fs=fs)})
        shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
        raise UnknownTopicOrPartition(
            f"there is no topic {topic}",
            path=os.pathsep.join(dirs),
            hint=f"topics here: {shown}" if known else "there are no topics here",
        )
    by_number = {one.topic_partition.partition: one for one in existing}
    missing = [number for number in numbers if number not in by_number]
    if missing:
        raise UnknownTopicOrPartition(
            f"topic {topic} has no partition {missing[0]}",
            path=os.pathsep.join(dirs),
            hint=f"it has {', '.join(map(str, sorted(by_number)))}",
        )
    return [by_number[number] for number in dict.fromkeys(numbers)] if numbers else existing


def partitions_below(
    paths: Sequence[str], topics: Sequence[str] = (), fs: FileSystem = OS
) -> list[PartitionPath]:
    """Return the partitions of data directories and partition directories, of these topics or all.

    Each directory is listed once, by its real path; a partition may lie in several data directories. PartitionNotFound
    for a path that does not exist, StorageError, UnknownTopicOrPartition for a topic that none of them has.
    """
    found: dict[str, PartitionPath] = {}
    for given in paths:
        path = os.path.realpath(given)
        names = _names(path, given, fs)
        try:
            one = parse_dir(os.path.basename(path))
        except NotAPartition:
            one = None
        if one is not None and not one.kind and any(is_log_file(name) for name in names):
            found[path] = PartitionPath(one.topic_partition, path)
            continue
        for each in partitions([path], fs=fs):
            found[each.path] = each
    unknown = [topic for topic in topics if all(one.topic_partition.topic != topic for one in found.values())]
    if unknown:
        raise UnknownTopicOrPartition(f"there is no topic {unknown[0]}", path=os.pathsep.join(paths))
    return [one for one in found.values() if not topics or one.topic_partition.topic in topics]


def _names(path: str, given: str, fs: FileSystem) -> list[str]:
    try:
        return fs.names(path)
    except FileNotFoundError:
        raise PartitionNotFound("there is no such directory", path=given, hint="check the path") from None
    except OSError as error:
        raise StorageError.from_os(error, "list", path=given) from error
