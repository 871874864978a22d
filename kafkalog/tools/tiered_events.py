"""Events appended to `__remote_log_metadata` without a running broker: to each replica of one of its partitions.

A broker that starts later reads them as if another one had written them. The replicas must be equal, and all of them be
here: a leader that lacks the events would have the others truncate them, after objects were deleted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self

from kafkalog.config.broker import BrokerConfig
from kafkalog.errors import IllegalArgument, IllegalState
from kafkalog.manager.known_topics import KnownTopics
from kafkalog.manager.log_dir import LogDir
from kafkalog.records.builder import RecordsBuilder
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.readonly.view import LogView
from kafkalog.storage.remote import is_url
from kafkalog.tiered.description import Description
from kafkalog.tiered.metadata_topic import TOPIC
from kafkalog.tools.directories import PartitionPath
from kafkalog.tools.offline_partition import OfflinePlan, open_offline
from kafkalog.types import TopicPartition
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem

_HINT = "name the data directories of all brokers that have it under `metadata` in the description of the store"


@contextmanager
def locked_directories(
    description: Description, directories: Sequence[str], fs: FileSystem
) -> Iterator[dict[str, LogDir]]:
    """Lock the data directories of the partitions and of the metadata topic, and give them by their paths."""
    urls = [one for one in description.metadata if is_url(one)]
    if urls:
        raise IllegalArgument(
            "the metadata of the tiered store is at a URL, where no event can be appended", path=urls[0],
            hint="name the brokers' data directories under `metadata`",
        )  # fmt: skip
    paths = sorted({os.path.realpath(one) for one in (*directories, *description.metadata)})
    with ExitStack() as stack:
        yield {path: stack.enter_context(LogDir.acquire(path, fs=fs)) for path in paths}


class EventLog:
    """The replicas of a partition of the metadata topic, in locked data directories; opened at the first append."""

    def __init__(
        self, number: int, log_dirs: Mapping[str, LogDir], known: KnownTopics, fs: FileSystem, clock: Clock
    ) -> None:
        """`log_dirs` are data directories by their paths; `known` are the topics in them."""
        self._key = TopicPartition(TOPIC, number)
        name = f"{TOPIC}-{number}"
        paths = {path: os.path.join(path, name) for path in log_dirs}
        self._paths = {path: one for path, one in paths.items() if fs.is_directory(one)}
        self._log_dirs = log_dirs
        self._known = known
        self._fs = fs
        self._clock = clock
        self._stack = ExitStack()
        self._logs: list[UnifiedLog] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def check(self) -> None:
        """Raise IllegalArgument if a replica is missing or the number of replicas unknown; IllegalState if they differ.
        """
        replicas = self._replica_count()
        if replicas is None:
            raise IllegalArgument(
                f"the number of replicas of {self._key} is unknown, and an event has to be in each",
                hint=f"{_HINT}, one of them with __cluster_metadata",
            )
        if len(self._paths) < replicas:
            raise IllegalArgument(
                f"{self._key} has {replicas} replicas, and {len(self._paths)} of them in the directories given",
                hint=_HINT,
            )
        ends = {}
        for path in self._paths.values():
            with LogView(path, fs=self._fs) as view:
                ends[path] = view.log_end_offset
        if len(set(ends.values())) > 1:
            raise IllegalState(
                f"the replicas of {self._key} end at different offsets: {sorted(ends.values())}", path=min(ends),
                hint="start the brokers, wait until the replicas are in sync, and stop the brokers",
            )  # fmt: skip

    def _replica_count(self) -> int | None:
        if TOPIC in self._known.own:
            return 1
        cluster = self._known.cluster
        if cluster is None or TOPIC not in cluster.image.topics:
            return None
        partition = cluster.image.topics[TOPIC].partitions.get(self._key.partition)
        return None if partition is None else len(partition.replicas)

    def append(self, events: Sequence[bytes]) -> None:
        """Append the events to each replica, synced. StorageError, CorruptRecord, IllegalState."""
        now_ms = self._clock.milliseconds()
        for log in self._opened():
            builder = RecordsBuilder(0)
            for event in events:
                builder.append(now_ms, None, event)
            log.append_as_leader(bytearray(builder.build()), leader_epoch=max(log.leader_epoch, 0))
            log.flush()

    def _opened(self) -> list[UnifiedLog]:
        if not self._logs:
            config = self._known.config_of(TOPIC, BrokerConfig.from_mapping(self._known.store_settings()))
            for directory, path in self._paths.items():
                plan = OfflinePlan(PartitionPath(self._key, path), config, self._clock.milliseconds(), True)
                log = open_offline(self._log_dirs[directory], plan, self._fs, self._clock)
                self._logs.append(self._stack.enter_context(log))
        return self._logs
