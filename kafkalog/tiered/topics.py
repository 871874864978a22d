"""Data directories in which tiered partitions are whole: local segments, and before them those in the remote store."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Final

from kafkalog.errors import NotAPartition
from kafkalog.manager.known_topics import read_known_topics
from kafkalog.storage.leader_epoch import EpochEntry, read_epochs
from kafkalog.storage.names import parse_base_offset, parse_dir
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.storage.readonly.listing import list_segments
from kafkalog.tiered.metadata_topic import MetadataTopic
from kafkalog.tiered.objects import ObjectStore, TieredPartition
from kafkalog.tiered.plan import Span, lineage_of, plan_spans, without_deleted_start
from kafkalog.tiered.segments import Copies
from kafkalog.tiered.span_files import SpanFiles, VirtualFile, named_files, spans_files
from kafkalog.tiered.virtual_files import VirtualFileSystem
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import LOG_START_FILE
from kafkalog.util.checkpoint_cache import CheckpointCache
from kafkalog.util.fileio import FileSystem

_NONE: Final[Mapping[str, VirtualFile]] = {}


class TieredTopics(VirtualFileSystem):
    """The file system `base`, with the tiered segments of each partition as files of its directory. Threads: safe.

    Which copy of a segment counts, and from which offset on the local segments supply the log, is decided at each
    listing of a partition's directory (`plan_spans`).
    """

    def __init__(self, base: FileSystem, store: ObjectStore, metadata: MetadataTopic) -> None:
        super().__init__(base)
        self._store = store
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
        return super()._virtual(path)

    def _planned(self, partition: _Partition) -> Mapping[str, VirtualFile]:
        path = partition.path
        if not self.base.is_directory(path):
            return _NONE
        topic_id = read_partition_metadata(self.base, path)
        local = list_segments(self.base, path)
        if topic_id is None or not local:
            return _NONE
        named = TieredPartition(partition.key.topic, partition.key.partition, topic_id)
        copies = self._metadata.copies(named)
        if not copies.version and not self._is_tiered(path, partition.key.topic):
            return _NONE
        start = self._checkpoints.read(os.path.join(os.path.dirname(path), LOG_START_FILE)).get(partition.key)
        known = copies.version, start, local[0].base_offset, read_epochs(path, fs=self.base)
        with partition.lock:
            if partition.planned_for != known:
                spans = spans_before(copies, known[3], start, local[0].base_offset)
                partition.files = self._files(partition, named, spans)
                partition.planned_for = known
            return partition.files

    def _is_tiered(self, path: str, topic: str) -> bool:
        """Return True if the broker's metadata says so: without any event, the copies of such a topic are unknown."""
        cluster = read_known_topics([os.path.dirname(path)], fs=self.base).cluster
        if cluster is None or topic not in cluster.image.topics:
            return False
        return cluster.image.topic_settings(topic).get("remote.storage.enable") == "true"

    def _files(self, partition: _Partition, named: TieredPartition, spans: Sequence[Span]) -> dict[str, VirtualFile]:
        partition.spans = spans_files(spans, partition.spans, lambda segment: self._store.content(named, segment))
        return named_files(spans, partition.spans, partition.path)


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
    epochs = epochs or lineage_of(copies.finished)
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
