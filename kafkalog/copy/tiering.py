"""Closed segments of copied topics, put in a tiered store with the events by which readers and brokers find them.

The directory of the copy keeps its segments: only a broker's local retention deletes those that are in the store.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from kafkalog._core.bytes.murmur import murmur2
from kafkalog.backup.cut import index_contents
from kafkalog.config.broker import BrokerConfig
from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.manager.known_topics import KnownTopics, read_known_topics
from kafkalog.manager.opening import open_logs
from kafkalog.records.encoder import raw_id
from kafkalog.storage.leader_epoch import EpochEntry, read_epochs
from kafkalog.storage.names import snapshot_file_name
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.storage.readonly.segment import ViewSegment
from kafkalog.storage.readonly.view import LogView
from kafkalog.tiered.description import Description
from kafkalog.tiered.events import copy_started, new_segment_id, state_changed
from kafkalog.tiered.metadata_topic import TOPIC, MetadataTopic
from kafkalog.tiered.segment_bytes import EPOCHS, ObjectStore, TieredPartition
from kafkalog.tiered.segment_metadata import COPY_FINISHED, DELETE_FINISHED, DELETE_STARTED, Copies, RemoteSegment
from kafkalog.tiered.segment_writer import Layout, SegmentWriter
from kafkalog.tools.directories import PartitionPath, partitions_below, partitions_of
from kafkalog.tools.offline_partition import ViewedSegment
from kafkalog.tools.tiered_events import EventLog, locked_directories
from kafkalog.types import TopicPartition
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.os_errors import os_errors

_CHUNK_BYTES: Final = 4 << 20
_MOST_INDEX_BYTES: Final = 256 << 20
_SETTINGS: Final = {"cleanup.policy": "delete", "retention.ms": "-1"}


def tier_closed(
    directory: str, topics: Sequence[str], description: Description, fs: FileSystem = OS, clock: Clock = SYSTEM_CLOCK
) -> None:
    """Put the closed segments of the topics that the store lacks there.

    What a killed run left is deleted first. DirectoryLocked, StorageError; IllegalArgument for keys of several pairs,
    and as for `EventLog.check`.
    """
    if not any(name.startswith(f"{TOPIC}-") for name in fs.names(directory)) and not description.metadata:
        _create_metadata_topic(directory, fs, clock)
    directories = [os.path.realpath(directory)]
    with locked_directories(description, directories, fs) as log_dirs:
        known = read_known_topics(log_dirs, fs=fs)
        metadata = MetadataTopic(fs, log_dirs)
        try:
            for place in partitions_below(directories, topics, fs):
                partition = _partition_of(place, fs)
                copies, found = metadata.copies(partition), metadata.place_of(partition)
                number = metadata_partition(partition, known, log_dirs, fs) if found is None else found.number
                with EventLog(number, log_dirs, known, fs, clock) as events:
                    _Tiering(place, partition, description, events, fs, clock).run(copies)
        finally:
            metadata.close()


def key_of(description: Description) -> str | None:
    """Return the id of the key pair to encrypt with, None without one. IllegalArgument for several."""
    if len(description.keys) > 1:
        raise IllegalArgument(
            f"new segments are encrypted for one key pair, and {len(description.keys)} are named",
            path=description.store, hint="name one under `keys` in the description of the store",
        )  # fmt: skip
    return next(iter(description.keys), None)


def _create_metadata_topic(directory: str, fs: FileSystem, clock: Clock) -> None:
    opened = open_logs([directory], BrokerConfig(log_cleaner_enable=False), fs=fs, clock=clock)
    try:
        opened.manager.get_or_create(TopicPartition(TOPIC, 0), settings=_SETTINGS)
    finally:
        opened.close()


def _partition_of(place: PartitionPath, fs: FileSystem) -> TieredPartition:
    topic_id = read_partition_metadata(fs, place.path)
    if topic_id is None:
        raise StorageError("the partition has no topic id, by which tiered segments are named", path=place.path)
    return TieredPartition(*place.topic_partition, topic_id)


def metadata_partition(
    partition: TieredPartition, known: KnownTopics, directories: Iterable[str], fs: FileSystem
) -> int:
    """Return the partition of the metadata topic for the events of a partition, as brokers choose it."""
    if TOPIC not in known.own and known.cluster is not None and TOPIC in known.cluster.image.topics:
        count = len(known.cluster.image.topics[TOPIC].partitions)
    else:
        count = len({place.topic_partition for one in directories for place in partitions_of(one, TOPIC, fs)})
    raw = raw_id(partition.topic_id) or bytes(16)
    high, low = (int.from_bytes(raw[at : at + 8], "big") for at in (0, 8))
    value = 1  # as Objects.hash of low half, high half and number
    for one in (low >> 32 ^ low, high >> 32 ^ high, partition.partition):
        value = (31 * value + one) & 0xFFFFFFFF
    return int((murmur2(struct.pack(">I", value)) & 0x7FFFFFFF) % max(count, 1))


class _Tiering:
    """Puts the closed segments of one partition in a store. Threads: one at a time."""

    def __init__(
        self, place: PartitionPath, partition: TieredPartition, description: Description, events: EventLog,
        fs: FileSystem, clock: Clock,
    ) -> None:  # fmt: skip
        self._path = place.path
        self._partition = partition
        self._events = events
        self._fs = fs
        self._clock = clock
        self._store = ObjectStore(description)
        self._writer = SegmentWriter(self._store, self._store.keys)
        is_own = self._store.has_own_layout(partition)
        self._layout = None if is_own else Layout(_CHUNK_BYTES, False, key_of(description))

    def run(self, copies: Copies) -> None:
        """Put the segments that no finished copy has."""
        covered = max((one.end for one in copies.finished), default=-1)
        epochs = read_epochs(self._path, fs=self._fs)
        with LogView(self._path, fs=self._fs) as view:
            segments = view.segments
            closed = [
                (one, following.base_offset - 1)
                for one, following in zip(segments, segments[1:], strict=False)
                if one.size and following.base_offset > max(covered + 1, view.log_start_offset)
            ]
            left = (*copies.unfinished, *copies.deleting)
            if closed or left:
                self._events.check()
            for one in left:
                self._delete(one, one in copies.deleting)
            for segment, end in closed:
                self._put(segment, end, epochs)

    def _delete(self, segment: RemoteSegment, is_begun: bool) -> None:
        if not is_begun:
            self._events.append([self._changed(segment, DELETE_STARTED)])
        self._writer.delete(self._store.stem_of(self._partition, segment))
        self._events.append([self._changed(segment, DELETE_FINISHED)])

    def _put(self, segment: ViewSegment, end: int, epochs: Sequence[EpochEntry]) -> None:
        base = segment.base_offset
        before = [one for one in epochs if one.start_offset <= end]
        indexes = {
            **index_contents(segment.path, base, self._fs),
            ".snapshot": self._content(os.path.join(self._path, snapshot_file_name(end + 1))),
            ".txnindex": self._content(segment.path.removesuffix(".log") + ".txnindex") or None,
            EPOCHS: "".join(f"{line}\n" for line in _epoch_lines(before)).encode(),
        }
        now_ms = self._clock.milliseconds()
        with os_errors("read a segment", segment.path), self._fs.open_file(segment.path, "r") as data:
            new = RemoteSegment(
                new_segment_id(), base, end, data.size(), ViewedSegment(segment).largest_timestamp,
                _epochs_in(before, base), None, indexes[".txnindex"] is None, 0,
            )  # fmt: skip
            self._events.append([copy_started(self._partition, new, now_ms)])
            custom = self._writer.put(self._partition, new, self._layout, data, indexes, now_ms)
        self._events.append([self._changed(new, COPY_FINISHED, custom)])

    def _changed(self, segment: RemoteSegment, state: int, custom: bytes | None = None) -> bytes:
        return state_changed(self._partition, segment, state, self._clock.milliseconds(), custom)

    def _content(self, path: str) -> bytes | None:
        with os_errors("read an index", path):
            return self._fs.read_file(path, _MOST_INDEX_BYTES) if self._fs.exists(path) else None


def _epoch_lines(epochs: Sequence[EpochEntry]) -> list[str]:
    return ["0", str(len(epochs)), *(f"{one.epoch} {one.start_offset}" for one in epochs)]


def _epochs_in(before: Sequence[EpochEntry], base: int) -> tuple[EpochEntry, ...]:
    """Return the epochs of a segment that begins at `base`; a log of old formats has none, and counts as epoch 0."""
    first = max((number for number, one in enumerate(before) if one.start_offset <= base), default=0)
    inside = before[first:] or [EpochEntry(0, base)]
    return tuple(one._replace(start_offset=max(one.start_offset, base)) for one in inside)
