"""The view behind `LogDirs` in mode "r": directories that another process may own, refreshed at each call."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

from kafkalog.cleaner.stats import NO_CLEANER, CleanerReport
from kafkalog.config.broker import BrokerConfig
from kafkalog.dirs.sidecars import NO_SIDECARS, Sidecars
from kafkalog.dirs.types import Directory, Topic, missing
from kafkalog.errors import KafkalogError, LogClosed, NotAPartition
from kafkalog.log.log import Log
from kafkalog.manager.job import Job
from kafkalog.manager.known_topics import read_known_topics
from kafkalog.storage.names import NOT_PARTITIONS, parse_dir
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.storage.readonly.view import LogView
from kafkalog.tools.directories import partitions
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint_cache import CheckpointCache
from kafkalog.util.fileio import OS, FileSystem


class DirsView:
    """The partitions of data directories, read-only: no lock, no repair, no writes. Threads: safe."""

    mode: Final[Literal["r"]] = "r"
    jobs: tuple[Job, ...] = ()
    cleaner: CleanerReport = NO_CLEANER
    problems: Mapping[TopicPartition, KafkalogError] = MappingProxyType({})  # a partition is opened when it is used

    def __init__(self, paths: Sequence[str], *, fs: FileSystem = OS, sidecars: Sidecars = NO_SIDECARS) -> None:
        self._paths = list(paths)
        self._sidecars = sidecars
        self._fs = fs
        self._checkpoints = CheckpointCache(fs=fs)
        self._lock = threading.Lock()
        self._handles: dict[str, Log] = {}  # by path; guarded by self._lock
        self.closed = False  # guarded by self._lock
        self.cached_partitions: list[TopicPartition] = []  # partitions at the last refresh, sorted; replaced whole
        self._list_partitions()

    def _list_partitions(self) -> dict[TopicPartition, str]:
        found = {one.topic_partition: one.path for one in partitions(self._paths, fs=self._fs)}
        self.cached_partitions = sorted(found)
        return found

    @property
    def config(self) -> BrokerConfig:
        """Broker settings in the cluster's metadata; defaults for the rest."""
        return BrokerConfig.from_mapping(read_known_topics(self._paths, fs=self._fs).store_settings())

    @property
    def directories(self) -> tuple[Directory, ...]:
        """The data directories."""
        return tuple(Directory(path, len(partitions([path], fs=self._fs))) for path in self._paths)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions, sorted."""
        return sorted(self._list_partitions())

    def topics(self) -> dict[str, Topic]:
        """Return the topics by name, with their settings from the topics file or the broker's metadata."""
        known = read_known_topics(self._paths, fs=self._fs)
        grouped: dict[str, list[int]] = {}
        paths: dict[str, str] = {}
        for key, path in sorted(self._list_partitions().items()):
            grouped.setdefault(key.topic, []).append(key.partition)
            paths.setdefault(key.topic, path)
        return {
            name: Topic(
                name,
                read_partition_metadata(self._fs, paths[name]),
                tuple(numbers),
                dict(known.settings_of(name) or {}),
            )
            for name, numbers in grouped.items()
        }

    def has_settings(self, topic: str) -> bool:
        """Return True if the topics file or the broker's metadata has the topic, perhaps without own settings."""
        return read_known_topics(self._paths, fs=self._fs).settings_of(topic) is not None

    def log(self, key: TopicPartition) -> Log | None:
        """Return the log of a partition, the same object while it stays in its directory; None if there is none."""
        path = self._path_of(key)
        if path is None:
            return None
        with self._lock:
            if self.closed:
                raise LogClosed("the directories are closed")
            handle = self._handles.get(path)
            if handle is None or handle.closed:
                view = LogView(path, fs=self._fs, checkpoints=self._checkpoints)
                handle = self._handles[path] = self._sidecars.given_to(Log(view, None))
        return handle

    def _path_of(self, key: TopicPartition) -> str | None:
        """Return the path of a partition, or None; raise NotAPartition if it is in two directories."""
        places = (os.path.join(one, str(key)) for one in self._paths)
        found = [path for path in places if self._fs.is_directory(path)]
        if len(found) > 1 or (found and not self._is_partition(key)):
            return self._list_partitions().get(key)
        return found[0] if found else None

    def _is_partition(self, key: TopicPartition) -> bool:
        name = str(key)
        try:
            return name not in NOT_PARTITIONS and parse_dir(name) == (key, "")
        except NotAPartition:
            return False

    def contains(self, key: TopicPartition) -> bool:
        """Return True if the partition exists."""
        return self._path_of(key) is not None

    def missing(self, key: TopicPartition) -> KafkalogError:
        """Return the error for a missing partition."""
        return missing(key, self.partitions)

    def offline(self, what: str) -> None:
        """Return None: a directory that cannot be read raises an error where it is listed."""

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            self.closed = True
            handles, self._handles = list(self._handles.values()), {}
        for handle in handles:
            handle.close()
