"""All staged data directories of a backup, cut back to a moment before they become visible."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from kafkalog.backup.damage import logs_by_directory
from kafkalog.backup.log_ends import COORDINATOR
from kafkalog.backup.manifest import Manifest, StoredPartition
from kafkalog.backup.restore_at.groups import OFFSETS_TOPIC, GroupsRewind, restored_offsets
from kafkalog.backup.restore_at.partition import rewind_partition
from kafkalog.backup.restore_at.plan import Moment, PartitionPlan, check_has_records, notes_of, plan_partitions
from kafkalog.backup.restore_at.writes import forget_writes
from kafkalog.config.topic import LogConfig
from kafkalog.reading.chunks import records
from kafkalog.records.internal import coordinator_record
from kafkalog.records.message import MessageError
from kafkalog.records.schemas.transactions import KEYS, VALUES
from kafkalog.storage.names import parse_base_offset
from kafkalog.storage.readonly.view import LogView
from kafkalog.util.fileio import FileSystem

_PREPARE_COMMIT: Final = 2


class Rewind:
    """Cuts the staged copies of the backup in the directory `backup` back to `moment`.

    Everything is planned first, from the backup; IllegalArgument if the moment is older than every record.
    """

    def __init__(
        self, backup: str, manifest: Manifest, moment: Moment, earlier: Manifest | None, fs: FileSystem
    ) -> None:
        self._backup = backup
        self._manifest = manifest
        self._moment = moment
        self._earlier = earlier
        self._fs = fs
        self._plans = plan_partitions(backup, manifest, moment, fs)
        self._notes = notes_of(self._plans, moment.at_ms)
        self._is_applied = False

    @property
    def record(self) -> str:
        """The moment as text, to recognize a restore that was interrupted."""
        return f"at {self._moment.at_ms} by {self._moment.by}"

    def whole_segments(self) -> frozenset[str]:
        """Return the backup's paths of segment files that are restored unchanged, except the last of each log."""
        begins = {self._name(plan): plan.begin for plan in self._plans}
        found: set[str] = set()
        for name, logs in logs_by_directory(self._manifest.files):
            bases = [parse_base_offset(log) or 0 for log in logs]
            for log, following in zip(logs, bases[1:], strict=False):
                if following <= begins.get(name, 0):
                    found.add(f"{name}/{log}")
        return frozenset(found)

    def apply(self, staged: Sequence[str]) -> None:
        """Cut the partitions in the staged data directories, given in the backup's order. CorruptRecord, StorageError.

        The transaction coordinator's log comes first, since it decides about transactions; the groups' offsets come
        last, since they depend on the ends of all other logs.
        """
        ordered = sorted(self._plans, key=lambda plan: _order(plan.stored.topic))
        prepared: set[int] = set()
        has_records = {}
        for plan in ordered:
            directory = staged[plan.stored.directory]
            if not plan.is_untouched:
                has_records[plan.stored.topic_partition] = rewind_partition(
                    directory, self._original(plan), plan, self._moment.at_ms, self._config(plan), prepared, self._fs
                )
            if plan.stored.topic == COORDINATOR:
                prepared |= _prepared_in(os.path.join(directory, str(plan.stored.topic_partition)), self._fs)
        if self._moment.by == "time":
            empty = [not has_records.get(plan.stored.topic_partition, True) for plan in self._plans]
            check_has_records(self._plans, empty, self._moment, self._manifest)
        self._complete_groups(staged)
        is_cut = any(plan.later is not None for plan in self._plans)
        for directory in staged if is_cut else ():
            note = forget_writes(directory, self._moment.at_ms, self._fs)
            self._notes += [] if note is None else [note]
        self._is_applied = True

    def _complete_groups(self, staged: Sequence[str]) -> None:
        plans = [plan for plan in self._plans if plan.stored.topic == OFFSETS_TOPIC]
        if not plans:
            return
        ends = {one.topic_partition: one.end_offset for one in self._described(staged)}
        groups = GroupsRewind(ends, self._earlier, self._made_again(), self._fs)
        for plan in plans:
            directory = staged[plan.stored.directory]
            groups.complete(directory, self._original(plan), plan, self._moment.at_ms, self._config(plan))
        self._notes += groups.notes

    def _made_again(self) -> frozenset[str]:
        """Return the topics that were deleted and recreated since the earlier backup: their ids differ."""
        earlier = () if self._earlier is None else self._earlier.partitions
        ids = {one.topic: one.topic_id for one in earlier if one.topic_id is not None}
        own = ((one.topic, one.topic_id) for one in self._manifest.partitions if one.topic_id is not None)
        return frozenset(topic for topic, topic_id in own if ids.get(topic, topic_id) != topic_id)

    def _original(self, plan: PartitionPlan) -> str:
        return os.path.join(self._backup, self._name(plan))

    def _name(self, plan: PartitionPlan) -> str:
        """Return the path of a partition's directory in the backup."""
        return f"{self._manifest.directories[plan.stored.directory].name}/{plan.stored.topic_partition}"

    def _config(self, plan: PartitionPlan) -> LogConfig:
        return LogConfig.from_stored(self._manifest.topics.get(plan.stored.topic, {}))

    def _described(self, dirs: Sequence[str]) -> list[StoredPartition]:
        found = []
        for stored in self._manifest.partitions:
            if not stored.segments:
                found.append(stored)
                continue
            with LogView(os.path.join(dirs[stored.directory], str(stored.topic_partition)), fs=self._fs) as view:
                found.append(
                    stored._replace(
                        start_offset=view.log_start_offset, end_offset=view.log_end_offset,
                        high_watermark=view.high_watermark, segments=len(view.segments), size=view.size,
                    )  # fmt: skip
                )
        return found

    def restored(self, dirs: Sequence[str]) -> Manifest:
        """Return the manifest with partitions and groups as the restored `dirs` have them, and notes on the moment."""
        notes = [*self._notes]
        if not self._is_applied:
            notes.append("an interrupted restore was continued: its notes on offsets of groups are not repeated")
        return self._manifest._replace(
            partitions=tuple(self._described(dirs)), groups=restored_offsets(dirs, self._fs), notes=tuple(notes)
        )


def _order(topic: str) -> int:
    return {COORDINATOR: 0, OFFSETS_TOPIC: 2}.get(topic, 1)


def _prepared_in(path: str, fs: FileSystem) -> set[int]:
    """Return the producers whose last state in a coordinator's log is a decided commit with markers still to write."""
    states: dict[bytes, tuple[int, int]] = {}
    with LogView(path, fs=fs) as view:
        for record in records(view, view.log_start_offset, view.log_end_offset):
            key = record.key or b""
            states.pop(key, None)
            try:
                found = coordinator_record(key, record.value, KEYS, VALUES)
            except MessageError:
                continue
            if found.value is not None:
                states[key] = found.value["producerId"], found.value["transactionStatus"]
    return {producer for producer, state in states.values() if state == _PREPARE_COMMIT}
