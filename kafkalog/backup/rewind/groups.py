"""Offsets of groups as they were at a moment: those in the cut `__consumer_offsets`, and what it cannot have.

Compaction may have removed a commit from before the moment because a later one followed. Then the newest backup made
before the moment is asked. No group may be ahead of a restored log.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kafkalog.backup.manifest import Manifest, Offsets
from kafkalog.backup.rewind.partition import epoch_for_append, open_staged
from kafkalog.backup.rewind.plan import PartitionPlan
from kafkalog.config.topic import LogConfig
from kafkalog.reading.chunks import records
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.encoder import encoded
from kafkalog.records.internal import coordinator_record
from kafkalog.records.message import MessageError
from kafkalog.records.schema import Message
from kafkalog.records.schemas.groups import KEYS, VALUES
from kafkalog.storage.log_walk import log_chunks
from kafkalog.storage.readonly.view import LogView
from kafkalog.tools.directories import partitions
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import FileSystem

OFFSETS_TOPIC: Final = "__consumer_offsets"
_OFFSET_TYPES: Final = frozenset({0, 1})
_MAX_NOTES: Final = 20
_RECORDS_PER_APPEND: Final = 500
_SHORT: Final = struct.Struct(">h")


class Commit(NamedTuple):
    """A committed offset: its record's key and offset, the group, the partition, and the value's version and fields."""

    key: bytes
    at: int
    group: str
    topic_partition: TopicPartition
    type: int
    version: int
    value: Message

    @property
    def offset(self) -> int:
        """The committed offset."""
        return int(self.value["offset"])

    def with_offset(self, offset: int) -> tuple[bytes, bytes]:
        """Return key and value of a record that commits another offset in its place."""
        value = {**self.value, "offset": offset}
        if "leaderEpoch" in value:
            value["leaderEpoch"] = -1
        return self.key, _SHORT.pack(self.version) + encoded(VALUES[self.type], value, self.version)


def restored_offsets(dirs: Iterable[str], fs: FileSystem) -> Offsets:
    """Return the committed offsets of groups in restored data directories. CorruptRecord, StorageError."""
    found: Offsets = {}
    for _, path in partitions(dirs, topic=OFFSETS_TOPIC, fs=fs):
        for one in last_commits(path, 0, fs).values():
            topic, partition = one.topic_partition
            found.setdefault(one.group, {}).setdefault(topic, {})[partition] = one.offset
    return found


def last_commits(path: str, first_offset: int, fs: FileSystem) -> dict[bytes, Commit]:
    """Return the last commit of each key in a partition of `__consumer_offsets`, from an offset on."""
    found: dict[bytes, Commit] = {}
    for key, one in _commits(path, first_offset, fs):
        if one is None:
            found.pop(key, None)
        else:
            found[key] = one
    return found


def _commits(path: str, first_offset: int, fs: FileSystem) -> Iterator[tuple[bytes, Commit | None]]:
    """Yield each committed offset of a partition, None for one that is deleted; records of other kinds are left out."""
    with LogView(path, fs=fs) as view:
        for record in records(view, max(first_offset, view.log_start_offset), view.last_stable_offset, committed=True):
            key = record.key
            if key is None or len(key) < _SHORT.size or _SHORT.unpack_from(key)[0] not in _OFFSET_TYPES:
                continue
            try:
                found = coordinator_record(key, record.value, KEYS, VALUES)
            except MessageError:  # of a later version: it stays as it is
                continue
            if found.value is None or found.version is None:
                yield key, None
            else:
                where = TopicPartition(found.key["topic"], found.key["partition"])
                group = found.key["group"]
                yield key, Commit(key, record.offset, group, where, found.type, found.version, found.value)


def _has_gap(path: str, stop: int, fs: FileSystem) -> bool:
    """Return True if a log lacks offsets below `stop`: a clean has removed records there."""
    with LogView(path, fs=fs) as view:
        count, start = 0, view.log_start_offset
        for chunk in log_chunks(view, start, min(stop, view.log_end_offset)):
            table = chunk.batches
            rows = range(chunk.first, chunk.last)
            count += sum(table.records_in(row) for row in rows if table.base_offset(row) < stop)
        return count < stop - start


class GroupsRewind:
    """Completes one partition of `__consumer_offsets` after its cut.

    `ends` are the restored logs' ends, `earlier` is the manifest of the newest backup made before the moment.
    """

    def __init__(self, ends: Mapping[TopicPartition, int], earlier: Manifest | None, fs: FileSystem) -> None:
        self._ends = ends
        self._earlier = earlier
        self._fs = fs
        self._notes: list[str] = []

    @property
    def notes(self) -> list[str]:
        """Notes on offsets that are not those of the moment, shortened if there are very many."""
        more = len(self._notes) - _MAX_NOTES
        return [*self._notes[:_MAX_NOTES], *([f"{more} more notes on offsets of groups"] if more > 0 else [])]

    def complete(
        self, directory: str, original: str, plan: PartitionPlan, at_ms: int, config: LogConfig
    ) -> None:
        """Write what the cut partition in the staged `directory` lacks; `original` is the backup's directory of it."""
        key = plan.stored.topic_partition
        known = last_commits(os.path.join(directory, str(key)), 0, self._fs)
        lost = {} if plan.later is None else self._lost(original, plan, known)
        changes = [*self._from_earlier(lost.values()), *self._beyond_end(known.values())]
        if not changes:
            return
        with open_staged(directory, key, config, self._fs) as log:
            for first in range(0, len(changes), _RECORDS_PER_APPEND):
                builder = RecordsBuilder(log.log_end_offset, leader_epoch=epoch_for_append(log))
                for record_key, value in changes[first : first + _RECORDS_PER_APPEND]:
                    builder.append(at_ms, record_key, value)
                log.append_as_follower(builder.build(), 2**31 - 1)
            log.flush()

    def _lost(self, original: str, plan: PartitionPlan, known: Mapping[bytes, Commit]) -> dict[bytes, Commit]:
        """Return the first later commits of keys without an earlier one, if the log lacks offsets before them."""
        lost: dict[bytes, Commit] = {}
        for record_key, one in _commits(original, plan.later or 0, self._fs):
            if one is not None and record_key not in known:
                lost.setdefault(record_key, one)
        return lost if lost and _has_gap(original, plan.later or 0, self._fs) else {}

    def _from_earlier(self, lost: Iterable[Commit]) -> Iterator[tuple[bytes, bytes]]:
        groups = {} if self._earlier is None else self._earlier.groups
        for one in lost:
            topic, partition = one.topic_partition
            offset = groups.get(one.group, {}).get(topic, {}).get(partition)
            what = f"group {ascii(one.group)}, {one.topic_partition}: compaction has removed its offset of then"
            if offset is None or self._earlier is None:
                self._notes.append(f"{what}, if it had one; it has none")
                continue
            end = self._ends.get(one.topic_partition, offset)
            self._notes.append(f"{what}; set to {min(offset, end)}, by the backup {self._earlier.id}")
            yield one.with_offset(min(offset, end))

    def _beyond_end(self, known: Iterable[Commit]) -> Iterator[tuple[bytes, bytes]]:
        for one in known:
            end = self._ends.get(one.topic_partition)
            if end is not None and one.offset > end:
                self._notes.append(
                    f"group {ascii(one.group)}, {one.topic_partition}: its offset of then, {one.offset}, is set to the "
                    f"end of the restored log, {end}"
                )
                yield one.with_offset(end)

