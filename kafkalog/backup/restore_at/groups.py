"""Offsets of groups as of a moment: those in the cut `__consumer_offsets`, and those that compaction removed.

Compaction may have removed a commit from before the moment because a later one followed. It is then taken from the
newest backup made before the moment. No group may be ahead of a restored log.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kafkalog.backup.manifest import Manifest, Offsets
from kafkalog.backup.restore_at.partition import epoch_for_append, open_staged
from kafkalog.backup.restore_at.plan import PartitionPlan
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
_VERSIONS: Final = {0: 0, 1: 3}
"""Value versions written for the types of committed offsets."""
_VERSION_WITH_EPOCH: Final = 3
_MAX_NOTES: Final = 20
_RECORDS_PER_APPEND: Final = 500
_SHORT: Final = struct.Struct(">h")


class Commit(NamedTuple):
    """A committed offset: its record's key and offset, the group, the partition, and the value's version and fields.

    `value` is None where the group's offset is deleted.
    """

    key: bytes
    at: int
    group: str
    topic_partition: TopicPartition
    type: int
    version: int
    value: Message | None

    @property
    def offset(self) -> int:
        """The committed offset, -1 where it is deleted."""
        return -1 if self.value is None else int(self.value["offset"])

    def with_offset(self, offset: int, at_ms: int) -> tuple[bytes, bytes]:
        """Return key and value of a record that commits another offset in its place, at `at_ms` if this one deletes."""
        value = {**(self.value or {"metadata": "", "commitTimestamp": at_ms}), "offset": offset}
        if self.version >= _VERSION_WITH_EPOCH:
            value["leaderEpoch"] = -1
        return self.key, _SHORT.pack(self.version) + encoded(VALUES[self.type], value, self.version)


def restored_offsets(dirs: Iterable[str], fs: FileSystem) -> Offsets:
    """Return the committed offsets of groups in restored data directories. CorruptRecord, StorageError."""
    found: Offsets = {}
    for _, path in partitions(dirs, topic=OFFSETS_TOPIC, fs=fs):
        for one in last_commits(path, fs).values():
            topic, partition = one.topic_partition
            if one.value is not None:
                found.setdefault(one.group, {}).setdefault(topic, {})[partition] = one.offset
    return found


def last_commits(path: str, fs: FileSystem) -> dict[bytes, Commit]:
    """Return the last commit, or delete, of each key in a partition of `__consumer_offsets`."""
    return {one.key: one for one in _commits(path, 0, fs)}


def _commits(path: str, first_offset: int, fs: FileSystem) -> Iterator[Commit]:
    """Yield each committed or deleted offset of a partition, from an offset on; other records are left out."""
    with LogView(path, fs=fs) as view:
        for record in records(view, max(first_offset, view.log_start_offset), view.last_stable_offset, committed=True):
            key = record.key
            if key is None or len(key) < _SHORT.size or _SHORT.unpack_from(key)[0] not in _VERSIONS:
                continue
            try:
                found = coordinator_record(key, record.value, KEYS, VALUES)
            except MessageError:  # a later version: kept unchanged
                continue
            where = TopicPartition(found.key["topic"], found.key["partition"])
            version = _VERSIONS[found.type] if found.version is None else found.version
            yield Commit(key, record.offset, found.key["group"], where, found.type, version, found.value)


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

    `ends` are the restored logs' ends, `earlier` is the manifest of the newest backup made before the moment;
    `made_again` are the topics that were deleted and recreated since that backup.
    """

    def __init__(
        self, ends: Mapping[TopicPartition, int], earlier: Manifest | None, made_again: Collection[str], fs: FileSystem
    ) -> None:
        self._ends = ends
        self._earlier = earlier
        self._made_again = made_again
        self._fs = fs
        self._notes: list[str] = []

    @property
    def notes(self) -> list[str]:
        """Notes on offsets that differ from those of the moment, truncated if there are very many."""
        more = len(self._notes) - _MAX_NOTES
        return [*self._notes[:_MAX_NOTES], *([f"{more} more notes on offsets of groups"] if more > 0 else [])]

    def complete(
        self, directory: str, original: str, plan: PartitionPlan, at_ms: int, config: LogConfig
    ) -> None:
        """Write the commits missing from the cut partition in `directory`; `original` is its path in the backup."""
        key = plan.stored.topic_partition
        known = last_commits(os.path.join(directory, str(key)), self._fs)
        lost = {} if plan.later is None else self._lost(original, plan, known)
        changes = [*self._from_earlier(lost.values(), at_ms), *self._beyond_end(known.values(), at_ms)]
        if not changes:
            return
        with open_staged(directory, key, config, self._fs) as log:
            for first in range(0, len(changes), _RECORDS_PER_APPEND):
                builder = RecordsBuilder(log.log_end_offset, leader_epoch=epoch_for_append(log))
                for record_key, value in changes[first : first + _RECORDS_PER_APPEND]:
                    builder.append(at_ms, record_key, value)
                log.append_as_follower(builder.build(), None)
            log.flush()

    def _lost(self, original: str, plan: PartitionPlan, known: Mapping[bytes, Commit]) -> dict[bytes, Commit]:
        """Return the first later commits, or deletes, of keys without an earlier one, if the log lacks offsets then."""
        lost: dict[bytes, Commit] = {}
        for one in _commits(original, plan.later or 0, self._fs):
            if one.key not in known:
                lost.setdefault(one.key, one)
        return lost if lost and _has_gap(original, plan.later or 0, self._fs) else {}

    def _from_earlier(self, lost: Iterable[Commit], at_ms: int) -> Iterator[tuple[bytes, bytes]]:
        groups = {} if self._earlier is None else self._earlier.groups
        for one in lost:
            topic, partition = one.topic_partition
            offset = groups.get(one.group, {}).get(topic, {}).get(partition)
            what = f"group {ascii(one.group)}, {one.topic_partition}: compaction has removed its offset of then"
            if topic in self._made_again:
                self._notes.append(f"{what}; it has none, since the topic was created again after the backup before")
                continue
            if offset is None or self._earlier is None:
                self._notes.append(f"{what}, if it had one; it has none")
                continue
            end = self._ends.get(one.topic_partition, offset)
            self._notes.append(f"{what}; set to {min(offset, end)}, by the backup {self._earlier.id}")
            yield one.with_offset(min(offset, end), at_ms)

    def _beyond_end(self, known: Iterable[Commit], at_ms: int) -> Iterator[tuple[bytes, bytes]]:
        for one in known:
            end = self._ends.get(one.topic_partition)
            if end is not None and one.offset > end:
                self._notes.append(
                    f"group {ascii(one.group)}, {one.topic_partition}: its offset of then, {one.offset}, is set to the "
                    f"end of the restored log, {end}"
                )
                yield one.with_offset(end, at_ms)

