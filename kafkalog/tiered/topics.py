"""Data directories in which tiered partitions are whole: local segments, and before them those in the remote store."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kafkalog.errors import NotAPartition
from kafkalog.manager.known_topics import KnownTopics, read_known_topics
from kafkalog.storage.leader_epoch import EpochEntry, read_epochs
from kafkalog.storage.names import SNAPSHOT_SUFFIX, parse_base_offset, parse_dir
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.storage.readonly.listing import list_segments
from kafkalog.tiered.metadata_topic import MetadataTopic
from kafkalog.tiered.plan import Span, lineage_of, plan_spans, with_implied, without_deleted_start
from kafkalog.tiered.segment_bytes import ObjectStore, TieredPartition
from kafkalog.tiered.segment_metadata import Copies
from kafkalog.tiered.span_files import SpanFiles, VirtualFile, named_files, spans_files
from kafkalog.tiered.virtual_files import VirtualFileSystem
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import LOG_START_FILE
from kafkalog.util.checkpoint_cache import CheckpointCache
from kafkalog.util.fileio import FileSystem

_NONE: Final[Mapping[str, VirtualFile]] = {}
_TIERED: Final = "remote.storage.enable"
_NEVER_TIERED: Final = frozenset(
    {"__cluster_metadata", "__consumer_offsets", "__remote_log_metadata", "__share_group_state", "__transaction_state"}
)
"""Topics of which a broker tiers no segment, whatever their settings."""


class TieredTopics(VirtualFileSystem):
    """The file system `base`, with the tiered segments of each partition as files of its directory. Threads: safe.

    Which copy of a segment counts, and from which offset on the local segments supply the log, is decided at each
    listing of a partition's directory (`plan_spans`). Without any event of a partition, offsets before its local log
    are a gap, unless its topic is known not to be tiered.
    """

    def __init__(
        self, base: FileSystem, store: ObjectStore, metadata: MetadataTopic, directories: Iterable[str]
    ) -> None:
        """`directories` are data directories in which settings of topics are looked up."""
        super().__init__(base)
        self._store = store
        self._directories = tuple(directories)
        self._metadata = metadata
        self._checkpoints = CheckpointCache(fs=base)
        self._lock = threading.Lock()
        self._partitions: dict[str, _Partition] = {}  # by path; guarded by self._lock

    def virtual_files(self, directory: str, *, refresh: bool = False) -> Mapping[str, VirtualFile]:
        """Return the files of a partition's tiered segments by name; none for another directory."""
        key = partition_in(directory)
        if key is None:
            return _NONE
        path = directory.rstrip("/")
        with self._lock:
            partition = self._partitions.get(path)
            if partition is None:
                refresh = True
                partition = self._partitions[path] = _Partition(path, key)
        return self._planned(partition) if refresh else partition.files

    def _virtual(self, path: str) -> VirtualFile | None:
        if parse_base_offset(os.path.basename(path)) is None:
            return None  # without a plan: all tiered files begin with an offset
        file = super()._virtual(path)
        is_local = file is not None and path.endswith(SNAPSHOT_SUFFIX) and self.base.exists(path)
        return None if is_local else file  # the snapshot at the start of the local log is in both

    def _planned(self, partition: _Partition) -> Mapping[str, VirtualFile]:
        path = partition.path
        if not self.base.is_directory(path):
            return _NONE
        topic_id, key = read_partition_metadata(self.base, path), partition.key
        local = list_segments(self.base, path)
        if not local:
            return _NONE
        named = TieredPartition(key.topic, key.partition, topic_id or "")
        copies = self._metadata.copies(named) if topic_id is not None else Copies(0, (), ())
        start = self._checkpoints.read(os.path.join(os.path.dirname(path), LOG_START_FILE)).get(key)
        known = copies.version, start, local[0].base_offset, read_epochs(path, fs=self.base)
        with partition.lock:
            if partition.planned_for != known:
                if copies.version:
                    spans = spans_before(copies, known[3], start, local[0].base_offset)
                else:
                    spans = self._unknown_spans(path, key.topic, start or 0, local[0].base_offset)
                partition.files = self._files(partition, named, spans)
                partition.planned_for = known
            return partition.files

    def _unknown_spans(self, path: str, topic: str, start: int, stop: int) -> tuple[Span, ...]:
        """Return the offsets that no event is about: a gap, unless it is known that the topic is not tiered."""
        return (Span(start, stop, None),) if start < stop and self._may_be_tiered(path, topic) else ()

    def _may_be_tiered(self, path: str, topic: str) -> bool:
        """Return False if the topics file or the broker's metadata in one of the directories says so."""
        if topic in _NEVER_TIERED:
            return False
        for directory in dict.fromkeys((os.path.dirname(path), *self._directories)):
            if not self.base.is_directory(directory):
                continue
            found = is_tiered(read_known_topics([directory], fs=self.base), topic)
            if found is not None:
                return found
        return True

    def _files(self, partition: _Partition, named: TieredPartition, spans: Sequence[Span]) -> dict[str, VirtualFile]:
        partition.spans = spans_files(spans, partition.spans, lambda segment: self._store.content(named, segment))
        return named_files(spans, partition.spans, partition.path)


def is_tiered(topics: KnownTopics, topic: str) -> bool | None:
    """Return True if a topic's segments are copied to remote storage; None if its settings are unknown."""
    if topic in topics.own:
        return topics.own[topic].get(_TIERED) == "true"
    if topics.cluster is not None and topic in topics.cluster.image.topics:
        return topics.cluster.image.topic_settings(topic).get(_TIERED) == "true"
    return None


class _Partition:
    """A partition's directory, and its tiered files as of the last plan."""

    def __init__(self, path: str, key: TopicPartition) -> None:
        self.path = path
        self.key = key
        self.lock = threading.Lock()
        self.planned_for: object = None  # guarded by self.lock
        self.spans: dict[Span, SpanFiles] = {}  # guarded by self.lock
        self.files: Mapping[str, VirtualFile] = _NONE  # replaced under self.lock, read without


def spans_before(
    copies: Copies, epochs: Sequence[EpochEntry], start: int | None, local_start: int
) -> tuple[Span, ...]:
    """Return the spans of tiered offsets before the local log.

    `start` is the log start in the checkpoint; without one, None, the log starts with the first copy that counts.
    """
    epochs = with_implied(epochs, lineage_of(copies.finished))
    if start is not None:
        return without_deleted_start(plan_spans(copies.finished, epochs, start, local_start), copies.deleted)
    first = min((one.start for one in copies.finished), default=local_start)
    spans = plan_spans(copies.finished, epochs, first, local_start)
    return spans[1:] if spans and spans[0].segment is None else spans


def partition_in(directory: str) -> TopicPartition | None:
    """Return the partition whose live directory has this path; None for another path."""
    name = os.path.basename(directory.rstrip("/"))
    if "-" not in name:
        return None
    try:
        key, kind = parse_dir(name)
    except NotAPartition:
        return None
    return None if kind else key
