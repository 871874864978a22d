"""Repair of one data directory: planning, the lock, and the changes, one partition after the other."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafkalog.config.topic import LogConfig
from kafkalog.errors import (
    CorruptCheckpoint,
    DirectoryLocked,
    IllegalArgument,
    NotAPartition,
    PartitionNotFound,
    StorageError,
)
from kafkalog.manager.log_dir import LogDir, is_locked
from kafkalog.manager.topics import TopicStore
from kafkalog.storage import names
from kafkalog.tools.repair.apply import Backup, apply_changes
from kafkalog.tools.repair.checkpoints import plan_checkpoints, plan_epochs
from kafkalog.tools.repair.index import IndexRules
from kafkalog.tools.repair.opening import NextOpening, next_openings
from kafkalog.tools.repair.plan import Change, PartitionRepair, RepairOptions, cut_of, plan_repair
from kafkalog.tools.repair.report import PartitionReport
from kafkalog.tools.verify.checkpoints import (
    BOOTSTRAP_FILE,
    check_directory_files,
    compare_with_log,
    list_partitions,
    read_checkpoints,
    was_closed_cleanly,
)
from kafkalog.tools.verify.directories import is_partition
from kafkalog.tools.verify.job import State, check_segment
from kafkalog.tools.verify.partition import PartitionOutcome, make_job
from kafkalog.tools.verify.report import Finding, Findings, Severity, Sums
from kafkalog.tools.verify.segment import Progress
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import FileSystem, atomic_write

_MAX_MARKER_BYTES: Final = 1 << 16
_CHECKPOINTS: Final = "checkpoints"


@dataclass
class Group:
    """The partitions of one data directory to repair; `is_whole` if the directory itself was given."""

    partitions: list[str]
    is_whole: bool = False


class PartitionWork(NamedTuple):
    """Arguments for planning a partition's repair; they may be sent to another process."""

    path: str
    state: State
    options: RepairOptions
    rules: IndexRules


class DirectoryRepair:
    """The repair of partitions of one data directory, one by one: only one partition's indexes are in memory."""

    def __init__(
        self,
        directory: str,
        group: Group,
        options: RepairOptions,
        index_interval_bytes: int | None,
        progress: Progress | None,
        fs: FileSystem,
    ) -> None:
        self.reports: list[PartitionReport] = []
        self.openings: list[NextOpening] = []
        self._ends: dict[TopicPartition, int] = {}
        self._changes: list[Change] = []
        self._sound_ends: dict[str, dict[int, int]] = {}
        self._directory = directory
        self._group = group
        self._options = options
        self._interval = index_interval_bytes
        self._progress = progress
        self._fs = fs

    def plan(self) -> None:
        """Fill `reports`; nothing on disk changes."""
        for repair in self._plans():
            self._record_plan(repair)
            self.note(repair)
        self._forecast_openings()

    def apply(self, backup: Backup) -> None:
        """Make the changes; those in `reports` when an error is raised were made."""
        with self.held() as log_dir:
            for one in self._plans():
                self._record_plan(one)
                self.carry_out(one, log_dir, backup)
        self._forecast_openings()

    def refuse_in_use(self) -> None:
        """Raise DirectoryLocked while a broker or a writer, also one in this process, has the data directory."""
        if is_locked(self._directory, fs=self._fs):
            raise DirectoryLocked(
                "the data directory is in use", path=os.path.join(self._directory, names.LOCK_FILE),
                hint="stop the broker, or close the log, then repair; without apply a repair needs no lock",
            )  # fmt: skip

    @contextmanager
    def held(self) -> Iterator[LogDir]:
        """Lock the data directory for the block; restore the clean-shutdown marker if only indexes changed."""
        self.refuse_in_use()
        with LogDir.acquire(self._directory, fs=self._fs) as log_dir, self._marker(log_dir):
            yield log_dir

    def carry_out(self, one: PartitionRepair, log_dir: LogDir, backup: Backup) -> None:
        """Make the changes of one plan, in the directory that is held, and record them."""
        if one.changes:
            backup.save(one.path, one.changes, _CHECKPOINTS if one.path == self._directory else "")
            log_dir.before_first_write()
            apply_changes(one.changes, self._fs)
        self.note(one)

    def work(self) -> list[PartitionWork]:
        """Return the planning work, partition by partition."""
        state = State(is_live=False, is_clean=was_closed_cleanly(self._directory, self._fs))
        return [PartitionWork(path, state, self._options, self._rules(path)) for path in self._group.partitions]

    def _plans(self) -> Iterator[PartitionRepair]:
        """Yield the plans of the partitions one by one, then that of the data directory itself."""
        for one in self.work():
            plan = plan_partition_work(one, self._fs, self._progress)
            yield self._with_epochs(plan) if self._options.checkpoints else plan
        yield self._plan_directory() if self._group.is_whole else self._plan_beside_partitions()

    def _plan_directory(self) -> PartitionRepair:
        """Plan the data directory's own files: its checkpoints, and the batches of `bootstrap.checkpoint`."""
        changes: list[Change] = []
        left: list[Finding] = []
        try:
            if self._options.checkpoints:
                changes += plan_checkpoints(self._directory, self._ends, self._fs)
        except StorageError as error:
            left.append(_unreadable(error, self._directory))
        path = os.path.join(self._directory, BOOTSTRAP_FILE)
        job = make_job(path, State(), True, self._fs, base_offset=0, with_indexes=False)
        if job is not None:
            outcome = check_segment(job, deep=False, check_crc=True, fs=self._fs)
            cut = cut_of(outcome.facts) if outcome.facts is not None and self._options.truncate_tail else None
            changes += [] if cut is None else [cut]
            problems = [one for one in outcome.findings.all() if one.severity != Severity.NOTE]
            left += [one for one in problems if cut is None or not one.kind.startswith("tail-")]
        own = Findings(self._directory)
        check_directory_files(self._directory, State(is_clean=True), own, self._fs)
        return PartitionRepair(self._directory, changes, [*left, *own.all()])

    def _plan_beside_partitions(self) -> PartitionRepair:
        """Report checkpoints above the ends of the given partitions, which only a repair of the directory corrects."""
        own = Findings(self._directory)
        checkpoints = read_checkpoints(self._directory, None, self._fs)
        for partition, end in self._ends.items():
            outcome = PartitionOutcome([], Sums(), None, end)
            compare_with_log(self._directory, str(partition), outcome, checkpoints, own)
        return PartitionRepair(self._directory, [], [one for one in own.all() if one.severity != Severity.NOTE])

    def _with_epochs(self, one: PartitionRepair) -> PartitionRepair:
        """Add the change to the leader epochs, if they are malformed or late."""
        path = os.path.join(one.path, names.LEADER_EPOCH_CHECKPOINT)
        resolved = [f for f in one.left if f.kind == "epoch-late" or (f.kind == "checkpoint" and f.path == path)]
        change = plan_epochs(one.path, one.facts, self._fs) if resolved else None
        if change is None:
            return one
        return one._replace(changes=[change, *one.changes], left=[f for f in one.left if f not in resolved])

    def note(self, repair: PartitionRepair) -> None:
        """Add a plan, carried out or not, to the reports."""
        if repair.end_offset is not None or repair.is_empty:
            try:
                partition, kind = names.parse_dir(os.path.basename(repair.path))
            except NotAPartition:
                kind = "other"
            if not kind:
                self._ends[partition] = self._start_of(partition) if repair.end_offset is None else repair.end_offset
        changes = tuple(change.without_data() for change in repair.changes)
        if changes or repair.left or repair.path != self._directory:
            self.reports.append(PartitionReport(repair.path, changes, tuple(repair.left)))

    def _start_of(self, partition: TopicPartition) -> int:
        """Return where a log without segments starts, and ends."""
        return read_checkpoints(self._directory, None, self._fs).log_start.get(partition, 0)

    def _record_plan(self, one: PartitionRepair) -> None:
        """Keep the parts of a plan that the next opening depends on."""
        self._changes += _without_index_data(one.changes)
        self._sound_ends[one.path] = one.sound_ends

    def _forecast_openings(self) -> None:
        self.openings = next_openings(
            self._directory, self._group.partitions, self._changes, self._sound_ends, self._fs
        )

    def _rules(self, path: str) -> IndexRules:
        """Return the topic's settings if the topics file has them, else Kafka's defaults."""
        rules = IndexRules()
        with suppress(NotAPartition, CorruptCheckpoint, StorageError):
            topic = names.parse_topic_partition_dir(os.path.basename(path)).topic
            entry = TopicStore(self._directory, fs=self._fs).get(topic)
            if entry is not None:
                config = LogConfig.from_stored(entry.settings)
                rules = IndexRules(config.index_interval_bytes, config.segment_index_bytes)
        return rules if self._interval is None else rules._replace(index_interval_bytes=self._interval)

    @contextmanager
    def _marker(self, log_dir: LogDir) -> Iterator[None]:
        """Restore the clean-shutdown marker, unless a log was cut, a snapshot was removed, or an error was raised."""
        path = log_dir.marker_path
        content = self._fs.read_file(path, _MAX_MARKER_BYTES) if log_dir.marker_found else None
        yield
        changes = [change for one in self.reports for change in one.changes]
        of_logs = {one.kind for one in changes if os.path.basename(one.path) != BOOTSTRAP_FILE}
        if content is not None and changes and of_logs <= {"rebuild"}:
            atomic_write(self._fs, path, content)


def _without_index_data(changes: Iterable[Change]) -> list[Change]:
    """Return the changes without the content of indexes: only the current partition keeps that in memory."""
    return [one if one.path.endswith("-checkpoint") else one.without_data() for one in changes]


def check_interval(index_interval_bytes: int | None) -> None:
    """Raise IllegalArgument for an invalid `index.interval.bytes`; None means the topic's own."""
    if index_interval_bytes is not None and not 0 <= index_interval_bytes < 1 << 31:
        raise IllegalArgument(f"index.interval.bytes is {index_interval_bytes}: give 0 to 2147483647")


def plan_partition_work(work: PartitionWork, fs: FileSystem, progress: Progress | None = None) -> PartitionRepair:
    """Plan the repair of a partition; files that the system refuses to read are left, and reported."""
    try:
        return plan_repair(work.path, work.state, work.options, work.rules, fs, progress)
    except StorageError as error:
        return PartitionRepair(work.path, [], [_unreadable(error, work.path)])


def _unreadable(error: StorageError, path: str) -> Finding:
    return Finding(Severity.UNREADABLE, "unreadable", error.path or path, error.message, hint=error.hint)


def find_groups(paths: list[str], fs: FileSystem) -> dict[str, Group]:
    """Return the partitions to repair, by data directory; PartitionNotFound, NotAPartition."""
    groups: dict[str, Group] = {}
    for given in paths:
        path = os.path.abspath(given)
        if not os.path.exists(path):
            raise PartitionNotFound("there is no such directory", path=given, hint="check the path")
        if not os.path.isdir(path):
            hint = f"give its directory, {os.path.dirname(path)}"
            raise NotAPartition("a file is repaired with its partition", path=given, hint=hint)
        if is_partition(path, fs):
            found, directory, is_whole = [path], os.path.dirname(path), False
        else:
            listed = list_partitions(path, Findings(path), fs)
            if not listed:
                raise NotAPartition("there is no partition in the directory", path=given, hint="check the path")
            found, directory, is_whole = [os.path.join(path, name) for name in listed], path, True
        group = groups.setdefault(directory, Group([]))
        group.partitions = list(dict.fromkeys([*group.partitions, *found]))
        group.is_whole = group.is_whole or is_whole
    return groups


def backups_for(groups: Iterable[str], backup_dir: str | None, fs: FileSystem) -> dict[str, Backup]:
    """Return the backup of each data directory: beside it, or in `backup_dir`, where several have a directory each."""
    directories = list(groups)
    if backup_dir is None:
        return {directory: Backup(_default_backup(directory, fs), fs) for directory in directories}
    if len(directories) == 1:
        return {directories[0]: Backup(backup_dir, fs)}
    backups: dict[str, Backup] = {}
    used_names: set[str] = set()
    for directory in directories:
        base = os.path.basename(directory)
        name = next(n for n in (base, *(f"{base}-{i}" for i in range(1, len(directories) + 1))) if n not in used_names)
        used_names.add(name)
        backups[directory] = Backup(os.path.join(backup_dir, name), fs, within=backup_dir)
    return backups


def _default_backup(directory: str, fs: FileSystem) -> str:
    """Return an unused name beside the data directory, with the time in UTC."""
    base = f"{directory.rstrip('/')}.repair-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    name, number = base, 1
    while fs.exists(name):
        name, number = f"{base}-{number}", number + 1
    return name
